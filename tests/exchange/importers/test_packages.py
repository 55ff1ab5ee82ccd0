"""Logs written by the programs' own packages; tests skip without them.

`nox -s imports` has them all.
"""

import os
import shutil
from pathlib import Path

import pytest
from logs import bring, brought, opened

from gspo_lab.recording.store.records import read_steps, read_updates

NAMES = ("critic/score/mean", "actor/pg_clipfrac")
GSPO = ("--study", "x", "--arm", "gspo", "--seed", 0, "--set", "objective=gspo")
STEPS = range(1, 6)


def logged(folder: Path) -> list[list[float]]:
    """step, reward and clipped share as they came into the database."""
    with opened(folder) as evidence:
        reward = (
            read_steps(evidence, "x", ["reward_mean"])[["step", "reward_mean"]].to_numpy().tolist()
        )
        clipped = read_updates(evidence, "x", ["clip_fraction_tokens"])[
            "clip_fraction_tokens"
        ].tolist()
    return [[*row, share] for row, share in zip(reward, clipped, strict=True)]


def row(step: int) -> dict[str, float]:
    return dict(zip(NAMES, (step / 8, step / 64), strict=True))


EXPECTED = [[step - 1, step / 8, step / 64] for step in STEPS]


def test_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path / "tb"))
    for step in STEPS:
        for name, value in row(step).items():
            writer.add_scalar(name, value, step, walltime=1e9 + step)
    writer.close()
    assert bring(tmp_path, "tensorboard", tmp_path / "tb", "--logged-by", "verl", *GSPO).code == 0
    assert logged(tmp_path) == EXPECTED


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


def test_an_offline_wandb_run_whole_and_cut_off(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    with wandb.init(
        mode="offline",
        dir=str(tmp_path),
        project="p",
        config={"lr": 1e-6},
        settings=wandb.Settings(disable_git=True, console="off", silent=True),
    ) as run:
        for step in STEPS:
            run.log(row(step), step=step)
    wandb.teardown()
    [file] = sorted({path.resolve() for path in tmp_path.rglob("run-*.wandb")})
    assert bring(tmp_path, "wandb", file, "--logged-by", "verl", *GSPO).code == 0
    assert logged(tmp_path) == EXPECTED
    cut = tmp_path / "cut" / file.name
    cut.parent.mkdir()
    shutil.copy(file, cut)
    os.truncate(cut, cut.stat().st_size * 2 // 3)
    said = brought(tmp_path / "cut", "wandb", cut, "--logged-by", "verl", *GSPO)
    assert "cut off or damaged behind record" in said.out
    kept = logged(tmp_path / "cut")
    assert kept == EXPECTED[: len(kept)]


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = pytest.importorskip("trackio.sqlite_storage")
    (tmp_path / "trackio").mkdir()
    for module in (
        storage,
        pytest.importorskip("trackio.utils"),
    ):  # both read the variable when they are imported
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    storage.SQLiteStorage.bulk_log("p", "gspo-s0", [row(step) for step in STEPS], steps=list(STEPS))
    [path] = (tmp_path / "trackio").glob("p*.db")
    options = (
        "--logged-by",
        "verl",
        "--run-pattern",
        "{arm}-s{seed}",
        "--study",
        "x",
        "--set",
        "objective=gspo",
    )
    brought(tmp_path, "trackio", path, *options)
    assert logged(tmp_path) == EXPECTED
