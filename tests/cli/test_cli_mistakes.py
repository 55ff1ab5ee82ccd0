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
def test_run_and_plan_refuse_alike(
    here: Path, options: tuple[str, ...], told: str, commands: int
) -> None:
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
        ("update.minibatches=1", "arm.grpo and arm.gspo differ only in"),
        ("update.minibatches=3", "cannot be split into update.minibatches = 3 equal parts"),
        ("--set nonsense", "write it as --set table.key=value"),
        ("model=tiny-qwen4", "no model 'tiny-qwen4' (did you mean 'tiny-qwen3'?)"),
        ("model=no/such/folder", "no model folder 'no/such/folder'"),
        ("model=hollow", "hollow; wanted model.safetensors"),
        ("model=empty", "empty; is it the folder that save_pretrained"),
        (
            "update.lora_rank=129",
            (
                "update.lora_rank = 129: the layers of 'tiny-qwen3' are 128 wide, and an adapter of"
                " a higher rank has more"
            ),
        ),
        (
            "update.learning_rate=1e300",
            "update.learning_rate: input should be less than or equal to 100",
        ),
        ("seeds=1000000000000000000000000000000", "seeds are more than the 10000 that make sense"),
        ("model=mute", "no tokenizer in the model folder "),
        ("task=adition", "unknown task 'adition' (did you mean 'addition'?)"),
        (
            "task=aime24",
            "task 'aime24' is a benchmark and has no problems to train on; train on gsm8k",
        ),
        ("task.digts=2", "unknown option 'digts' (did you mean 'digits'?)"),
        ("task=mine.py:grade", "no file"),
        ("routing_replay=old-policy", "'tiny-qwen3' is dense"),
        ("rollout.sampler=vlm", "unknown sampler 'vlm' (did you mean 'vllm'?)"),
        (
            "rollout.sampler=vllm routing_replay=rollout device=cpu",
            (
                "'vllm' does not tell them on a CPU (that needs its model runner V2, and that"
                " Triton); use"
            ),
        ),
        pytest.param(
            "rollout.sampler=vllm",
            "rollout.sampler = 'vllm' needs vLLM: pip install 'gspo-lab[vllm]' where there is"
            " a GPU",
            marks=pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed"),
        ),
        (
            "rollout.sampler=os:system",
            "no sampler: it is called as system(model, tokenizer, dtype, rows) (",
        ),
        ("rollout.sampler=os:sep", "the sampler 'os:sep' is str, not a class or a function"),
        ("rollout.sampler=collections:namedtuple", "'collections:namedtuple' is no sampler: it is"),
        ("rollout.sampler=own.py:Half", "'own.py:Half' is no sampler: it has no pause, facts"),
        ("rollout.sampler=own.py:Gone", "'own.py' has no 'Gone'"),
        (
            "rollout.sampler=bad.py:Any",
            "importing it failed with ZeroDivisionError: division by zero",
        ),
        ("engine=os:system", "engine 'os:system': the option 'command' is missing; set it"),
        ("engine=own.py:Half", "engine 'own.py:Half': the option 'model' is missing; set it"),
        ("engine=builtins:dict", "the engine 'builtins:dict' is no engine: it has no train"),
        ("engine=no.such:Engine", "cannot be imported: no module named 'no'"),
        (
            "task=builtins:dict",
            "task 'builtins:dict': making it failed with ValueError: no signature",
        ),
        ("--arms grpo,gpso", "--arms: no arm 'gpso' (did you mean 'gspo'?)"),
        ("--arms ,", "--arms: names no arm"),
        ("--seeds two", "--seeds two: a count (5) or a list (0,1,7) of whole numbers"),
        (
            "--seeds 0",
            "--seeds 0: a count lies from 1 to 10000; name one seed with --seed 0",
        ),
        ("--seeds -3", "--seeds -3: a count lies from 1 to 10000"),
        ("--seeds 1,1", "seeds: [1, 1] holds a seed twice"),
        ("--seeds 3,-1", "seeds: need at least one, all whole numbers >= 0"),
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
    here: Path, command: tuple[str, ...]
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
    here: Path, damage: str | None, told: str
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
