"""A policy loss from a user's file trains: a copy of a lab's file beside the study makes the lab's own run."""

import shutil
from collections.abc import Callable
from pathlib import Path

from lottery import train

import gspo_lab.objectives.losses.cispo as builtin
from gspo_lab.plan.check import check
from gspo_lab.records import is_time, to_dict
from gspo_lab.study import Run, load_study


def test_a_copy_of_cispo_s_file_trains_the_same(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    shutil.copy(builtin.__file__, tmp_path / "mine.py")
    updates = {}
    for loss in ("cispo", "mine.py:LOSS"):
        memory = train(make_run("gspo", "steps=1", f"objective.policy_loss={loss}"), tmp_path / loss[:4])
        rows = map(to_dict, memory.updates)
        updates[loss] = [{key: value for key, value in row.items() if not is_time(key)} for row in rows]
    assert len(updates["cispo"]) > 1
    assert all(row.get("gate_mean") is not None and row.get("clipped_tokens") is None for row in updates["cispo"])
    assert updates["mine.py:LOSS"] == updates["cispo"]
    check(load_study(tmp_path / "study.toml", overrides=["objective.policy_loss=mine.py:LOSS"]))
