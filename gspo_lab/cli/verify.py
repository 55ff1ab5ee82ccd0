"""`certify` and `compare`: checks of records and of the rule; the first difference of two runs."""

from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.output import print_either
from gspo_lab.cli.shared_options import (
    RUNS,
    Json,
    Runs,
    UnsafeNoSandbox,
    evidence_of,
    run_named,
    study_named,
)
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
        "gspo-lab compare quickstart/grpo/s0 quickstart/gspo/s0",
        "gspo-lab compare a/gspo/s0 b/gspo/s0 --json",
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
    tasks: dict[str, Any] = {}
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
    run_a: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, for example quickstart/grpo/s0.", show_default=False
        ),
    ],
    run_b: Annotated[
        str, typer.Argument(metavar="RUN", help="Another run, of any study.", show_default=False)
    ],
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Show the first difference between two runs.

    Causes come first: settings, code, packages, device, numerics, weights, tokenizer and grader.
    Effects follow in time: benchmark answers, prompts, responses, log-probs, rewards and updates.
    """
    from gspo_lab.analysis.matching.first_difference import first_difference
    from gspo_lab.analysis.matching.first_difference import lines as difference_lines

    with evidence_of(runs) as evidence:
        run_a = run_named(evidence, run_a)
        run_b = run_named(evidence, run_b)
        difference = first_difference(evidence, run_a, run_b)
    print_either(
        json,
        None if difference is None else difference.to_json(),
        difference_lines(difference, run_a, run_b),
    )
