"""Nothing that comes from outside steers the terminal: control characters are printed as marks."""

import io
import json
from pathlib import Path

import pytest
from calling import Said, gspo_lab
from finished_runs import leave_runs, write_study
from rich.text import Text

from gspo_lab.cli.output import print_json, print_table
from gspo_lab.common.plain_data import OptionalInt, Strings
from gspo_lab.common.text import UNSEEN
from gspo_lab.running.progress import VisibleConsole, counting

HOSTILE = "\x1b]0;OWNED\x07 \x1b[31mred \u202egnp"
"""A window's title, a colour, and a direction mark."""
MARKS = ("[U+001B]", "[U+0007]", "[U+202E]")


def harmless(said: Said, *, marks: bool = True) -> str:
    """What a call wrote, which has no character that steers; with `marks` it has theirs."""
    written = said.out + said.err
    assert UNSEEN.findall(written) == []
    assert not marks or all(mark in written for mark in MARKS), written
    return written


@pytest.mark.parametrize("columns", [None, 80])
def test_a_question_of_a_study_is_harmless_wherever_it_is_printed(
    here: Path, columns: OptionalInt
) -> None:
    path = write_study(here)
    text = path.read_text(encoding="utf-8").partition("\n")[2]
    question = json.dumps(f"{HOSTILE}?")
    path.write_text(text.replace('"Is seen only here to be looked at?"', question, 1), "utf-8")
    leave_runs(path, here / "runs")
    for words in (("show",), ("show", "seen"), ("plan", path), ("run", path)):
        harmless(gspo_lab(*words, columns=columns))
    # A report's answer and JSON have no question, or write it in ASCII.
    harmless(gspo_lab("report", "seen", columns=columns), marks=False)
    said = gspo_lab("report", "seen", "--json")
    harmless(said, marks=False)
    assert said.json["studies"]["seen"]["answer"]["question"] == f"{HOSTILE}?"


def test_a_column_of_a_foreign_log_is_harmless(here: Path) -> None:
    (here / "log.csv").write_text(f"step,eval/acc,{HOSTILE}\n1,0.5,1\n2,0.6,1\n", encoding="utf-8")
    words = ["import", "csv", "log.csv", "--study", "mine", "--arm", "a", "--seed", "0"]
    harmless(gspo_lab(*words), marks=False)
    harmless(gspo_lab(*words[:-4]), marks=False)
    harmless(gspo_lab(*words, "--map", f"{HOSTILE}=reward_mean", "--score-metric", HOSTILE))


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "seen.toml", "--set", f"{HOSTILE}=1"),
        ("show", HOSTILE),
        ("report", f"seen{HOSTILE}"),
        (f"--{HOSTILE}",),
        ("plan", f"{HOSTILE}.toml"),
    ],
)
def test_a_mistake_is_one_harmless_line_on_stderr(here: Path, words: Strings) -> None:
    leave_runs(write_study(here), here / "runs")
    said = gspo_lab(*words)
    assert (said.code, said.out) == (2, "")
    harmless(said, marks=not words[0].startswith("--"))  # an option is quoted by the parser


def test_a_type_of_a_model_is_harmless(here: Path) -> None:
    model = here / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": HOSTILE}), encoding="utf-8")
    path = write_study(here)
    said = gspo_lab("plan", path, "--set", 'model="model"')
    assert said.code == 2
    harmless(said, marks=False)


@pytest.mark.parametrize(
    "end", ["raise LabError(HOSTILE)", "os.write(2, HOSTILE.encode()); os._exit(1)"]
)
def test_the_last_words_of_a_worker_and_its_place_are_harmless(here: Path, end: str) -> None:
    """An engine's error, or the end of what its process wrote, is in the line of its run."""
    (here / "hostile.py").write_text(
        f"""import os
from gspo_lab.common.errors import LabError
HOSTILE = {HOSTILE!r}
class Engine:
    def train(self, run, sink, folder, stop):
        {end}
"""
    )
    path = write_study(here)
    words = ("run", path, "--arms", "grpo", "--seed", "0", "--jobs", "1")
    settings = ("engine.name='hostile.py:Engine'", "model='tiny-qwen3'", "warm_start.steps=1")
    said = gspo_lab(*words, "--set", settings[0], "--set", settings[1], "--set", settings[2])
    assert said.code in (1, 2), said
    harmless(said)


def test_tables_progress_and_json_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{HOSTILE: HOSTILE, "[red]": "[blue]"}], empty="", title=HOSTILE)
    print_table([], empty=HOSTILE)
    print_json({HOSTILE: HOSTILE})
    with counting(HOSTILE, {HOSTILE: 1}) as advance:
        advance(HOSTILE, 1)
    console = VisibleConsole(file=io.StringIO(), force_terminal=True, width=200)
    console.print(Text(HOSTILE, "bold"))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert drawn.startswith("\x1b[1m[U+001B]"), "the console's own style"
    assert drawn.count("\x1b") == 2
    out, err = capsys.readouterr()
    harmless(Said(0, out, ""))
    harmless(Said(0, "", err))
    assert "[red]" in out
    assert "[blue]" in out
