"""`records`: rebuild the database, grade stored answers again, delete a study."""

import sys
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.output import print_json, print_lines, print_table
from gspo_lab.cli.shared_options import (
    RUNS,
    Json,
    Runs,
    UnsafeNoSandbox,
    evidence_of,
    study_named,
    warn,
)
from gspo_lab.common.atomic_files import exclusive_lock
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import CONDUCTOR_LOCK, database_of
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.registry import unlisted
from gspo_lab.common.states import Exit
from gspo_lab.common.text import first_few
from gspo_lab.recording.records import StoredAnswer
from gspo_lab.recording.runfolder import RunFolder

if TYPE_CHECKING:
    from gspo_lab.recording.store import Evidence
    from gspo_lab.tasks.evaluation.regrade import Regraded

EXAMPLES = {
    "records": (
        "gspo-lab records rebuild",
        "gspo-lab records regrade moe_stability",
        "gspo-lab records delete my-import",
    ),
}

records = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="Rebuild the database, grade answers again, delete a study.",
)


def _examples(*lines: str) -> str:
    return "\n\n".join(("Examples:", *lines))


@records.command("rebuild")
def rebuild(runs: Runs = RUNS) -> None:
    """Write the database again from the journals.

    The journals do not change. A damaged database is kept under another name. Exit code 1: a
    journal is damaged or lies in the wrong folder, and what it holds is missing.
    """
    from gspo_lab.recording.store import rebuild as rebuild_database

    report = rebuild_database(runs)
    for line in report.damaged:
        warn(line)
    if report.edited:
        warn(
            "records that the old database had otherwise are now those of the journals:"
            f" {first_few(report.edited, 5)}"
        )
    if report.replaced is not None:
        warn(
            f"the old database was damaged; it is kept as {report.replaced}: delete it when you do"
            " not need it"
        )
    print_lines([f"{database_of(runs)}: {report.records:,} records of {report.runs} runs"])
    if report.damaged:
        raise typer.Exit(Exit.INCOMPLETE)


@records.command(
    "delete",
    epilog=_examples("gspo-lab records delete old", "gspo-lab records delete old --yes"),
)
def delete(
    study: Annotated[str, typer.Argument(help="A study or an import.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Take a study or an import out of the records.

    Its folder moves to runs/_archive, from where it can be moved back.
    """
    from gspo_lab.recording.store import ingest
    from gspo_lab.running.conduct.study_lock import archive

    with evidence_of(runs) as evidence:
        name = study_named(evidence, study, runs)
        count = len(evidence.chosen(name))
    if not yes:
        if not sys.stdin.isatty():
            raise LabError(
                f"records delete {name}: {count} runs; add --yes to delete without a question"
            )
        typer.confirm(f"Delete {name} with {count} runs from {runs}?", abort=True)
    refusal = f"{name} is being trained; stop it first"
    with exclusive_lock(runs / name / CONDUCTOR_LOCK, refusal):
        place = archive(runs / name, runs, name)
    ingest(runs)
    print_lines([f"{name}: moved to {place}"])


@records.command(
    "regrade",
    epilog=_examples(
        "gspo-lab records regrade moe_stability",
        "gspo-lab records regrade my_study/gspo/s0 --bench aime24 --apply",
    ),
)
def regrade(
    name: Annotated[
        str | None,
        typer.Argument(
            help=(
                "A study, a run, or an evaluated model (_subjects/NAME). Default: the latest study."
            )
        ),
    ] = None,
    bench: Annotated[
        str | None, typer.Option(help="Regrade only the answers to this benchmark.")
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Use the new grades from now on. The old grades are kept."),
    ] = False,
    unsafe: UnsafeNoSandbox = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Grade stored answers with the current graders."""
    from gspo_lab.recording.store import ingest
    from gspo_lab.recording.store.answers import stored as stored_answers
    from gspo_lab.tasks.evaluation.regrade import apply_grades

    with evidence_of(runs) as evidence:
        ids = _ids(evidence, name, runs)
        stored = {run_id: stored_answers(evidence, run_id) for run_id in ids}
    regraded = _regrade(runs, stored, bench, unsafe=unsafe)
    if not regraded:
        benchmark = f" to {bench}" if bench else ""
        raise LabError(f"no benchmark answers{benchmark} of {name or 'the latest study'} to grade")
    written = 0
    if apply:
        for (run_id, evaluation), answers in regraded.items():
            written += apply_grades(RunFolder(runs / run_id), run_id, evaluation, answers)
        ingest(runs)
    turned = []
    for (run_id, evaluation), answers in regraded.items():
        changed = [answer for answer in answers if answer.turned]
        turned += [_change(run_id, evaluation, answer) for answer in changed]
    summary = _summary(regraded)
    if json:
        print_json({"summary": summary, "changed": turned, "applied": written})
        return
    print_table(summary, empty="")
    print_table(turned, empty="\nno verdict changed", title="\nchanged verdicts")
    differ = sum(answer.differs for answer in chain.from_iterable(regraded.values()))
    if apply:
        typer.echo(f"{written} grades put into force")
    elif differ:
        typer.echo(
            f"{differ} grades differ in verdict, words or grader; --apply puts the new ones into"
            " force"
        )


def _ids(evidence: "Evidence", name: str | None, runs: Path) -> list[str]:
    from gspo_lab.recording.store.traces import read_subjects

    if name is not None and "/" in name:
        recorded = list(read_subjects(evidence)["run_id"])
        if not name.startswith("_"):
            recorded = list(
                evidence.runs(study_named(evidence, name.partition("/")[0], runs))["run_id"]
            )
        if name not in recorded:
            raise LabError(f"no run, model or server {unlisted(name, recorded, 'there are')}")
        return [name]
    return list(evidence.runs(study_named(evidence, name, runs))["run_id"])


def _regrade(
    runs: Path, stored: dict[str, dict[str, list[StoredAnswer]]], bench: str | None, *, unsafe: bool
) -> "dict[tuple[str, str], list[Regraded]]":
    from gspo_lab.running.progress import counting
    from gspo_lab.tasks.evaluation.regrade import regrade, tasks_of

    regraded: dict[tuple[str, str], list[Regraded]] = {}
    selected = {}
    for run_id, evaluations in stored.items():
        for evaluation, answers in evaluations.items():
            selected_answers = [answer for answer in answers if bench in (None, answer.bench)]
            selected[run_id, evaluation] = selected_answers
    with counting("regrade", {"answers": sum(map(len, selected.values()))}) as advance:
        for (run_id, evaluation), answers in selected.items():
            if not answers:
                continue
            try:
                tasks = tasks_of(RunFolder(runs / run_id), evaluation, unsafe=unsafe)
            except LabError as error:
                warn(f"left out: {error}")
                advance("answers", len(answers))
                continue
            for name, (task_name, task) in tasks.items():
                of_task = [answer for answer in answers if answer.bench == name]
                grades = regrade(of_task, task_name, task, partial(advance, "answers"))
                regraded.setdefault((run_id, evaluation), []).extend(grades)
    return regraded


def _summary(regraded: "dict[tuple[str, str], list[Regraded]]") -> list[JsonObject]:
    groups: dict[tuple[str, str], list[Regraded]] = {}
    for (_, evaluation), answers in regraded.items():
        for answer in answers:
            groups.setdefault((answer.stored.bench, evaluation), []).append(answer)
    rows = []
    for (bench, evaluation), answers in groups.items():
        old = {str(answer.stored.grader) for answer in answers}
        new = {str(answer.grade.grader) for answer in answers if answer.grade is not None}
        graders = dict.fromkeys(", ".join(sorted(names)) for names in (old, new) if names)
        row: JsonObject = {"bench": bench, "evaluation": evaluation or "(as it trained)"}
        fates = Counter(map(_fate, answers))
        row |= {"grader": " → ".join(graders), "answers": len(answers)} | {
            fate: fates[fate] for fate in FATES
        }
        rows.append(row)
    return rows


FATES = ("now right", "now wrong", "now not graded", "problem gone")


def _fate(answer: "Regraded") -> str:
    if answer.grade is None:
        return "problem gone"
    if not answer.turned:
        return "as before"
    return {1: "now right", 0: "now wrong", None: "now not graded"}[answer.grade.correct]


def _change(run_id: str, evaluation: str, answer: "Regraded") -> JsonObject:
    old = answer.stored
    new = answer.grade
    assert new is not None
    words: dict[int | None, str] = {1: "right", 0: "wrong", None: "not graded"}
    old_grade = ": ".join(filter(None, (words[old.correct], old.error or old.reason)))
    new_grade = ": ".join(filter(None, (words[new.correct], new.error or new.reason)))
    place = {"answered": run_id, "evaluation": evaluation, "step": old.step, "problem": old.problem}
    return {
        **place,
        "sample": old.sample,
        "was": old_grade,
        "by": old.grader,
        "is": new_grade,
        "now by": new.grader,
    }
