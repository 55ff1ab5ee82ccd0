"""What all tables of a study's TOML are made of: how strictly they are read, and the kinds of values."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""What may be a folder's name: those that begin with another character are kept for the lab's own."""

MANY, HUGE = 10**9, 1e9
"""More than any count, and any number that multiplies, may sensibly be: float32's arithmetic stays finite below."""

COLDEST = 1e-3
"""The lowest temperature above 0: logits divided by less leave float32's range."""

Name = Annotated[str, Field(pattern=NAME)]
Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Dtype = Literal["float32", "bfloat16"]
Replay = Literal["none", "old-policy", "rollout"]


class Table(BaseModel):
    """A TOML table: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)
