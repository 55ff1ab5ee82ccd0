"""What `[engine.options]` says of AReaL, and what of a study it would not do."""

from collections.abc import Iterator
from dataclasses import dataclass

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.study import Settings

SCHEDULERS = ("local", "ray", "slurm")

LEVELS = ("token", "sequence")
AGGREGATION = "token-mean"
ADVANTAGES = {"group-mean-std": "group", "group-mean": None}
"""The lab's advantages as AReaL's `reward_norm.std_level`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of engine `areal`: who starts its processes, and how many train."""

    scheduler: str
    processes: int

    def check(self) -> None:
        """LabError for an option that cannot be; AReaL itself takes any scheduler's name, and fails later."""
        if self.scheduler not in SCHEDULERS:
            known = ", ".join(SCHEDULERS)
            raise LabError(
                f"engine.options.scheduler = {self.scheduler!r}{nearest(self.scheduler, SCHEDULERS)}: {known}"
            )
        if isinstance(self.processes, bool) or not isinstance(self.processes, int) or self.processes < 1:
            raise LabError(f"engine.options.processes = {self.processes!r}: a whole number from 1 on")


def check_settings(settings: Settings) -> None:
    """LabError where AReaL would refuse, ignore or change what the arm says."""
    for why in _broken(settings):
        raise LabError(f"the engine 'areal' {why}")


def _broken(settings: Settings) -> Iterator[str]:
    objective = settings.objective
    if objective.aggregation != AGGREGATION:
        yield (
            f"means every token alike, long responses more: it has no aggregation = '{objective.aggregation}', the "
            f"paper's; set aggregation = '{AGGREGATION}' in every arm to compare what it can do"
        )
    if objective.importance_sampling_level not in LEVELS:
        yield f"has no importance_sampling_level = '{objective.importance_sampling_level}'; it has {', '.join(LEVELS)}"
    if objective.advantage == "gae":
        yield "is not given its critic by the lab: advantage = 'gae' trains with the engines 'native' and 'verl'"
    elif objective.advantage not in ADVANTAGES:
        yield f"has no advantage = '{objective.advantage}'; it has {', '.join(ADVANTAGES)}"
    if settings.rollout.coupled:
        yield "draws by random numbers of its own, which arms do not share: set rollout.coupled = false"
    if settings.update.warmup_updates > 1:
        yield "raises the learning rate by shares of the whole training: set update.warmup_updates = 0"
