"""Everything that reads a study of a thousand runs ends within bounds of time and size.

The time is processor time.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import Said, gspo_lab
from case_tables import cases
from synthetic_lab import make_lab

from gspo_lab.common.plain_data import Strings

pytestmark = pytest.mark.slow
SEEDS = 500


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two arms, three steps; the working folder as long as it is used."""
    folder = tmp_path_factory.mktemp("thousand")
    original = Path.cwd()
    make_lab(folder, seeds=SEEDS, steps=3, every=3)
    os.chdir(folder)
    yield folder
    os.chdir(original)


def spent(*command: str) -> tuple[Said, float]:
    """What a command printed, and its processor time.

    The time is without imports that an earlier one has made.
    """
    began = time.process_time()
    output = gspo_lab(*command)
    return output, time.process_time() - began


@pytest.mark.parametrize(
    ("command", "code", "most"),
    cases(__file__, "what_reads_a_thousand_runs_takes_seconds"),
    ids=lambda entry: entry[0] if isinstance(entry, tuple) else "",
)
def test_what_reads_a_thousand_runs_takes_seconds(
    command: Strings, code: int, most: float, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bounds are four times the figures of docs/results/performance.md.

    They catch quadratic growth. Made-up answers are not those of the problems, which `certify`
    reports.
    """
    output, seconds = spent(*command)
    with capsys.disabled():
        print(f"\n  {' '.join(command)}, {2 * SEEDS} runs: {seconds:.2f} s of processor time")
    assert output.code == code, output
    assert seconds < most
    if command[0] == "certify":
        assert f"grpo/s5 and {2 * SEEDS - 6} more" in " ".join(output.out.split()), (
            "a thousand names are no answer"
        )


def test_the_numbers_of_a_thousand_runs_are_three_megabytes(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gspo_lab("report", "toy").code == 0
    sizes = {
        name: (lab / "reports" / name).stat().st_size / 1e6
        for name in ("toy.json", "toy.html", "toy.md")
    }
    with capsys.disabled():
        print("\n  " + ", ".join(f"{name} {size:.2f} MB" for name, size in sizes.items()))
    assert sizes["toy.json"] < 3


def test_a_study_of_ten_thousand_seeds_is_planned_in_seconds(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, seconds = spent("plan", "studies/toy.toml", "--seeds", "10000")
    with capsys.disabled():
        print(f"\n  plan --seeds 10000: {seconds:.2f} s of processor time")
    assert (output.code, "20000 runs" in output.out) == (0, True), output
    assert seconds < 16
