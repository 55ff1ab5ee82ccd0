"""`list`, `show` and `claims`: what is recorded, for people and for scripts."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.output import cell, print_either, print_json, print_lines, print_table
from gspo_lab.cli.shared_options import RUNS, Json, Runs, bring_up_to_date, evidence_of, run_named, study_named
from gspo_lab.errors import LabError
from gspo_lab.registry import nearest

if TYPE_CHECKING:
    from gspo_lab.claims import Estimate, Result
    from gspo_lab.store import Evidence

EXAMPLES = {
    "list": ("gspo-lab list", "gspo-lab list --json"),
    "show": (
        "gspo-lab show",
        "gspo-lab show quickstart",
        "gspo-lab show quickstart/gspo/s0 --json",
        "gspo-lab show _subjects/Qwen3-8B-1a2b3c4d",
    ),
    "claims": ("gspo-lab claims", "gspo-lab claims moe_stability", "gspo-lab claims quickstart --all --json"),
}


STANDING = """\
SELECT studies.study AS study,
       CASE WHEN begun THEN COUNT(DISTINCT arm) ELSE (SELECT COUNT(*) FROM json_each(content, '$.arms')) END AS arms,
       CASE WHEN begun THEN COUNT(DISTINCT seed) ELSE json_array_length(content, '$.seeds') END AS seeds,
       COUNT(run_id) AS runs, COALESCE(SUM(state = 'finished'), 0) AS finished,
       MAX(COALESCE(at, declared_at)) AS latest, question, begun,
       GROUP_CONCAT(DISTINCT json_extract(facts, '$.origin.program')) AS recorded_by,
       json_extract(content, '$.replicates.name') AS replicates,
       json_extract(content, '$.trials_of') AS trials_of
FROM (SELECT *, EXISTS (SELECT 1 FROM runs WHERE runs.study = studies.study) AS begun FROM studies) AS studies
LEFT JOIN runs ON runs.study = studies.study AND state <> 'missing'
LEFT JOIN (SELECT run_id, MAX(at) AS at FROM statuses GROUP BY run_id) USING (run_id)
GROUP BY studies.study ORDER BY latest, studies.study"""
"""Plain rows, not frames: this command answers at once. Before its warm start is made a study has no runs: then what
it declares is told."""


ASKED = """\
SELECT run_id AS asked, kind, name, COUNT(evaluation) AS evaluations, GROUP_CONCAT(DISTINCT bench) AS benchmarks
FROM subjects LEFT JOIN evaluations USING (run_id) GROUP BY run_id ORDER BY run_id"""


def list_studies(runs: Runs = RUNS, json: Json = False) -> None:
    """List studies (the latest last) and evaluated models."""
    rows = _rows(runs, STANDING)
    if json:
        print_json(rows)
        return
    shown = [
        {
            "study": row["study"],
            "replicates": row["replicates"],
            "trials of": row["trials_of"],
            "arms x seeds": f"{row['arms']} x {row['seeds']}",
            "finished": f"{row['finished']}/{row['runs']}" if row["begun"] else _before_its_runs(runs / row["study"]),
            "on other hosts": _elsewhere(runs / row["study"]),
            "question": row["question"],
            "recorded by": row["recorded_by"],
        }
        for row in rows
    ]
    empty = {
        key for key in ("replicates", "trials of", "on other hosts", "recorded by") if not any(r[key] for r in shown)
    }
    shown = [{key: value for key, value in row.items() if key not in empty} for row in shown]
    print_table(shown, empty="no studies yet: gspo-lab run studies/quickstart.toml")
    if asked := _rows(runs, ASKED):
        print_table(asked, empty="", title="\nmodels and servers")


def _before_its_runs(home: Path) -> str:
    from gspo_lab.files import holder
    from gspo_lab.layout import CONDUCTOR_LOCK

    return "none yet: in its warm start or pilots" if holder(home / CONDUCTOR_LOCK) else "none begun"


def _elsewhere(home: Path) -> str:
    """How many of a study's runs are queued, running and lost where launchers have put them."""
    from gspo_lab.launch.afar import whereabouts
    from gspo_lab.runfolder import run_folders

    told = [found["state"] for folder in run_folders(home) if (found := whereabouts(folder))]
    return ", ".join(f"{count} {state}" for state, count in Counter(told).items())


def _rows(runs: Path, query: str) -> list[dict[str, Any]]:
    database = bring_up_to_date(runs)
    if database is None:
        return []
    from gspo_lab.store.database import explained, reading

    with explained(database), closing(reading(database)) as connection:
        cursor = connection.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


STEPS = ("steps_done", "steps_planned")


def show(
    name: Annotated[
        str | None,
        typer.Argument(help="A study, a run (quickstart/gspo/s0 or gspo/s0), or an evaluated model (_subjects/NAME)."),
    ] = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Show the runs of a study, one run, or an evaluated model.

    Default: the latest study.
    """
    from gspo_lab.layout import SUBJECTS

    with evidence_of(runs) as evidence:
        name = name and run_named(evidence, name)
        named, _, rest = (name or "").partition("/")
        if named == SUBJECTS:
            rows = _evaluations(evidence, str(name))
            print_json(rows) if json else print_table(rows, empty="no evaluation yet")
            return
        study = study_named(evidence, named or None, runs)
        rows = _runs(evidence, study, runs, every=json)
        told = [] if json or rest else _told(evidence, study)
    if rest:
        known = [str(row["run_id"]) for row in rows]
        rows = [row for row in rows if row["run_id"] == name]
        if not rows:
            raise LabError(f"no run '{name}'{nearest(str(name), known)}; {study} has {', '.join(known) or 'none'}")
    if json:
        print_json(rows)
    elif rest:
        print_lines(_whole(rows[0]))
    else:
        print_lines(told[:-1])
        print_table([_line(row) for row in rows], empty=f"{study} has no runs")
        print_lines(told[-1:])


def _told(evidence: "Evidence", study: str) -> list[str]:
    """The study's question, its answer and what its arms chose on trials; then its predecessors and replications, and
    which words held, nothing where it was run once."""
    from gspo_lab.claims import answer
    from gspo_lab.matching.tuned import choices
    from gspo_lab.readings import Source
    from gspo_lab.report.sections.replications import lines
    from gspo_lab.study.tune import budget
    from gspo_lab.words import lines as answer_lines

    found = Source(evidence, study)
    tune = found.declaration.tune
    tuned = [f"{budget(tune)}, {tune.trials}: {choices(tune)}"] if tune is not None and tune.trials is not None else []
    *answered, next_command = answer_lines(answer(found))
    return [found.declaration.question, *answered, *tuned, *lines(found), "", next_command]


def _evaluations(evidence: Any, name: str) -> list[dict[str, Any]]:
    from gspo_lab.cli.evaluate import scores
    from gspo_lab.store.traces import read_later_evaluations, read_subjects

    subjects = read_subjects(evidence).set_index("run_id")
    if name not in subjects.index:
        raise LabError(f"no model or server '{name}'{nearest(name, subjects.index)}; gspo-lab list shows all")
    kept = (
        *("bench", "evaluation", "problems", "answers", "score", "low", "high"),
        *("k", "pass_at_k", "errors", "answered_by"),
    )
    return [
        {"kind": subjects.loc[name, "kind"], "name": subjects.loc[name, "name"], **{key: row[key] for key in kept}}
        for evaluation in read_later_evaluations(evidence, [name])["evaluation"]
        for row in scores(evidence, [name], evaluation)
    ]


def _line(row: dict[str, Any]) -> dict[str, Any]:
    from gspo_lab.study.origin import Origin

    origin = (row["facts"] or {}).get("origin")
    # A log ends where it ends: how many steps were planned, it does not say.
    step = cell(row["steps_done"]) if origin else f"{cell(row['steps_done'])}/{cell(row['steps_planned'])}"
    asked_for = row["launched"] or {}
    state = asked_for.get("state", row["state"])
    if (row["state"], state) == ("running", "queued"):  # it has begun, and no conductor was there to see it
        state = row["state"]
    line = {"run": row["run_id"], "state": state, "step": step, "reward": row["reward"], **row["scores"]}
    line |= {"where": asked_for["place"]} if asked_for else {}
    failed = {"not graded": f"{row['grader_errors']:.1%}"} if row["grader_errors"] else {}
    imported = {"recorded by": Origin.told(origin, row["run_id"]).program} if origin else {}
    return line | failed | imported | ({"message": row["message"]} if row["message"] else {})


def _whole(row: dict[str, Any]) -> list[str]:
    """A run for people: where it stands, then every setting that has a value, as a study file would say it."""
    import json

    from gspo_lab.study import flat

    settings = dict(row["settings"] or {})
    settings |= {"bench": {bench["name"]: bench for bench in settings.get("bench", [])}}
    known = {key: value for key, value in flat(settings).items() if value is not None}
    return [
        *(f"{name}: {cell(value)}" for name, value in _line(row).items()),
        "settings:",
        *(f"  {key} = {json.dumps(value, ensure_ascii=False)}" for key, value in known.items()),
        *(["--json has the rest: packages, device, weights ..."] if row["facts"] else []),
    ]


def _runs(evidence: Any, study: str, runs: Path, *, every: bool = True) -> list[dict[str, Any]]:
    """One row per run: where it stands, by its launcher too where that is on other hosts, its last step's reward, the
    share of responses that the grader failed on, and the scores of its last evaluation; with `every` its clipped share
    too. `readings` has the key of each number that is read from its records."""
    import json

    from gspo_lab.launch.afar import whereabouts
    from gspo_lab.readings import Source, read
    from gspo_lab.readings.answers import benches, evaluations
    from gspo_lab.readings.curves import grader_errors
    from gspo_lab.readings.reading import CLIP, LATEST_REWARD
    from gspo_lab.runfolder import RunFolder

    of = Source(evidence, study)
    failed = grader_errors(of)
    named = {"reward": LATEST_REWARD, **({"clipped": CLIP} if every else {})}
    values = {name: read(of, reading) for name, reading in named.items()}
    scores = {bench: evaluations(of, bench) for bench in benches(of)}
    frame = evidence.runs(study).astype(object)
    frame = frame.where(frame.notna(), None)
    out = []
    for row in frame.to_dict("records"):
        run_id = row["run_id"]
        out.append(
            {
                **{name: row[name] for name in ("run_id", "state", "message")},
                **{name: None if (count := row[name]) is None else int(count) for name in STEPS},
                **{name: of_runs[run_id].value for name, of_runs in values.items()},
                "readings": {name: reading.key for name, reading in named.items()},
                "grader_errors": failed.get(run_id),
                "scores": {bench: float(own[run_id][1][-1]) for bench, own in scores.items() if run_id in own},
                "launched": whereabouts(RunFolder(runs / run_id)),
                **{name: json.loads(row[name] or "null") for name in ("settings", "facts")},
            }
        )
    return out


JUDGED = "gspo-lab claims STUDY says what a study that was run makes of those that it declares."


def claims(
    study: Annotated[str | None, typer.Argument(help="A study. Default: list the library of claims.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Evaluate every built-in claim, declared or not.")] = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """List published claims, or evaluate those of a study."""
    if study is None:
        _library(json)
        return
    from gspo_lab.claims import judge
    from gspo_lab.readings import Source
    from gspo_lab.readings.runs import not_counted as not_counted_of
    from gspo_lab.words import claim_to_json, sentences

    with evidence_of(runs) as evidence:
        name = study_named(evidence, study, runs)
        found = Source(evidence, name)
        results, not_counted = judge(found, every=every), not_counted_of(found)
    if json:
        print_json([claim_to_json(result) for result in results])
        return
    if not results:
        typer.echo(f"{name} declares no claim; --all evaluates every built-in one")
    for result in results:
        print_lines(_lines(result))
    if results:
        print_lines(sentences(not_counted))
    if any(not result.declared for result in results):
        print_lines(["claims marked 'descriptive' were not declared before the run; they have no verdict"])


def _library(json: bool) -> None:
    from gspo_lab.claims import LIBRARY, UNTESTED

    lines = [f"The {len(LIBRARY)} claims of the literature that a study can declare; {JUDGED}", ""]
    for claim in LIBRARY.values():
        needs = f"needs: {'; '.join(claim.as_data()['needs'])}"
        lines += (
            f"{claim.id:<22} {claim.grade:<4} {claim.statement}",
            f"{'':<27} {needs}",
            f"{'':<27} [{claim.source}]",
        )
    lines += ["", "No study here tests:", *(f"{name:<22} {lacking}" for name, lacking in UNTESTED.items())]
    print_either(json, [claim.as_data() for claim in LIBRARY.values()], lines)


def _lines(result: "Result") -> Iterator[str]:
    from gspo_lab.words import because, short

    mark = "" if result.declared else "  (descriptive)"
    yield f"{result.claim.id}: {short(result.verdict)}{mark}"
    yield f"    {result.claim.statement} [{result.claim.source}]"
    yield f"    source: {result.claim.value}"
    yield from (f"    here:   {_estimate(one)}" for one in result.parts)
    yield from (f"    beside: {_estimate(one)}: {one.word}" for one in result.also)
    yield f"    reason: {because(result.verdict)}"
    yield from (f"    but:    {counter.text} [{counter.source}]" for counter in result.claim.counter)
    yield ""


def _estimate(one: "Estimate") -> str:
    shown = "not measured" if one.estimate is None else f"{one.estimate:.4g}"
    if one.interval is not None:
        shown += f", {100 * (1 - one.alpha):g} % interval {one.interval[0]:.4g} to {one.interval[1]:.4g}"
    return f"{one.name} = {shown} (n = {one.n}; {one.criterion})"
