"""`gspo-lab init`: a study of one's own, written ready to run."""

from pathlib import Path

import pytest
from calling import gspo_lab

from gspo_lab.study.load import load_study
from gspo_lab.study.new_study import write_study

QUICKSTART = Path(__file__).parents[2] / "studies" / "quickstart.toml"


def test_the_study_that_init_writes_is_planned_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = gspo_lab("init", "mine", "--model", "tiny-qwen3", "--task", "own")
    assert written.code == 0, written.err
    assert "next: gspo-lab plan mine/mine.toml" in written.out
    ran = gspo_lab("run", "mine", "--steps", "2", "--seeds", "1", "--set", "warm_start.steps=5")
    assert ran.code == 0, ran.err
    assert Path("reports/mine.html").is_file()


@pytest.mark.parametrize("task", ["own", "addition", "my_grader.py:grade"])
@pytest.mark.parametrize("model", ["tiny-olmoe", "Qwen/Qwen3-0.6B", "trained"])
def test_init_writes_a_valid_study_for_every_kind_of_model_and_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, task: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trained").mkdir()
    write_study(Path("a/b"), model, task)
    study = load_study(Path("a/b/b.toml"))
    settings = study.arms["gspo"].settings
    assert settings.task.name == ("grader.py:grade" if task == "own" else task)
    assert settings.model == ("../../trained" if model == "trained" else model)
    assert (settings.warm_start.steps > 0) == (model == "tiny-olmoe")


def test_init_keeps_files_that_are_there_and_names_unknown_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("problems.jsonl").write_text("mine")
    refused = gspo_lab("init", ".")
    assert refused.code == 2
    assert "problems.jsonl exists" in refused.err
    assert not list(Path().glob("*.toml"))
    unknown = gspo_lab("init", "b", "--task", "aditon")
    assert unknown.code == 2
    assert "did you mean 'addition'" in unknown.err


@pytest.mark.parametrize("folder", ["/proc/x", "/sys/x/y", "problems.jsonl/x", "problems.jsonl"])
def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("problems.jsonl").write_text("mine")
    refused = gspo_lab("init", folder)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "name another one, gspo-lab init FOLDER" in refused.err


def test_the_quickstart_beside_it_is_the_repository_s() -> None:
    template = Path(__file__).parents[2] / "gspo_lab" / "study" / "templates" / "quickstart.toml"
    assert template.read_text() == QUICKSTART.read_text()
