"""What a person reads in a terminal of eighty columns: wrapped at words, and nothing lost."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from calling import gspo_lab
from case_tables import cases
from synthetic_lab import make_lab

from gspo_lab.cli.output import wrapped
from gspo_lab.study.load import load_study

STUDY = Path(__file__).parents[2] / "studies" / "near_collapse.toml"


def in_a_terminal(*words: str, columns: int = 80, typed: bytes = b"") -> list[str]:
    """The lines that a command writes on a terminal, before the terminal folds them.

    The command has a process of its own. `typed` answers its questions.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")
    }
    command = [sys.executable, "-m", "gspo_lab.cli", *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    ):
        os.close(theirs)
        os.write(ours, typed)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how a terminal says that nobody writes to it any more
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n").splitlines()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_lab(tmp_path_factory.mktemp("lab")).parent)


@pytest.mark.parametrize("command", ["plan", "claims", "claims toy --all", "certify", "compare"])
def test_lines_are_wrapped_at_words_in_a_terminal_and_whole_in_a_pipe(
    command: str, runs: str
) -> None:
    words = {
        "plan": ["plan", str(STUDY)],
        "certify": ["certify", "--runs", runs],
        "compare": ["compare", "toy/grpo/s0", "toy/gspo/s0", "--runs", runs],
    }.get(command, [*command.split(), "--runs", runs])
    columns = 60 if command == "compare" else 80  # a difference is told in few words
    whole = gspo_lab(*words).out.splitlines()
    shown = (
        in_a_terminal(*words)
        if command == "plan"
        else gspo_lab(*words, columns=columns).out.splitlines()
    )
    assert max(map(len, whole)) > columns, "nothing here needs wrapping"
    assert [line for line in shown if len(line) > columns and " " in line.strip()] == []
    assert " ".join(shown).split() == " ".join(whole).split()


def test_the_answer_below_a_reports_path_is_wrapped_too(runs: str, tmp_path: Path) -> None:
    shown = gspo_lab(
        "report", "--runs", runs, "--output-dir", tmp_path, columns=60
    ).err.splitlines()
    assert [line for line in shown if len(line) > 60 and " " in line.strip()] == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    cases(__file__, "a_line_goes_on_under_its_last_column"),
)
def test_a_line_goes_on_under_its_last_column(line: str, wanted: list[str]) -> None:
    assert wrapped(line, 20) == wanted


ANSWERS = {
    b"\n\n": ("tiny-qwen3", "grader.py:grade"),
    b"tiny-olmoe\naddition\n": ("tiny-olmoe", "addition"),
    b"Qwen/Qwen3-0.6B\n\n": ("Qwen/Qwen3-0.6B", "grader.py:grade"),
    b" tiny-olmoe\t\n addition \n": ("tiny-olmoe", "addition"),
    b"  \n \n": ("tiny-qwen3", "grader.py:grade"),
}
"""Typed at the questions of `init`: the study's model and task."""


@pytest.mark.parametrize("typed", ANSWERS)
def test_init_asks_for_the_model_and_the_task(
    typed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = in_a_terminal("init", "mine", typed=typed)
    assert "model (a folder, a Hub id, or built-in) [tiny-qwen3]:" in "\n".join(lines)
    assert lines[-1] == "next: gspo-lab plan mine/mine.toml"
    settings = load_study(Path("mine/mine.toml")).arms["gspo"].settings
    assert (settings.model, settings.task.name) == ANSWERS[typed]


def test_ctrl_c_at_a_question_ends_with_130(tmp_path: Path) -> None:
    _, theirs = pty.openpty()
    command = [sys.executable, "-m", "gspo_lab.cli", "init", str(tmp_path / "mine")]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.read(5) == b"model"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == b"\ngspo-lab: interrupted\n"
    assert process.returncode == 130


def test_a_run_needs_no_study_where_only_one_has_it(tmp_path: Path) -> None:
    runs = str(make_lab(tmp_path).parent)
    short, long = (
        gspo_lab("show", f"{study}gspo/s0", "--runs", runs).out for study in ("", "toy/")
    )
    assert short.startswith("run: toy/gspo/s0\n")
    assert short == long
    short, long = (
        gspo_lab("compare", f"{s}grpo/s0", f"{s}gspo/s0", "--runs", runs).out for s in ("", "toy/")
    )
    assert short == long
    make_lab(tmp_path, name="other")
    refused = gspo_lab("show", "gspo/s0", "--runs", runs)
    assert (refused.code, refused.out) == (2, "")
    assert (
        refused.err
        == "gspo-lab: 'gspo/s0' is a run of several studies: other/gspo/s0, toy/gspo/s0\n"
    )
