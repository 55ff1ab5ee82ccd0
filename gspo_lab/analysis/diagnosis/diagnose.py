"""All signals of a log."""

from dataclasses import dataclass

from gspo_lab.analysis.diagnosis import clipping, learning, sampling
from gspo_lab.analysis.diagnosis.log import TrainingLog
from gspo_lab.analysis.diagnosis.setup import Setup, setup_of
from gspo_lab.analysis.diagnosis.signals import LEVELS, SIGNALS, Case, Finding, Level, find
from gspo_lab.common.plain_data import Strings

MODULES = (clipping, sampling, learning)
"""The modules whose functions are the signals, in the order of a diagnosis."""
UNKNOWN = "not recorded"
LIMIT = (
    "One run: this says nothing about whether GRPO or GSPO is better. A verdict needs several seeds"
    " of each: gspo-lab import, then gspo-lab report."
)


@dataclass(frozen=True)
class Diagnosis:
    """What was recognised in a log, and its signals. `steps` counts the steps with a number."""

    source: str
    setup: Setup
    steps: int
    notes: Strings
    signals: tuple[Finding, ...]

    @property
    def worst(self) -> Level:
        """The worst level of any signal."""
        return max((signal.level for signal in self.signals), key=LEVELS.index, default="ok")

    def recognised(self) -> dict[str, str]:
        """What was recognised, by name, as text; "not recorded" where the log does not say."""
        setup = self.setup
        facts = {
            "program": f"{setup.program} {setup.version or '(version not recorded)'}",
            "rule": setup.rule,
            "clip range (low / high)": setup.range_text,
            "updates per rollout batch": setup.updates,
            "aggregation": setup.aggregation,
            "old log-probs": setup.old and f"the {setup.old}'s",
            "steps with a number": self.steps,
        }
        return {name: UNKNOWN if fact is None else str(fact) for name, fact in facts.items()}


def diagnose(log: TrainingLog) -> Diagnosis:
    """The signals of a log, in the order of `SIGNALS`."""
    setup = setup_of(log)
    case = Case(log, setup)
    steps = {step for numbers in log.rows.values() for step in numbers}
    signals = tuple(find(name, case) for name in SIGNALS)
    return Diagnosis(log.source, setup, len(steps), tuple(log.notes), signals)
