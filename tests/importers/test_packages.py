"""Logs written by verl's own package, skipped where it is absent. `tests/exporters` has the others."""

from pathlib import Path

import pytest
from logs import bring, opened

from gspo_lab.store.records import read_steps, read_updates

NAMES = ("critic/score/mean", "actor/pg_clipfrac")
GSPO = ("--study", "x", "--arm", "gspo", "--seed", 0, "--set", "objective=gspo")
STEPS = range(1, 6)


def logged(folder: Path) -> list[list[float]]:
    """step, reward and clipped share as they came into the database."""
    with opened(folder) as evidence:
        reward = read_steps(evidence, "x", ["reward_mean"])[["step", "reward_mean"]].to_numpy().tolist()
        clipped = read_updates(evidence, "x", ["clip_fraction_tokens"])["clip_fraction_tokens"].tolist()
    return [[*row, share] for row, share in zip(reward, clipped, strict=True)]


def row(step: int) -> dict[str, float]:
    return dict(zip(NAMES, (step / 8, step / 64), strict=True))


EXPECTED = [[step - 1, step / 8, step / 64] for step in STEPS]


def test_verl_s_file_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl.utils.tracking")
    from verl.utils.logger.aggregate_logger import concat_dict_to_str
    from verl.utils.tracking import FileLogger

    path = tmp_path / "log.jsonl"
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(path))
    logger = FileLogger("project", "experiment")
    for step in STEPS:
        logger.log(row(step), step)
    logger.finish()
    assert bring(tmp_path, "verl", path, *GSPO).code == 0
    assert logged(tmp_path) == EXPECTED
    lines = [f"(TaskRunner pid=7) {concat_dict_to_str(row(step), step)}" for step in STEPS]
    (tmp_path / "console.log").write_text("\n".join(["Training begins", *lines]) + "\n")
    assert "x/gspo/s0: unchanged" in bring(tmp_path, "verl", tmp_path / "console.log", *GSPO).out
