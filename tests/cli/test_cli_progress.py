"""What stands in a log while a command is at work, by a clock that the test turns."""

import re
from collections.abc import Mapping

from gspo_lab.cli.progress import LINE_SECONDS, PACE_SECONDS, Lines


class Log:
    def __init__(self, totals: Mapping[str, int]) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self._advance = Lines(totals, self.lines.append, lambda: self.now)

    def after(self, seconds: float, more: int, name: str = "aime") -> str | None:
        """What is told when so many more answers come so much later; without the time of day."""
        self.now += seconds
        before = len(self.lines)
        self._advance(name, more)
        new = self.lines[before:]
        assert len(new) <= 1
        assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in new)
        return new[0][9:] if new else None


def test_a_line_every_few_seconds_with_the_time_left() -> None:
    log = Log({"aime": 120})
    assert log.after(2, 0) is None, "nothing has come"
    assert log.after(8, 10) == "aime: 10 of 120, 1 min 50 s left"  # one a second
    assert log.after(1, 1) is None
    assert log.after(LINE_SECONDS - 1, 4) == "aime: 15 of 120, 1 min 45 s left"
    assert log.after(LINE_SECONDS, 0) is None


def test_the_last_line_is_told_at_once() -> None:
    log = Log({"aime": 4})
    assert log.after(1, 3) == "aime: 3 of 4, 0 s left"
    assert log.after(0, 1) == "aime: 4 of 4"
    assert Log({"aime": 4}).after(0, 4) == "aime: 4 of 4", "all of them were there"


def test_what_was_there_before_is_no_pace() -> None:
    log = Log({"aime": 1_000})
    assert log.after(0, 400) == "aime: 400 of 1,000"
    log.after(PACE_SECONDS, 10)
    assert log.after(PACE_SECONDS, 10) == "aime: 420 of 1,000, 58 min left"  # 580 at ten a minute


def test_several_things_are_told_with_their_sum() -> None:
    log = Log({"aime": 100, "math": 200})
    log.after(10, 100)
    assert log.after(10, 100, "math") == "math: 100 of 200; all: 200 of 300, 10 s left"
