"""`certify` and `compare`: checks of records and of the rule; two runs, or the logs of arms."""

from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.output import console, print_either, print_lines
from gspo_lab.cli.shared_options import (
    REPORTS,
    RUNS,
    Json,
    OutputDir,
    Runs,
    UnsafeNoSandbox,
    evidence_of,
    run_named,
    study_named,
    warn,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.states import Exit
from gspo_lab.recording.runfolder import RunFolder

if TYPE_CHECKING:
    from gspo_lab.recording.store import Evidence
    from gspo_lab.tasks.evaluation.regrade import SpotCheck

EXAMPLES = {
    "certify": (
        "gspo-lab certify quickstart",
        "gspo-lab certify --rule --simulations 300",
    ),
    "compare": (
        "gspo-lab compare my_study/grpo/s0 my_study/gspo/s0",
        "gspo-lab compare a/gspo/s0 b/gspo/s0 --json",
        "gspo-lab compare grpo=out/grpo-s0 gspo=out/gspo-s0",
        "gspo-lab compare 'grpo=out/grpo-s{seed}' 'gspo=out/gspo-s{seed}' --score-metric eval/acc",
    ),
}


def certify(
    study: Annotated[str | None, typer.Argument(help="A study. Default: the latest.")] = None,
    regrade_sample: Annotated[
        int, typer.Option(min=0, help="Grade this many randomly drawn answers of each run again.")
    ] = 100,
    rule: Annotated[
        bool,
        typer.Option(
            "--rule",
            help="Measure the error rates of the verdict's rule on simulated studies instead.",
        ),
    ] = False,
    simulations: Annotated[
        int, typer.Option(min=100, help="With --rule: simulated studies per kind of study.")
    ] = 2000,
    unsafe: UnsafeNoSandbox = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Check that a study's runs are matched and unchanged.

    Reads the journals again and grades a sample of answers again. Exit with code 1 if a check
    fails. `--rule` checks the verdict's rule on studies whose true effects are known.
    """
    if rule:
        from gspo_lab.cli.calibrate import measure_error_rates

        within_bands = measure_error_rates(simulations, json=json)
        raise typer.Exit(Exit.FINISHED if within_bands else Exit.INCOMPLETE)
    from gspo_lab.analysis.findings.decision import decision
    from gspo_lab.analysis.findings.matched import study_certificate
    from gspo_lab.analysis.matching.certificate import verify_record
    from gspo_lab.analysis.readings import Source

    with evidence_of(runs) as evidence:
        study_name = study_named(evidence, study, runs)
        source = Source(evidence, study_name)
        ids = [run.id for run in evidence.chosen(study_name)]
        if lost := [run for run in ids if RunFolder(runs / run).has_lost_model()]:
            from gspo_lab.running.plan.plan import lost_models  # a tenth of a second to import

            warn(lost_models(lost))
        decided = decision(source)
        # The sample is drawn anew each time, so that a forger cannot know which answers are graded
        # again.
        samples = graded_again(
            evidence, study_name, runs, regrade_sample, unsafe=unsafe, chance=SystemRandom()
        )
        needed = decided.seeds if decided.stopped else None
        checked = verify_record(evidence, study_certificate(source), samples, needed)
    print_either(json, checked.to_json() if json else None, [] if json else checked.lines())
    raise typer.Exit(Exit.FINISHED if checked.ok else Exit.INCOMPLETE)


def graded_again(
    evidence: "Evidence", study: str, runs: Path, most: int, *, unsafe: bool, chance: Random
) -> "dict[str, SpotCheck]":
    """Per run a sample of its own answers, graded again."""
    from gspo_lab.recording.store.answers import questions, stored
    from gspo_lab.running.progress import counting
    from gspo_lab.tasks.evaluation.regrade import spot_check

    checks: dict[str, SpotCheck] = {}
    tasks: JsonObject = {}
    ids = [run.id for run in evidence.chosen(study)]
    with counting(f"certify {study}", {"runs graded again": len(ids)}) as advance:
        for run in ids:
            if answers := stored(evidence, run).get(""):
                problems = questions(evidence, run)
                folder = RunFolder(runs / run)
                checks[run] = spot_check(
                    folder, answers, problems, most, chance, tasks, unsafe=unsafe
                )
            advance("runs graded again", 1)
    return checks


def compare(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN | ARM=LOG...",
            help=(
                "Two runs, for example my_study/grpo/s0. Or logs by arm: grpo=LOG... gspo=LOG..."
            ),
            show_default=False,
        ),
    ],
    source: Annotated[
        str | None, typer.Option(help="Of logs: their kind, as of import. Default: recognised.")
    ] = None,
    logged_by: Annotated[
        str | None, typer.Option(help="Of logs: the program whose metric names they use.")
    ] = None,
    score_metric: Annotated[
        str | None, typer.Option(help="Of logs: the metric that is the score. Default: the usual.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Of logs: the study. Default: ARM-vs-ARM.")
    ] = None,
    output_dir: OutputDir = REPORTS,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Compare two runs, or the logs of two arms.

    Of two runs it shows the first difference. Causes come first: settings, code, packages, device,
    numerics, weights, tokenizer and grader. Effects follow in time: answers, prompts, responses,
    log-probs, rewards, updates. Logs (`grpo=LOG... gspo=LOG...`) are imported and reported. A
    path's {seed} pairs the runs of the arms; without it their order does.
    """
    if any("=" in name for name in named):
        reading: JsonObject = {"logged_by": logged_by, "score": score_metric or {}}
        _compare_logs(named, study, source, reading, output_dir, json=json, runs=runs)
        return
    if len(named) != 2:
        raise LabError("compare: two runs, or the logs of arms: grpo=LOG... gspo=LOG...")
    from gspo_lab.analysis.matching.first_difference import first_difference
    from gspo_lab.analysis.matching.first_difference import lines as difference_lines

    with evidence_of(runs) as evidence:
        run_a = run_named(evidence, named[0])
        run_b = run_named(evidence, named[1])
        difference = first_difference(evidence, run_a, run_b)
    print_either(
        json,
        None if difference is None else difference.to_json(),
        difference_lines(difference, run_a, run_b),
    )


SOUGHT = 0.05
PAIR_SD = 0.072
"""The spread of a pair's difference in docs/results/moe_stability.md, over 54 seeds."""


def _compare_logs(
    words: list[str],
    study: str | None,
    source: str | None,
    reading: JsonObject,
    output_dir: Path,
    *,
    json: bool,
    runs: Path,
) -> None:
    """Import logs into a study of their own, replacing an earlier comparison, and report it."""
    from gspo_lab.analysis.diagnosis.log import guess_source
    from gspo_lab.analysis.readings import Source
    from gspo_lab.analysis.stats.power import seeds_needed
    from gspo_lab.exchange.importers.build_declaration import existing_import
    from gspo_lab.exchange.importers.compared_logs import import_compared, logs_by_arm
    from gspo_lab.report import render, write
    from gspo_lab.report.terminal import print_answer
    from gspo_lab.running.conduct.study_lock import archive

    logs = logs_by_arm(words)
    name = study or "-vs-".join(logs)
    earlier = existing_import(runs, name)
    archived = archive(runs / name, runs, name) if earlier.arms else None
    try:
        imported = import_compared(
            runs, name, logs, lambda log: source or guess_source(log), reading
        )
    except BaseException:
        if archived is not None:
            archived.rename(runs / name)
        raise
    with evidence_of(runs) as evidence:
        rendered = render([Source(evidence, name, name)])
    page = write(rendered, output_dir)[0]
    if json:
        typer.echo(rendered.json, nl=False)
        return
    print_lines([f"note: {note}" for note in imported.notes], err=True)
    for answer in rendered.answers.values():
        print_answer(answer, console())
    if len(imported.runs) == len(logs):
        count = seeds_needed(PAIR_SD, SOUGHT)
        print_lines(
            [
                f"one run each: no verdict; {count} seeds would find .05 if pairs spread as in"
                f" docs/results/moe_stability.md (sd {PAIR_SD:g})"
            ]
        )
    print_lines([f"report: {page}"])
