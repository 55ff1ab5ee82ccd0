"""The tables of a study's TOML that are not declared: launchers, and programs that show the study
while it runs.
"""

from pydantic import Field

from gspo_lab.common.keys import MANY, Table, Text
from gspo_lab.common.plain_data import JsonObject


class MirrorTable(Table):
    """The key of `[record]` that may change at any time."""

    mirror: list[Text] = Field(
        [],
        description=(
            "programs that also get the numbers during the study: tensorboard, trackio,"
            " wandb-offline"
        ),
    )


class RayTable(Table):
    """For `gspo-lab run --on ray`: the resources that a run needs."""

    cpus: float = Field(1, ge=0, le=MANY, description="CPUs of a run")
    gpus: float | None = Field(
        None,
        ge=0,
        le=MANY,
        description="GPUs of a run; unset: 1 if the cluster has any, else 0",
    )
    resources: dict[str, float] = Field(
        {}, description="further resources, by their names in the cluster"
    )
    retries: int = Field(3, ge=0, le=MANY, description="restarts of a run whose node was lost")


class SlurmTable(Table):
    """For `gspo-lab run --on slurm`: the options of each run's `sbatch`."""

    partition: Text | None = Field(None, description="`--partition`; unset: the cluster's default")
    time: Text | None = Field(
        None,
        description="`--time`; a longer run is requeued and resumes; unset: the partition's limit",
    )
    grace: int = Field(
        120,
        ge=1,
        le=10**6,
        description="seconds before that limit at which a run is told to save",
    )
    gres: Text | None = Field(None, description='`--gres`, e.g. `"gpu:1"`; unset: no GPU')
    cpus: int = Field(1, ge=1, le=10**6, description="`--cpus-per-task`")
    memory: Text | None = Field(None, description='`--mem`, e.g. `"64G"`')
    options: list[Text] = Field([], description='further options, e.g. `["--account=lab"]`')


class LaunchTable(Table):
    """Launchers and their options, which a study does not declare: they may change at any time."""

    ray: RayTable = RayTable()
    slurm: SlurmTable = SlurmTable()

    @property
    def options(self) -> dict[str, JsonObject]:
        """The options of each launcher."""
        return self.model_dump(exclude_none=True)
