"""All paths of a study start from the folder of its file, wherever a command is typed."""

import shutil
from pathlib import Path

import pytest
from calling import lab_error

pytest.importorskip("torch")  # small_models makes models
from small_models import small_start

from gspo_lab.running.plan.preflight import preflight
from gspo_lab.study import Run, load_study
from gspo_lab.study.schema import BUILT_IN_MODELS
from gspo_lab.training.models.check import EMBEDDED

TOML = """
question = "Where is the model?"
model = "{model}"
task = "addition"

[arm.grpo]
objective = "grpo"
"""


def test_a_relative_model_lies_beside_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "studies"
    start = small_start("tiny-qwen3") or Path()
    for name in ("tiny-mine", "tiny-qwen3"):
        shutil.copytree(start, beside / name)
    path = beside / "where.toml"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(beside))
    Path("link.toml").symlink_to(path)

    def study(model: str) -> Run:
        path.write_text(TOML.format(model=model))
        return load_study(Path("link.toml")).runs()[0]

    for (
        name
    ) in f"tiny-mine ./tiny-mine ../studies/tiny-mine ~/tiny-mine {beside}/tiny-mine".split():
        run = study(name)
        assert run.model == str(beside / "tiny-mine")
        assert run.to_json()["settings"]["model"] == name, "records keep what the study says"
    for name in ("tiny-qwen3", "Qwen/Qwen3-0.6B"):
        assert study(name).model == name, "a built-in model keeps its name, and so does the Hub's"
    shutil.move(beside / "tiny-mine", elsewhere / "tiny-mine")
    study("tiny-mine")
    with lab_error(r"write model = '\.\./elsewhere/tiny-mine'"):
        preflight(load_study(path), on_this_machine=False)


def test_the_schema_names_every_built_in_model() -> None:
    assert set(BUILT_IN_MODELS) == set(EMBEDDED)
