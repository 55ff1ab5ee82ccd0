"""Logs as programs write them, made by hand where their numbers matter."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calling import Said, gspo_lab
from laboratory import rendered

from gspo_lab.store import ingest

EIGHT = (-0.010, 0.002, 0.008, -0.002, 0.004, 0.026, 0.006, 0.006)
"""Differences of eight paired seeds: mean .0050, sd .01032, t(7; .975) = 2.365, so .0050 +- .0086."""


def bring(folder: Path, *arguments: object) -> Said:
    """`gspo-lab import ARGUMENTS` into `folder`/runs."""
    return gspo_lab("import", *arguments, "--runs", folder / "runs")


def refused(folder: Path, *arguments: object) -> str:
    """The one line by which an import is refused, that left nothing behind and nothing half."""
    before = content(folder / "runs")
    said = bring(folder, *arguments)
    assert said.code == 2, said
    assert said.out == ""
    assert content(folder / "runs") == before
    lines = said.err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def content(folder: Path) -> dict[str, bytes]:
    """Every file in a folder but the database."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("lab.db")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def report(folder: Path, study: str) -> dict[str, Any]:
    """The sections of the study's report, by their ids."""
    ingest(folder / "runs")
    found = json.loads(rendered(folder / "runs" / "lab.db", study).json)
    return found["studies"][study]


def csv_of(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def json_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def eight_seeds(path: Path) -> Path:
    rows = [f"{arm},{seed},{0.5 + (arm == 'gspo') * d:.3f}" for seed, d in enumerate(EIGHT) for arm in ("grpo", "gspo")]
    return csv_of(path, "arm,seed,score", *rows)


def trainer_state(path: Path, rows: Sequence[dict[str, Any]], summary: bool = False) -> Path:
    """What a trainer of transformers leaves; Python writes NaN as it does, bare."""
    path.parent.mkdir(parents=True, exist_ok=True)
    last = [{"step": rows[-1]["step"], "train_loss": 0.1, "train_runtime": 3.0}] if summary else []
    path.write_text(json.dumps({"global_step": rows[-1]["step"], "log_history": [*rows, *last]}))
    return path


def trl_rows(steps: range, reward: float = 0.0, clipped: float = 0.25, **more: Any) -> list[dict[str, Any]]:
    return [
        {"step": step, "loss": 0.5, "reward": reward + step / 100, "clip_ratio/region_mean": clipped, **more}
        for step in steps
    ]
