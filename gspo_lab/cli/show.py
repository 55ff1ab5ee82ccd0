from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.shared_options import RUNS, Json, Runs, evidence_of, run_named, study_named

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

EXAMPLES = (
    "gspo-lab show",
    "gspo-lab show quickstart",
    "gspo-lab show quickstart/gspo/s0 --json",
    "gspo-lab show _subjects/Qwen3-8B-1a2b3c4d",
)

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
    from gspo_lab.cli.output import print_json, print_lines, print_table
    from gspo_lab.errors import LabError
    from gspo_lab.layout import SUBJECTS
    from gspo_lab.registry import nearest

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
    """What a model or server was asked, one row per evaluation, with its scores."""
    from gspo_lab.cli.evaluation_tables import scores
    from gspo_lab.errors import LabError
    from gspo_lab.registry import nearest
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
    from gspo_lab.cli.output import cell
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

    from gspo_lab.cli.output import cell
    from gspo_lab.study import flat

    settings = dict(row["settings"] or {})
    settings |= {"bench": {bench["name"]: bench for bench in settings.get("bench", [])}}
    stands = [f"{name}: {cell(value)}" for name, value in _line(row).items()]
    return [
        *stands,
        "settings:",
        *(
            f"  {key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in flat(settings).items()
            if value is not None
        ),
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
    from gspo_lab.readings.named import CLIP, LATEST_REWARD
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
