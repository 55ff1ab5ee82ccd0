"""Records from real child processes.

Good lines, bad ones, other words, a failure, one that is left early, and a program that ends with
its worker.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.common.errors import Crashed
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.training.engines.child import Child
from gspo_lab.training.engines.external.attempt import WORKER

STEP = '{"kind": "step", "step": 0, "prompts": 4, "responses": 8, "reward_mean": 0.5}'
UPDATE = (
    '{"kind": "update", "step": 0, "minibatch": 0, "loss": 1, "would_clip_fraction_tokens_gspo":'
    " 0.25}"
)


def child(program: str) -> Child:
    return Child([sys.executable, "-u", "-c", program])


def test_lines_become_records_and_other_words_go_to_the_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    would_clip: JsonObject = {"would_clip_fraction_tokens_gspo": 0.25}  # a column of a ratio rule
    program = (
        f"import sys; print('loading'); print('{UPDATE}'); print('slow', file=sys.stderr);"
        f" print('{STEP}')"
    )
    with child(program) as process:
        assert list(process) == [
            UpdateRecord(step=0, minibatch=0, loss=1.0, **would_clip),
            StepRecord(step=0, prompts=4, responses=8, reward_mean=0.5),
        ]
    assert capfd.readouterr().out == "loading\nslow\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"kind": "step", "step": 0', "line 3: Expecting"),
        ('{"kind": "stride", "step": 0}', "line 3: its kind is 'stride', not one of step, update"),
        (
            '{"kind": "step", "step": 0, "prompts": 4, "responses": 8, "reward_men": 1}',
            r"did you mean 'reward_mean'\?",
        ),
        ('{"kind": "step", "prompts": 4}', "line 3: step: field required"),
        (
            '{"kind": "update", "step": 0, "minibatch": 0, "loss": "low"}',
            "loss: input should be a valid number",
        ),
        ('[{"kind": "step"}]', "line 3: step: field required"),
        (
            '[{"kind": "step", "step": 0, "prompts": 4, "responses": 8}, 7]',
            "line 3: it is no object but 7",
        ),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_the_last_lines(line: str, why: str) -> None:
    with child(f"print('one'); print('{STEP}'); print('{line}')") as process:
        records = iter(process)
        assert next(records) == StepRecord(step=0, prompts=4, responses=8, reward_mean=0.5)
        with lab_error(why) as refusal:
            next(records)
    assert refusal.value.details == ("its last lines:", "one", STEP, line)


@pytest.mark.parametrize("followed", [False, True])
def test_a_child_that_fails_is_told_with_its_last_lines(followed: bool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    output = f"open({str(log)!r}, 'w').write('one\\n')" if followed else f"print('{STEP}')"
    with child(f"{output}; print('no memory'); raise SystemExit(7)") as process:
        lines = process.follow(log, lambda: False) if followed else iter(process)
        next(lines)
        with lab_error("exit code 7") as refusal:
            next(lines)
    assert (refusal.value.details[0], refusal.value.details[-1]) == ("its last lines:", "no memory")


@pytest.mark.parametrize(
    "end",
    [
        "import os; os.kill(os.getpid(), 9)",
        "print('traceback : Signal 9 (SIGKILL) received by PID 7'); raise SystemExit(1)",
    ],
)
def test_a_killed_process_is_a_crash_with_a_hint_at_memory(end: str) -> None:
    """The program that died may be the child itself, or one that it started and names.

    torchrun names it in the last lines of a table.
    """
    with (
        child(f"print('======'); {end}") as process,
        pytest.raises(Crashed, match="SIGKILL; out of memory") as refusal,
    ):
        list(process)
    assert refusal.value.details == ()


def test_records_of_one_line_come_together_and_the_child_hears_when_they_are_kept() -> None:
    program = f"""
import sys
print('[{STEP}, {UPDATE}]', flush=True)
assert sys.stdin.readline() == "kept\\n"
print('[{STEP}]', flush=True)
assert sys.stdin.read() == ""
print('alone')
"""
    with Child([sys.executable, "-u", "-c", program], listens=True) as process:
        batches = process.batches()
        assert [record.kind for record in next(batches)] == ["step", "update"]
        process.send_line("kept")
        assert [record.kind for record in next(batches)] == ["step"]
    with Child([sys.executable, "-c", ""], listens=True) as process:
        assert list(process) == []
        process.send_line("stop")  # to one that has gone: no error


def test_a_log_is_followed_to_the_child_s_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    program = (
        f"print('{{words}}'); f = open({str(log)!r}, 'w'); f.write('one\\ntw'); f.flush();"
        " f.write('o\\nhalf')"
    )
    with child(program) as process:
        assert list(process.follow(log, lambda: False)) == ["one", "two"]
    assert "{words}" in capfd.readouterr().out


@pytest.mark.parametrize("followed", [False, True])
def test_leaving_early_ends_the_child(followed: bool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with child(
        f"import time; open({str(log)!r}, 'w').write('one\\n'); print('{STEP}'); time.sleep(600)"
    ) as process:
        running: subprocess.Popen[str] = process._process
        heard: list[str] = []
        if followed:
            heard.extend(process.follow(log, lambda: log.exists() and log.stat().st_size > 0))
        else:
            assert next(iter(process)).kind == "step"
        assert (heard, running.poll()) == (["one"] * followed, None)
    assert running.poll() is not None


ENDS = (
    "from gspo_lab.training.engines.external.attempt import end_with_parent; end_with_parent();"
    " print('at work')"
)


@pytest.mark.parametrize("alive", [True, False])
def test_who_started_it_must_still_be_there(alive: bool) -> None:
    worker = os.getpid() if alive else 2**22 + 1  # beyond the largest number of a process
    process = subprocess.run(
        [sys.executable, "-c", ENDS],
        env={**os.environ, WORKER: str(worker)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ("at work" if alive else "the worker is gone") in process.stdout + process.stderr
    assert process.returncode == (0 if alive else 1)
