"""`show` and `claims`: print what is recorded, for people and for scripts."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.evaluation_scores import scores
from gspo_lab.cli.output import cell, print_either, print_json, print_lines, print_table
from gspo_lab.cli.shared_options import (
    RUNS,
    Json,
    Runs,
    evidence_of,
    run_named,
    study_named,
    update_lab,
)
from gspo_lab.common.atomic_files import lock_holder
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import CONDUCTOR_LOCK, SUBJECTS
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.registry import nearest
from gspo_lab.recording.runfolder import RunFolder, run_folders

if TYPE_CHECKING:
    from gspo_lab.analysis.claims import Estimate, Result
    from gspo_lab.recording.store import Evidence

EXAMPLES = {
    "show": (
        "gspo-lab show",
        "gspo-lab show quickstart",
        "gspo-lab show my_study/gspo/s0 --json",
        "gspo-lab show _subjects/Qwen3-8B-1a2b3c4d",
    ),
    "claims": (
        "gspo-lab claims",
        "gspo-lab claims moe_stability",
        "gspo-lab claims quickstart --all --json",
    ),
}


STANDING = """\
SELECT studies.study AS study,
       CASE WHEN begun THEN COUNT(DISTINCT arm) ELSE (SELECT COUNT(*) FROM json_each(content, '$.arms')) END AS arms,
       CASE WHEN begun THEN COUNT(DISTINCT seed) ELSE json_array_length(content, '$.seeds') END AS seeds,
       COUNT(run_id) AS runs, COALESCE(SUM(state = 'finished'), 0) AS finished,
       MAX(COALESCE(at, declared_at)) AS latest, question, begun,
       GROUP_CONCAT(DISTINCT json_extract(facts, '$.origin.program')) AS recorded_by,
       IIF(json_extract(content, '$.parent.kind') = 'replication', json_extract(content, '$.parent.study'), NULL) AS replicates,
       IIF(json_extract(content, '$.parent.kind') = 'trial', json_extract(content, '$.parent.study'), NULL) AS trials_of
FROM (SELECT *, EXISTS (SELECT 1 FROM runs WHERE runs.study = studies.study) AS begun FROM studies) AS studies
LEFT JOIN runs ON runs.study = studies.study AND state <> 'missing'
LEFT JOIN (SELECT run_id, MAX(at) AS at FROM statuses GROUP BY run_id) USING (run_id)
GROUP BY studies.study ORDER BY latest, studies.study"""  # noqa: E501
"""Plain rows, because frames take seconds to import.

Before its warm start a study has no runs, but its declaration.
"""


EVALUATED = """\
SELECT run_id AS asked, kind, name, COUNT(evaluation) AS evaluations, GROUP_CONCAT(DISTINCT bench) AS benchmarks
FROM subjects LEFT JOIN evaluations USING (run_id) GROUP BY run_id ORDER BY run_id"""  # noqa: E501


def _list_studies(runs: Path, *, json: bool) -> None:
    """Print the studies, the latest last, and the evaluated models."""
    rows = _rows(runs, STANDING)
    if json:
        print_json(rows)
        return
    from gspo_lab.running.launch.remote_workers import latest_record

    lines = []
    for row in rows:
        home = runs / row["study"]
        finished = f"{row['finished']}/{row['runs']}"
        if not row["begun"]:
            conducted = lock_holder(home / CONDUCTOR_LOCK)
            finished = "none yet: in its warm start or pilots" if conducted else "none begun"
        states = Counter(
            record["state"] for folder in run_folders(home) if (record := latest_record(folder))
        )
        line = {
            "study": row["study"],
            "replicates": row["replicates"],
            "trials of": row["trials_of"],
        }
        line |= {"arms x seeds": f"{row['arms']} x {row['seeds']}", "finished": finished}
        line["on other hosts"] = ", ".join(f"{count} {state}" for state, count in states.items())
        lines.append(line | {"question": row["question"], "recorded by": row["recorded_by"]})
    empty = [key for key in lines[0] if not any(line[key] for line in lines)] if lines else []
    for line, key in product(lines, empty):
        del line[key]
    print_table(lines, empty="no studies yet: gspo-lab init my_study")
    if subjects := _rows(runs, EVALUATED):
        print_table(subjects, empty="", title="\nmodels and servers")


def _rows(runs: Path, query: str) -> list[JsonObject]:
    if (database := update_lab(runs)) is None:
        return []
    from gspo_lab.recording.store.database import explained, reading

    with explained(database), closing(reading(database)) as connection:
        cursor = connection.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help=(
                "A study, a run (my_study/gspo/s0 or gspo/s0), or an evaluated model"
                " (_subjects/NAME). Default: list all studies and models."
            )
        ),
    ] = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """List the studies, or show the runs of a study, one run, or an evaluated model."""
    if name is None:
        _list_studies(runs, json=json)
        return
    with evidence_of(runs) as evidence:
        name = run_named(evidence, name)
        subject, _, run = name.partition("/")
        if subject == SUBJECTS:
            rows = _evaluations(evidence, name)
            print_json(rows) if json else print_table(rows, empty="no evaluation yet")
            return
        study = study_named(evidence, subject, runs)
        rows = _runs(evidence, study, runs, with_clipped=json)
        header = [] if json or run else _study_header(evidence, study)
        idle = _unread_keys(evidence, study, name) if run and not json else set()
    if run:
        recorded = [str(row["run_id"]) for row in rows]
        rows = [row for row in rows if row["run_id"] == name]
        if not rows:
            listed = ", ".join(recorded) or "none"
            raise LabError(f"no run '{name}'{nearest(name, recorded)}; {study} has {listed}")
    if json:
        print_json(rows)
    elif run:
        print_lines(_run_details(rows[0], idle))
    else:
        print_lines(header[:-1])
        print_table(list(map(_line, rows)), empty=f"{study} has no runs")
        print_lines(header[-1:])


def _study_header(evidence: "Evidence", study: str) -> list[str]:
    """The study's question, its answer, the settings chosen on trials, and its replications."""
    from gspo_lab.analysis.matching.tuning_check import choices_text
    from gspo_lab.analysis.readings import Source
    from gspo_lab.report.views.answer import answer_view
    from gspo_lab.report.views.replications import lines
    from gspo_lab.study.tune import budget

    source = Source(evidence, study)
    tune = source.declaration.tune
    tuned = list[str]()
    if tune is not None and tune.trials is not None:
        tuned.append(f"{budget(tune)}, {tune.trials}: {choices_text(tune)}")
    answer = answer_view(source).answer
    answered = [source.declaration.question, answer.said, answer.rests_on]
    return [*answered, *tuned, *lines(source), "", f"Next: {answer.next}"]


def _evaluations(evidence: Any, name: str) -> list[JsonObject]:
    from gspo_lab.recording.store.traces import read_later_evaluations, read_subjects

    subjects = read_subjects(evidence).set_index("run_id")
    if name not in subjects.index:
        raise LabError(
            f"no model or server '{name}'{nearest(name, subjects.index)}; gspo-lab show lists all"
        )
    columns = (
        "bench",
        "evaluation",
        "problems",
        "answers",
        "score",
        "low",
        "high",
        "k",
        "pass_at_k",
        "errors",
        "answered_by",
    )
    subject = {key: subjects.loc[name, key] for key in ("kind", "name")}
    rows = []
    for evaluation in read_later_evaluations(evidence, [name])["evaluation"]:
        for row in scores(evidence, [name], evaluation):
            rows.append(subject | {key: row[key] for key in columns})
    return rows


def _line(row: JsonObject) -> JsonObject:
    from gspo_lab.study.import_origin import Origin

    origin = (row["facts"] or {}).get("origin")
    # An imported log does not say how many steps were planned.
    step = (
        cell(row["steps_done"])
        if origin
        else f"{cell(row['steps_done'])}/{cell(row['steps_planned'])}"
    )
    launched = row["launched"] or {}
    state = launched.get("state", row["state"])
    if (row["state"], state) == (
        "running",
        "queued",
    ):  # it began after the launcher's record was last written
        state = row["state"]
    line = {
        "run": row["run_id"],
        "state": state,
        "step": step,
        "reward": row["reward"],
        **row["scores"],
    }
    line |= {"where": launched["place"]} if launched else {}
    failed = {"not graded": f"{row['grader_errors']:.1%}"} if row["grader_errors"] else {}
    imported = {"recorded by": Origin.from_fact(origin, row["run_id"]).program} if origin else {}
    return line | failed | imported | ({"message": row["message"]} if row["message"] else {})


def _unread_keys(evidence: "Evidence", study: str, run: str) -> set[str]:
    """The settings of a run's arm that its other settings leave without effect."""
    from gspo_lab.analysis.readings import Source
    from gspo_lab.study.schema import KEYS, unread

    arm = Source(evidence, study).declaration.arms.get(run.split("/")[1])
    return set() if arm is None else {key for key in KEYS if unread(key, arm.settings)}


def _run_details(row: JsonObject, idle: set[str]) -> list[str]:
    """A run's state, then each setting that has a value and is read, as a study file writes it."""
    from gspo_lab.study import flat

    settings = dict(row["settings"] or {})
    settings |= {"bench": {bench["name"]: bench for bench in settings.get("bench", [])}}
    values = {
        key: value for key, value in flat(settings).items() if value is not None and key not in idle
    }
    return [
        *(f"{name}: {cell(value)}" for name, value in _line(row).items()),
        "settings:",
        *(f"  {key} = {dumps(value, ensure_ascii=False)}" for key, value in values.items()),
        *(
            ["--json has the rest: settings without effect, packages, device, weights ..."]
            if row["facts"]
            else []
        ),
    ]


def _runs(evidence: Any, study: str, runs: Path, *, with_clipped: bool = True) -> list[JsonObject]:
    """One row per run: state, launcher's record, last reward, share of grader failures, and last
    scores.

    `with_clipped` adds the clipped share. `readings` has the key of each number that is read from
    records.
    """
    from gspo_lab.analysis.readings import Source, read
    from gspo_lab.analysis.readings.answers import benches, evaluations
    from gspo_lab.analysis.readings.curves import grader_errors
    from gspo_lab.analysis.readings.reading import CLIP, CLIP_GRADIENT, LATEST_REWARD
    from gspo_lab.running.launch.remote_workers import latest_record

    source = Source(evidence, study)
    failed = grader_errors(source)
    readings = {"reward": LATEST_REWARD}
    if with_clipped:
        readings |= {"clipped": CLIP, "clipped_gradient": CLIP_GRADIENT}
    values = {name: read(source, reading) for name, reading in readings.items()}
    scores = {bench: evaluations(source, bench) for bench in benches(source)}
    names = ("run_id", "state", "message", "steps_done", "steps_planned")
    rows = []
    for recorded in evidence.run_rows(study):
        run = recorded["run_id"]
        row = {name: recorded[name] for name in names}
        for name, of_runs in values.items():
            row[name] = of_runs[run].value if run in of_runs else None
        row["readings"] = {name: reading.key for name, reading in readings.items()}
        row["grader_errors"] = failed.get(run)
        row["scores"] = {
            bench: float(curves[run][1][-1]) for bench, curves in scores.items() if run in curves
        }
        row["launched"] = latest_record(RunFolder(runs / run))
        for name in ("settings", "facts"):
            row[name] = loads(recorded[name] or "null")
        rows.append(row)
    return rows


JUDGED = "gspo-lab claims STUDY says what a study that was run makes of those that it declares."


def claims(
    study: Annotated[
        str | None, typer.Argument(help="A study. Default: list the library of claims.")
    ] = None,
    all_claims: Annotated[
        bool, typer.Option("--all", help="Evaluate every built-in claim, declared or not.")
    ] = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """List published claims, or evaluate those of a study."""
    if study is None:
        _library(json)
        return
    from gspo_lab.analysis.claims import judge
    from gspo_lab.analysis.readings import Source
    from gspo_lab.analysis.readings.runs import not_counted as not_counted_of
    from gspo_lab.common.reason import sentences
    from gspo_lab.report.views.claims import claim_view
    from gspo_lab.report.views.view import to_json

    with evidence_of(runs) as evidence:
        name = study_named(evidence, study, runs)
        source = Source(evidence, name)
        results = judge(source, every=all_claims)
        not_counted = not_counted_of(source)
    if json:
        print_json(to_json(list(map(claim_view, results)), exact=True))
        return
    if not results:
        typer.echo(
            f"{name} declared no claim before its first step; --all evaluates every built-in one"
        )
    for result in results:
        print_lines(_lines(result))
    if results:
        print_lines(sentences(not_counted))
    if any(not result.declared for result in results):
        print_lines(
            ["claims marked 'descriptive' were not declared before the run; they have no verdict"]
        )


def _library(json: bool) -> None:
    from gspo_lab.analysis.claims import LIBRARY, UNTESTED
    from gspo_lab.report.views.claims import library_entry
    from gspo_lab.report.views.view import to_json

    lines = [f"The {len(LIBRARY)} claims of the literature that a study can declare; {JUDGED}", ""]
    for claim in LIBRARY.values():
        lines.append(f"{claim.id:<22} {claim.grade:<4} {claim.statement}")
        lines.append(f"{'':<27} needs: {'; '.join(claim.presupposed)}")
        lines.append(f"{'':<27} [{claim.source}]")
    lines += [
        "",
        "No study here tests:",
        *(f"{name:<22} {reason}" for name, reason in UNTESTED.items()),
    ]
    print_either(json, to_json(list(map(library_entry, LIBRARY.values()))), lines)


def _lines(result: "Result") -> Iterator[str]:
    mark = "" if result.declared else "  (descriptive)"
    yield f"{result.claim.id}: {result.word}{mark}"
    yield f"    {result.claim.statement} [{result.claim.source}]"
    yield f"    stated: {result.claim.published}"
    yield from (f"    here:   {_estimate(part)}" for part in result.parts)
    yield from (f"    beside: {_estimate(part)}: {part.word}" for part in result.supplementary)
    yield f"    reason: {result.verdict.because}"
    yield from (
        f"    but:    {counter.text} [{counter.source}]" for counter in result.claim.counter
    )
    yield ""


def _estimate(estimate: "Estimate") -> str:
    text = "not measured" if estimate.estimate is None else f"{estimate.estimate:.4g}"
    if estimate.interval is not None:
        text += (
            f", {100 * (1 - estimate.alpha):g} % interval {estimate.interval[0]:.4g} to"
            f" {estimate.interval[1]:.4g}"
        )
    return f"{estimate.name} = {text} (n = {estimate.n}; {estimate.criterion})"
