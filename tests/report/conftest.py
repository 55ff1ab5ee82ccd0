"""One finished study of four arms, its page, and a browser to look at it.

All tests that only read share it.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic_lab
from browser import Browser
from laboratory import rendered

from gspo_lab.report import Report, write


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a finished mixture-of-experts study, 4 arms x 3 seeds."""
    return synthetic_lab.make_lab(
        tmp_path_factory.mktemp("lab"), synthetic_lab.FOUR_ARMS, name="moe"
    )


@pytest.fixture(scope="session")
def report(finished: Path) -> Report:
    return rendered(finished, "moe")


@pytest.fixture(scope="session")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(report, tmp_path_factory.mktemp("page"))[0]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two arms and three seeds, whose study declares claims."""
    folder = tmp_path_factory.mktemp("small")
    claims = "".join(
        f'[[claim]]\nname = "{name}"\n' for name in ("C04-clip-gap", "C12-grpo-needs-replay")
    )
    return write(rendered(synthetic_lab.make_lab(folder, synthetic_lab.TWO_ARMS + claims)), folder)[
        0
    ]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    with Browser(program) as opened:
        yield opened
