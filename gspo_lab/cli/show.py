from typing import Annotated, Any

import typer

from gspo_lab.cli.options import RUNS, Json, Runs, evidence_of

EXAMPLES = "Examples:  gspo-lab show   |   gspo-lab show quickstart   |   gspo-lab show quickstart/gspo/s0 --json"


def show(
    name: Annotated[str | None, typer.Argument(help="A study, or a run such as quickstart/gspo/s0.")] = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Show where a study's runs stand, or one run whole; the latest study if none is named."""
    from gspo_lab.cli.output import print_json, print_table
    from gspo_lab.errors import LabError
    from gspo_lab.registry import nearest

    with evidence_of(runs) as evidence:
        studies = evidence.studies()
        if not studies:
            raise LabError(f"{runs} holds no study yet: gspo-lab run studies/quickstart.toml")
        study, _, rest = (name or studies[-1]).partition("/")
        rows = _runs(evidence, study)
        if rest:
            found = [row for row in rows if row["run_id"] == name]
            if not found:
                known = [str(row["run_id"]) for row in rows]
                raise LabError(f"no run '{name}'{nearest(str(name), known)}; {study} has {', '.join(known)}")
            rows = found
    if json:
        print_json(rows)
    elif rest:
        for key, value in rows[0].items():
            typer.echo(f"{key}: {value}")
    else:
        wide = ("settings", "facts")
        print_table([{k: v for k, v in row.items() if k not in wide} for row in rows], empty="no runs")


def _runs(evidence: Any, study: str) -> list[dict[str, Any]]:
    """One row per run: where it stands, its last step's reward and the scores of its last evaluation."""
    import json

    frame = evidence.runs(study)
    last = evidence.steps(study, ["reward_mean"]).groupby("run_id").tail(1).set_index("run_id")["reward_mean"]
    scores = evidence.scores(study).sort_values("step").groupby(["run_id", "bench"]).tail(1)
    out = []
    for row in frame.to_dict("records"):
        run_id = row["run_id"]
        mine = scores[scores["run_id"] == run_id]
        out.append(
            {
                "run_id": run_id,
                "state": row["state"],
                "step": f"{row['steps_done']}/{row['steps_planned']}",
                "reward": float(last[run_id]) if run_id in last.index else None,
                **{bench: float(score) for bench, score in zip(mine["bench"], mine["score"], strict=True)},
                "message": row["message"] or "",
                "settings": json.loads(row["settings"] or "null"),
                "facts": json.loads(row["facts"] or "null"),
            }
        )
    return out
