"""The tables of a study's TOML that say what its runs start from: a warm start, a mixture made of a
dense model.
"""

from typing import Annotated, Literal

from pydantic import Field

from gspo_lab.common.keys import Count, Key, Seed, Table, Whole


class WarmStart(Table):
    """Supervised training of a built-in model on the task's demonstrations before the study, made
    once and cached.
    """

    steps: Whole = Field(0, description="supervised steps; 0: the model as it is")
    batch_size: Count = Field(64, description="demonstrations per step")
    learning_rate: float = Field(1e-3, gt=0, le=100, description="peak learning rate")
    warmup_steps: Whole = Field(20, description="steps over which the learning rate rises")
    per_seed: bool = Field(False, description="one warm start per seed instead of one per study")
    seed: Annotated[int, Key(anywhere=True)] = Field(
        0,
        ge=0,
        lt=2**63,
        description="seed of the shared warm start; a replication has its own",
    )

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, ...: rises linearly, then falls linearly towards 0."""
        rising = (step + 1) / (self.warmup_steps + 1)
        falling = (self.steps - step) / max(self.steps - self.warmup_steps, 1)
        return self.learning_rate * min(1.0, rising, falling)


class UpcycleTable(Table):
    """How `model = "upcycled:MODEL"` makes a mixture of experts of a dense model (sparse
    upcycling, arXiv 2212.05055). It is made once and cached.
    """

    experts: int = Field(4, ge=2, le=1024, description="experts of each mixture layer")
    top_k: Count = Field(2, description="experts per token")
    layers: str = Field(
        "",
        pattern=r"^([0-9]{1,4}(-[0-9]{1,4})?)?$",
        description="the layers that become mixtures, like `24-29`; unset: all",
    )
    noise: float = Field(
        0.2,
        ge=0,
        le=100,
        description="noise of each expert's matrix, as a share of that matrix's deviation",
    )
    family: Literal["", "qwen2_moe", "qwen3_moe", "mixtral"] = Field(
        "", description="the mixture's family; unset: by the dense model"
    )
    seed: Seed = Field(0, description="seed of the routers and of the noise")

    def layer_numbers(self, count: int) -> list[int]:
        """The numbers of the mixture layers of a model with `count` layers, from 0."""
        low, _, high = self.layers.partition("-")
        return list(range(int(low), int(high or low) + 1)) if low else list(range(count))
