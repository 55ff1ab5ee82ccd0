from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.shared_options import RUNS, Json, Runs, UnsafeNoSandbox, evidence_of, study_named, tell
from gspo_lab.errors import LabError
from gspo_lab.runfolder import RunFolder

if TYPE_CHECKING:
    from gspo_lab.evaluation.regrade import Regraded
    from gspo_lab.store import Evidence

EXAMPLES = (
    "gspo-lab regrade moe_stability",
    "gspo-lab regrade quickstart/gspo/s0 --bench aime24 --apply",
)
SHOWN = 40


def regrade(
    name: Annotated[
        str | None,
        typer.Argument(help="A study, a run, or an evaluated model (_subjects/NAME). Default: the latest study."),
    ] = None,
    bench: Annotated[str | None, typer.Option(help="Regrade only the answers to this benchmark.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Use the new grades from now on. The old grades are kept.")
    ] = False,
    unsafe: UnsafeNoSandbox = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Grade stored answers with the current graders."""
    from gspo_lab.cli.output import print_json, print_table
    from gspo_lab.evaluation.regrade import apply as put_into_force
    from gspo_lab.store import ingest
    from gspo_lab.store.answers import stored as stored_answers

    with evidence_of(runs) as evidence:
        ids = _ids(evidence, name, runs)
        stored = {run_id: stored_answers(evidence, run_id) for run_id in ids}
    regraded = _regrade(runs, stored, bench, unsafe=unsafe)
    if not regraded:
        raise LabError(
            f"no benchmark answers{f' to {bench}' if bench else ''} of {name or 'the latest study'} to grade"
        )
    written = 0
    if apply:
        written = sum(
            put_into_force(RunFolder(runs / run_id), run_id, name, ones) for (run_id, name), ones in regraded.items()
        )
        ingest(runs)
    turned = [
        _change(run_id, evaluation, one)
        for (run_id, evaluation), ones in regraded.items()
        for one in ones
        if one.turned
    ]
    summary = _summary(regraded)
    if json:
        print_json({"summary": summary, "changed": turned, "applied": written})
        return
    print_table(summary, empty="")
    print_table(turned[:SHOWN], empty="\nno verdict changed", title="\nchanged verdicts")
    if len(turned) > SHOWN:
        typer.echo(f"... and {len(turned) - SHOWN} more: --json shows all")
    differ = sum(one.differs for ones in regraded.values() for one in ones)
    if apply:
        typer.echo(f"{written} grades put into force")
    elif differ:
        typer.echo(f"{differ} grades differ in verdict, words or grader; --apply puts the new ones into force")


def _ids(evidence: "Evidence", name: str | None, runs: Path) -> list[str]:
    """The runs, or the one run, model or server, that is meant."""
    from gspo_lab.registry import nearest
    from gspo_lab.store.traces import read_subjects

    if name is not None and "/" in name:
        known = list(read_subjects(evidence)["run_id"])
        if not name.startswith("_"):
            known = list(evidence.runs(study_named(evidence, name.partition("/")[0], runs))["run_id"])
        if name not in known:
            raise LabError(
                f"no run, model or server '{name}'{nearest(name, known)}; there are {', '.join(known) or 'none'}"
            )
        return [name]
    return list(evidence.runs(study_named(evidence, name, runs))["run_id"])


def _regrade(
    runs: Path, stored: dict[str, dict[str, list[Any]]], bench: str | None, *, unsafe: bool
) -> "dict[tuple[str, str], list[Regraded]]":
    """Every run's and evaluation's answers, graded again, with progress on stderr."""
    from gspo_lab.evaluation.regrade import Stored, regrade, tasks_of
    from gspo_lab.progress import counting

    out: dict[tuple[str, str], list[Regraded]] = {}
    wanted = {
        (run_id, evaluation): [Stored(*row) for row in rows if bench in (None, row[0])]
        for run_id, evaluations in stored.items()
        for evaluation, rows in evaluations.items()
    }
    with counting("regrade", {"answers": sum(map(len, wanted.values()))}) as advance:
        for (run_id, evaluation), answers in wanted.items():
            if not answers:
                continue
            try:
                tasks = tasks_of(RunFolder(runs / run_id), evaluation, unsafe=unsafe)
            except LabError as error:
                tell(f"left out: {error}")
                advance("answers", len(answers))
                continue
            for name, (task_name, task) in tasks.items():
                of_it = [answer for answer in answers if answer.bench == name]
                out.setdefault((run_id, evaluation), []).extend(
                    regrade(of_it, task_name, task, partial(advance, "answers"))
                )
    return out


def _summary(regraded: "dict[tuple[str, str], list[Regraded]]") -> list[dict[str, Any]]:
    """One row per benchmark and evaluation: how many answers, and how many verdicts turned which way."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    graders: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for (_, evaluation), ones in regraded.items():
        for one in ones:
            key = (one.stored.bench, evaluation)
            old, new = graders.setdefault(key, (set(), set()))
            old.add(str(one.stored.grader))
            if one.grade is not None:
                new.add(str(one.grade.grader))
            counts.setdefault(key, Counter())[_fate(one)] += 1
    return [
        {
            "bench": bench,
            "evaluation": evaluation or "(as it trained)",
            "grader": " → ".join(dict.fromkeys(", ".join(sorted(names)) for names in graders[key] if names)),
            "answers": count.total(),
            **{fate: count[fate] for fate in FATES},
        }
        for key, count in counts.items()
        for bench, evaluation in [key]
    ]


FATES = ("now right", "now wrong", "now not graded", "problem gone")


def _fate(one: "Regraded") -> str:
    if one.grade is None:
        return "problem gone"
    if not one.turned:
        return "as before"
    return {1: "now right", 0: "now wrong", None: "now not graded"}[one.grade.correct]


def _change(run_id: str, evaluation: str, one: "Regraded") -> dict[str, Any]:
    """An answer whose verdict turned, old beside new."""
    old, new = one.stored, one.grade
    assert new is not None
    return {
        "answered": run_id,
        "evaluation": evaluation,
        "step": old.step,
        "problem": old.problem,
        "sample": old.sample,
        "was": _verdict(old.correct, old.reason, old.error),
        "by": old.grader,
        "is": _verdict(new.correct, new.reason, new.error),
        "now by": new.grader,
    }


def _verdict(correct: int | None, reason: str | None, error: str | None) -> str:
    word = {1: "right", 0: "wrong", None: "not graded"}[correct]
    why = error or reason
    return f"{word}: {why}" if why else word
