"""What `[engine.options]` says of AReaL, and what of a study it would not do."""

from collections.abc import Iterator

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.study import Settings

SCHEDULERS = ("local", "ray", "slurm")

LEVELS = ("token", "sequence")
AGGREGATION = "token-mean"
ADVANTAGES = {"group-mean-std": "group", "group-mean": None}
"""The lab's advantages as AReaL's `reward_norm.std_level`."""


MAIN = "GSPO_LAB_AREAL_MAIN"
"""Environment variable of AReaL's processes: the main process, with which they end."""
FILES, SAVING = "files", "saving"
"""AReaL's own folder beside the attempts, with checkpoints and logs; the file that is in it while it saves one."""


def check_options(scheduler: str, processes: int) -> None:
    """LabError for an option that cannot be; AReaL itself takes any scheduler's name, and fails later."""
    if scheduler not in SCHEDULERS:
        known = ", ".join(SCHEDULERS)
        raise LabError(f"engine.options.scheduler = {scheduler!r}{nearest(scheduler, SCHEDULERS)}: {known}")
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise LabError(f"engine.options.processes = {processes!r}: a whole number from 1 on")


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
