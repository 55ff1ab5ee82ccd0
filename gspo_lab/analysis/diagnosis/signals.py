"""What a signal is, and the list of all signals.

A signal is a function of a `Case` that yields at most one `Finding`. Its name, its needs, what is
usual and the source of that stand in `signals.toml`. Its sentences say no more than the data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from gspo_lab.analysis.diagnosis.log import Series, TrainingLog
from gspo_lab.analysis.diagnosis.setup import Setup
from gspo_lab.common.plain_data import Interval, table_beside

Level = Literal["ok", "unknown", "note", "warn", "error"]
LEVELS: tuple[Level, ...] = ("ok", "unknown", "note", "warn", "error")
"""From the best to the worst. "unknown" is what the log does not hold, and never fails a check."""


@dataclass(frozen=True)
class Finding:
    """One line of a diagnosis.

    `value` is what the log says, `advice` what to change or record, by the program's own keys,
    `usual` what is usual for this rule and setting, and `source` where that comes from: "" for what
    the signal `name` declares.
    """

    level: Level
    value: str
    advice: str = ""
    usual: str = ""
    source: str = ""
    name: str = ""


@dataclass(frozen=True)
class Case:
    """A log with its setup, as signals read it."""

    log: TrainingLog
    setup: Setup

    @cached_property
    def clip(self) -> Series | None:
        """The clip fraction, as a column or under the program's own name."""
        return self.log.first_of("clip_fraction_tokens", "clip_fraction_responses", "clip fraction")

    @cached_property
    def length(self) -> float | None:
        """The mean response length over the last fifth of the rows, in tokens."""
        length = self.log.first_of("response_tokens_mean")
        if length is not None:
            return length.end
        sequence = self.log.first_of("ppo_actor/seq_len/avg")
        prompt = self.log.first_of("ppo_actor/prompt_len/avg")
        return sequence.end - prompt.end if sequence and prompt else None

    def share_finding(self, value: str, size: float, bounds: Interval, *keys: str) -> Finding:
        """The finding by a share: a warning above the first bound, an error above the second."""
        warned, fatal = bounds
        if size > 1:
            return Finding("unknown", f"{value}: above 1, so no share")
        if size <= warned:
            return Finding("ok", value)
        return Finding("warn" if size <= fatal else "error", value, self.setup.keys(*keys))

    def not_recorded(self, quantity: str, *names: str) -> Finding:
        """The finding that a number is missing, or that one of these columns or quantities was
        printed as a rounded zero.
        """
        for name, (text, _) in self.log.rounded.items():
            metric = self.log.metrics[name]
            if {name, metric.column, metric.quantity}.intersection(names):
                value = f"{name} is printed as {text}, a rounded zero: not known"
                return Finding("unknown", value, "diagnose a file with all digits")
        return Finding("unknown", "not recorded", self.setup.recorded_by(quantity))


SignalFunction = Callable[[Case], Finding]
SIGNALS: dict[str, SignalFunction] = {}
"""All signals by name, in the order of a diagnosis. `signals.toml` says what each needs."""


def signal(name: str) -> Callable[[SignalFunction], SignalFunction]:
    """Register a function as a signal."""
    return partial(SIGNALS.setdefault, name)


def find(name: str, case: Case) -> Finding:
    """A signal's line for one log."""
    declared = table_beside(__file__, "signals.toml")[name]
    finding = SIGNALS[name](case)
    usual = finding.usual or declared["usual"]
    return replace(finding, name=name, usual=usual, source=finding.source or declared["source"])


def share(value: float) -> str:
    """A share with two digits: "0.34", "0.0013", "0"."""
    return "0" if value == 0 else f"{value:.2g}"
