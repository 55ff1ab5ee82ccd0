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
from gspo_lab.tasks import build_task
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


@pytest.mark.parametrize("folder", ["", "./", "../studies/", "~/"])
def test_a_task_s_files_lie_beside_the_study_that_a_link_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """The folder of the link holds files of the same names, which are not meant."""
    for name, answer in (("studies", "ours"), ("elsewhere", "theirs")):
        place = tmp_path / name
        place.mkdir()
        (place / "graded.py").write_text("def grade(problem, answer):\n    return 1.0\n")
        problems = [f'{{"prompt": "{i}:", "reference": "{answer}"}}\n' for i in range(5)]
        (place / "p.jsonl").write_text("".join(problems))
    monkeypatch.setenv("HOME", str(tmp_path / "studies"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = tmp_path / "studies" / "where.toml"
    task = f'{{name = "{folder}graded.py:grade", problems = "{folder}p.jsonl"}}'
    path.write_text(TOML.format(model="tiny-qwen3").replace('"addition"', task))
    Path("where.toml").symlink_to(path)
    study = load_study(Path("where.toml"))
    table = study.arms["grpo"].settings.task
    made = build_task(table.name, table.options, study.base)
    assert {problem.reference for problem in made.problems("train")} == {"ours"}


def test_the_schema_names_every_built_in_model() -> None:
    assert set(BUILT_IN_MODELS) == set(EMBEDDED)
