"""What is recorded of a run itself."""

from dataclasses import dataclass
from typing import Any, ClassVar

from gspo_lab.records.field import key, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Where a run stands. `state` is one of `started`, `stopped`, `finished`, `failed`.

    `RunStatus(state="started", step=20)`: a worker takes the run up at step 20. Whatever the journal held of later
    moments is void and will be recorded again: steps and updates with step >= 20, training answers with step >= 20,
    benchmark answers with step > 20. Facts about the worker (versions, device, digests of weights and tokenizer)
    travel in `facts` with `started`; the worker signs with the run, the study's digest and, at the end, its journal's.
    """

    kind: ClassVar[str] = "status"
    table: ClassVar[str] = "statuses"

    state: str = key("started, stopped, finished or failed")
    step: int = key("steps that were complete when this was written")
    at: float | None = metric("s since 1970", "wall-clock time of writing")
    message: str | None = metric("-", "one line for people: why it failed")
    run: str | None = metric("-", "with `started`: the run that the worker was started on, study/arm/s<seed>")
    declaration: str | None = metric("-", "with `started`: sha256 of what study.json locked at that moment")
    journal: str | None = metric("-", "with `finished`: sha256 of all lines of the journal before this one")
    model: str | None = metric("-", "with `finished`: sha256 of the list of the trained model's files")
    facts: dict[str, Any] | None = metric(
        "-", "what the worker found out about itself: code, packages, machine, digests (JSON)"
    )
    answers: dict[str, str] | None = metric(
        "-", "with `finished`: per benchmark and step, `bench@step`, the sha256 of its answers as first graded (JSON)"
    )
