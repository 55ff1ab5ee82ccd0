"""The README's blocks: commands are run, named files exist, its study loads."""

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gspo_lab.cli import app
from gspo_lab.study import load_study

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = {
    block.partition("\n")[0].removeprefix("$ "): block.partition("\n")[2].rstrip()
    for block in re.findall(r"```console\n(.*?)```", README, re.S)
}


def run(command: str, tmp_path: Path, **environment: str) -> str:
    """Run a `gspo-lab ...` line of the README from the repository's root.

    Its runs are in a folder of the test's.
    """
    words = command.split()
    assert words[0] == "gspo-lab"
    done = subprocess.run(
        [sys.executable, "-m", "gspo_lab.cli", *words[1:]],
        cwd=ROOT,
        env={
            **os.environ,
            "GSPO_LAB_RUNS": str(tmp_path / "runs"),
            "COLUMNS": "120",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
    )
    return done.stdout.rstrip()


def shape(text: str) -> str:
    """A text without what differs from machine to machine.

    That is the number of workers and the estimated time.
    """
    return re.sub(r"\d+ workers|about .*? \(", "...", text)


def test_dry_run_block(tmp_path: Path) -> None:
    (command,) = [line for line in CONSOLE if "--dry-run" in line]
    shown = run(command, tmp_path, GSPO_LAB_CACHE=str(tmp_path / "cache"))
    assert shape(shown) == shape(CONSOLE[command])


def test_the_answer_in_the_readme_is_the_sample_s() -> None:
    shown = CONSOLE["gspo-lab report moe_stability"]
    sample = (ROOT / "reports/sample/moe_stability.md").read_text(encoding="utf-8")
    headline = shown.splitlines()[1]
    assert headline in sample
    for score in re.findall(r"\d\.\d{3}, \d\.\d{3}, (\d\.\d{3})", shown):
        assert score in sample


@pytest.mark.slow
def test_what_the_quickstart_finds(tmp_path: Path) -> None:
    """Takes ten minutes: what README says of every kind of CPU."""
    import sqlite3

    out = run(
        f"gspo-lab run studies/quickstart.toml --output-dir {tmp_path / 'reports'}",
        tmp_path,
        GSPO_LAB_CACHE=str(tmp_path / "cache"),
    )
    for rate in ("5e-05", "0.0002", "0.0008"):
        for rule in ("grpo", "gspo"):
            assert re.search(rf"^{rule}@{rate} +3/3 ", out, re.M)
    with closing(sqlite3.connect(tmp_path / "runs" / "lab.db")) as database:
        fractions = dict(
            database.execute(
                "SELECT run_id, AVG(clip_fraction_tokens) FROM updates GROUP BY run_id"
            ).fetchall()
        )
        first = database.execute(
            "SELECT MAX(clip_fraction_tokens), MAX(log_ratio_max_abs) FROM updates WHERE"
            " minibatch = 0"
        ).fetchall()
        final = dict(database.execute("SELECT run_id, score FROM scores WHERE step = 20"))
        start = dict(database.execute("SELECT run_id, score FROM scores WHERE step = 0"))
    assert first == [(0.0, 0.0)]
    for seed in range(3):
        grpo = f"quickstart/grpo@0.0002/s{seed}"
        gspo = f"quickstart/gspo@0.0002/s{seed}"
        assert fractions[gspo] >= 10 * fractions[grpo] > 0
        assert final[grpo] > start[grpo]
        assert final[gspo] > start[gspo]
        grpo = f"quickstart/grpo@5e-05/s{seed}"
        gspo = f"quickstart/gspo@5e-05/s{seed}"
        assert final[grpo] > final[gspo]


def test_every_command_is_in_the_readme() -> None:
    commands = [command.name for command in app.registered_commands]
    assert len(commands) > 10
    assert [
        name
        for name in commands
        if f"`gspo-lab {name}" not in README and f"gspo-lab {name} " not in README
    ] == []


def test_the_study_in_the_readme_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.S)
    path = tmp_path / "own.toml"
    path.write_text(block)
    assert list(load_study(path).arms) == ["gspo", "gspo-token-mean"]
