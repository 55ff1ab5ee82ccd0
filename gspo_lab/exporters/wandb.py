"""W&B: an offline run per run in `<arm>/s<seed>/wandb/`, for `wandb sync`; nothing is sent from here.

Of the machine nothing is told that wandb can be asked to leave out: no code, git, statistics or console.
"""

from collections.abc import Sequence
from pathlib import Path

from gspo_lab.errors import MissingExtra
from gspo_lab.exporters.logged import Logged


def write(study: str, runs: Sequence[Logged], folder: Path) -> None:
    """A project named as the study, its groups the arms."""
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise MissingExtra("wandb", "wandb", "export to W&B") from error
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    for run in runs:
        place = folder / run.arm / f"s{run.seed}"
        place.mkdir(parents=True)
        logger = wandb.init(
            mode="offline",
            dir=str(place),
            project=study,
            group=run.arm,
            name=f"{run.arm}-s{run.seed}",
            config=dict(run.settings),
            settings=settings,
        )
        for step, row in run.rows():
            logger.log(dict(row), step=step)
        logger.finish()
    wandb.teardown()
