"""What the user can mend is one clear line, exit code 2, and nothing left behind."""

import errno
import json
import os
import re
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from calling import Said, gspo_lab
from case_tables import cases
from finished_runs import STUDY, leave_runs, tree, write_study

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalText, Strings
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.launch import LAUNCHERS
from gspo_lab.tasks.evaluation.evaluated_models import run_subjects
from gspo_lab.tasks.grader_dry_run import first_failure


def refused(said: Said) -> list[str]:
    """The lines of a refusal, without the program's name: what is wrong, then perhaps details."""
    assert said.code == 2, said
    assert said.out == ""
    first, *details = said.err.splitlines()
    assert first.startswith("gspo-lab: ")
    assert all(line.startswith("  ") for line in details)
    assert "Traceback" not in said.err
    return [first.removeprefix("gspo-lab: "), *(line.strip() for line in details)]


HALF = """
class Half:
    def __init__(self, model, tokenizer, dtype, rows): pass
    def sample(self, requests, sampling, *, routes=False): pass
    def refresh(self): pass
"""


LAUNCHER = (
    f"unknown launcher 'loca' (did you mean 'local'?); known: {', '.join(sorted(LAUNCHERS))}, or"
    " 'module:attribute', 'file.py:attribute'"
)


@pytest.mark.parametrize(
    ("options", "told", "commands"),
    [
        (("--on", "loca"), re.escape(LAUNCHER), 3),
        (
            ("--set", "arm.gspo.dual_clip=3.0"),
            (
                r".*\[waive\] with dual-clip-one-arm = 'the reason'.*\nerror: dual-clip-one-arm:"
                r" (.|\n)*"
            ),
            2,  # `plan` shows the arms beside the error
        ),
        (
            ("--set", "update.lerning_rate=1"),
            r"(.|\n)*update.lerning_rate: unknown key \(did you mean.*",
            3,
        ),
        (("--accept-mismatch", " "), "--accept-mismatch: give the reason in words.*", 2),
    ],
    ids=["launcher", "little", "key", "reason"],
)
def test_run_and_plan_refuse_alike(here: Path, options: Strings, told: str, commands: int) -> None:
    """Mistakes in commands: an unknown launcher or key, a blank reason, a weak comparison.

    A plan does not take the blank reason.
    """
    path = write_study(here)
    before = tree(here)
    for command, *more in (("run",), ("run", "--dry-run"), ("plan",))[:commands]:
        assert re.fullmatch(told, "\n".join(refused(gspo_lab(command, path, *more, *options))))
        assert tree(here) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        *cases(__file__, "a_wrong_wish_is_refused_before_anything_is_written"),
        pytest.param(
            "rollout.sampler=vllm",
            "rollout.sampler = 'vllm' needs vLLM: pip install 'gspo-lab[vllm]' where there is"
            " a GPU",
            marks=pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed"),
        ),
    ],
)
def test_a_wrong_wish_is_refused_before_anything_is_written(
    here: Path, arguments: str, told: str
) -> None:
    path = write_study(here)
    for folder in ("hollow", "mute", "empty"):
        (here / folder).mkdir()
        if folder != "empty":
            (here / folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (here / "mute" / "pytorch_model.bin").write_bytes(b"weights")
    (here / "own.py").write_text(HALF)
    (here / "bad.py").write_text("1 / 0\n")
    before = tree(here)
    words = [
        word for part in arguments.split() for word in (["--set", part] if "=" in part else [part])
    ]
    lines = refused(gspo_lab("run", path, *words))
    assert told in lines[-1]
    assert len(lines) <= 2
    assert tree(here) == before


@pytest.mark.parametrize(
    ("body", "told"),
    [("1 / 0", "ZeroDivisionError"), ("import time; time.sleep(600)", "after 1 s")],
)
def test_check_refuses_a_grader_that_raises_or_hangs(
    here: Path, body: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(first_failure, seconds=1.0)
    monkeypatch.setattr("gspo_lab.running.plan.preflight.first_failure", impatient)
    (here / "mine.py").write_text(f"def grade(problem, answer): {body}\n")
    problems = [json.dumps({"prompt": f"{n}+1=", "reference": str(n + 1)}) for n in range(40)]
    (here / "p.jsonl").write_text("\n".join(problems))
    mine = [write_study(here), "--set", "task.name=mine.py:grade", "--set", "task.problems=p.jsonl"]
    began = time.monotonic()
    said = gspo_lab("plan", *mine)
    assert (said.code, time.monotonic() - began < 60) == (2, True)
    (line,) = [line for line in said.out.splitlines() if line.startswith("error: grader-fails: ")]
    assert told in line


@pytest.mark.parametrize(
    ("option", "sd"),
    [("--json", "inf"), ("--json", "nan"), ("--advise", "-1"), ("--advise", "1.6")],
)
def test_what_can_be_no_sd_of_scores_is_refused(here: Path, sd: str, option: str) -> None:
    (only,) = refused(gspo_lab("plan", write_study(here), option, f"--sd={sd}"))
    assert only.startswith(f"--sd {sd}: differences of scores have an sd from 0 to 1.5")


@pytest.mark.parametrize(
    ("arguments", "told"),
    cases(__file__, "advice_that_cannot_be_given_is_refused_before_any_pilot"),
)
def test_advice_that_cannot_be_given_is_refused_before_any_pilot(
    here: Path, arguments: list[str], told: str
) -> None:
    write_study(here).rename(here / "mine.toml")
    before = tree(here)
    lines = refused(gspo_lab("plan", "--advise", *arguments))
    assert told in " ".join(lines)
    assert tree(here) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STUDY + "[arm.gspo]\n", "not valid TOML: "),
        (STUDY + "[arm.empty]\n", "arm.empty: this table changes nothing"),
        (
            STUDY + '[arm.twice]\nobjective = "gspo"\n',
            "arm.twice: changes nothing that arm.gspo does not have too",
        ),
        (STUDY.replace("steps", "stpes"), "stpes: unknown key (did you mean 'steps'?)"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_written(
    here: Path, text: str, told: str
) -> None:
    path = here / "wrong.toml"
    path.write_text(text.format(name="wrong", seeds=1))
    for command in ("run", "plan"):
        lines = refused(gspo_lab(command, path))
        assert told in lines[-1]
        assert len(lines) <= 2
    assert tree(here) == ["wrong.toml"]


READERS = [
    ("report",),
    ("show",),
    ("show", "toy"),
    ("eval", "--bench", "addition"),
    ("export",),
    ("records", "rebuild"),
]


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_runs_folder_that_is_empty_or_not_there_is_told_and_left_so(
    here: Path, command: Strings
) -> None:
    (only,) = refused(gspo_lab(*command, "--runs", "nowhere"))
    assert "nowhere" in only
    assert tree(here) == []
    if command[0] in ("show", "records"):
        return
    (here / "runs").mkdir()
    (only,) = refused(gspo_lab(*command))
    assert re.search("gspo-lab (init|run)", only), "it says which command helps"
    assert tree(here) == ["runs"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    cases(__file__, "what_was_never_run_is_told"),
)
def test_what_was_never_run_is_told(here: Path, arguments: list[str], told: str) -> None:
    leave_runs(write_study(here), here / "runs")
    (only,) = refused(gspo_lab(*arguments))
    assert told in only
    assert not (here / "reports").exists()
    assert not (here / "export").exists()


@pytest.mark.parametrize(
    "words", ["rnu", "run", "list --jsn", "run x.toml --steps 0", "eval", "show a b", "--no"]
)
def test_words_that_are_no_command_are_one_line(words: str) -> None:
    (line,) = refused(gspo_lab(*words.split()))
    assert line.endswith(" --help")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (None, "is missing: restore it"),
        ("{", "is damaged (Expecting property name"),
        ("[]", "is damaged (no JSON object): restore it"),
        ("{}", "is damaged (KeyError: 'settings'): restore it"),
    ],
)
def test_a_runs_lost_or_damaged_declaration_is_told(
    here: Path, damage: OptionalText, told: str
) -> None:
    """Of any run, the last one too."""
    leave_runs(write_study(here), here / "runs")
    assert gspo_lab("show").code == 0
    path = here / "runs/seen/gspo/s1/run.json"
    if damage is None:
        path.unlink()
    else:
        path.write_text(damage)
    with pytest.raises(LabError) as refusal:
        run_subjects(RunFolder(path.parent))
    assert told in str(refusal.value)
    said = gspo_lab("eval", "--bench", "addition", "--run", "seen/gspo/s1")
    assert (said.code, said.out) == (2, "")
    *_, last = said.err.splitlines()  # before it, that the database cannot be brought up to date
    wanted = "no run 'seen/gspo/s1'" if damage is None else "runs/seen/gspo/s1/run.json is damaged"
    assert last.startswith(f"gspo-lab: {wanted}")
    assert "Traceback" not in said.err


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ELOOP])
def test_what_the_system_refuses_is_one_line(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError(code, os.strerror(code), "/data/lab.db")

    monkeypatch.setattr("gspo_lab.cli.command", refused)
    said = gspo_lab("show")
    assert (said.code, said.err) == (
        2,
        f"gspo-lab: /data/lab.db cannot be used: {os.strerror(code)}\n",
    )
