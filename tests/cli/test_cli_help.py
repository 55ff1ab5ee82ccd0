"""Every command explains itself, with examples that would be accepted, and at once."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from calling import gspo_lab
from finished_runs import leave_runs, tree, write_study

from gspo_lab import __version__
from gspo_lab.cli import command
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.importers import SOURCES

COMMANDS: JsonObject = command().commands

HEAVY = {
    "torch",
    "transformers",
    "vllm",
    "pandas",
    "numpy",
    "scipy",
    "plotly",
    "sqlite_utils",
    "ray",
}


def test_the_help_of_the_whole_names_every_command_and_a_beginning() -> None:
    said = gspo_lab("--help")
    assert said.code == 0
    assert all(re.search(rf"^│ {name} .+[.] +│$", said.out, re.M) for name in COMMANDS), (
        "each fits its line"
    )
    assert "gspo-lab init my_study" in said.out
    assert gspo_lab("--version").out == f"gspo-lab {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples_that_it_accepts(name: str) -> None:
    said = gspo_lab(name, "--help")
    assert said.code == 0
    assert f"gspo-lab {name}" in said.out
    assert all(parameter.name == "help" or parameter.help for parameter in COMMANDS[name].params)
    examples = COMMANDS[name].epilog.split("\n\n")[1:]
    assert examples
    for example in examples:
        program, command, *arguments = shlex.split(example)
        assert (program, command) == ("gspo-lab", name)
        COMMANDS[name].make_context(
            name, arguments
        )  # raises where an option or a value is not accepted


def test_the_help_of_import_names_every_reader() -> None:
    assert [name for name in SOURCES if f"{name}, " not in COMMANDS["import"].params[0].help] == []


def test_help_says_what_an_option_takes_and_a_flag_takes_nothing(here: Path) -> None:
    shown = gspo_lab("certify", "--help").out
    assert "<bool>" not in shown
    assert "<str>" not in shown
    assert re.search(r"--runs +PATH ", shown)
    assert re.search(r"--json +Print JSON", shown)
    assert "--install-completion" in gspo_lab("--help").out


def test_the_first_page_of_help_has_at_most_sixteen_commands() -> None:
    assert len(COMMANDS) <= 16


LIGHT = """
import json, sys
from gspo_lab.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["gspo-lab", *words]
    try:
        main()
    except SystemExit as left:
        assert not left.code, words
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def test_help_and_the_list_of_studies_are_light(here: Path) -> None:
    """One process for all: what an earlier command had imported, a later one would have too."""
    study = write_study(here)
    runs = here / "runs"
    empty = here / "empty"
    empty.mkdir()
    leave_runs(study, runs)
    assert gspo_lab("show", "--runs", runs).code == 0  # makes the database
    helps = [["--help"], ["--version"], ["run", "--help"], ["eval", "--help"]]
    lists = [
        ["show", "--runs", str(empty)],
        ["show", "--runs", str(runs)],
        ["show", "--json", "--runs", str(runs)],
    ]
    words = [*helps, *lists]
    command = [sys.executable, "-c", LIGHT, json.dumps(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    modules = [set(json.loads(line)) for line in done.stderr.splitlines()]
    assert len(modules) == len(words)
    assert not modules[len(helps) - 1] & {*HEAVY, "sqlite3"}
    assert not modules[-1] & HEAVY
    assert tree(empty) == [], "looking into an empty folder leaves it empty"
