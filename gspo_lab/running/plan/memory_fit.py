"""Whether a study's runs fit on the devices that would train them, before anything is started."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.running.launch.base import Slot
from gspo_lab.running.launch.local import gpu_memory
from gspo_lab.study import Settings, Study
from gspo_lab.tasks import build_task
from gspo_lab.training.models.shapes import Memory, estimate, gigabytes, model_shape
from gspo_lab.training.models.wording import options_for

CHARACTERS_PER_TOKEN = 3.0
TEMPLATE_TOKENS = 40
UNKNOWN_PROMPT = 1000
"""Characters of the longest prompt where the problems are not here yet."""
LOOKED_AT = 500
"""Problems whose prompts are looked at for the longest."""

PLACES = {"gpu": "a GPU", "core": "a share of main memory"}
"""What a worker has, by the kind of its slot."""

USABLE = 0.95
"""The usable share of a device's memory: the rest is lost between blocks."""


@dataclass(frozen=True)
class MemoryFit:
    """What an arm's runs need, and what one worker has; `has` is None where that is not known."""

    arm: str
    need: Memory
    has: OptionalFloat
    place: str

    @property
    def too_little(self) -> bool:
        """Whether it would not fit; False where the device's memory is not known."""
        return self.has is not None and self.need.total > USABLE * self.has

    def line(self) -> str:
        """What the arm needs and what there is, in one line."""
        has = "of unknown size" if self.has is None else f"of {gigabytes(self.has)}"
        breakdown = f" ({self.need})" if str(self.need) else ""
        return f"{self.arm}: about {gigabytes(self.need.total)}{breakdown} on {self.place} {has}"


def memory_fits(study: Study, slots: Sequence[Slot]) -> list[MemoryFit]:
    """One for each arm whose model's shape is known; embedded models need next to nothing and have
    none.
    """
    per_place = len(slots) / len({slot.name for slot in slots})
    memory = worker_memory(slots)
    estimates = []
    for arm in study.arms.values():
        model = study.model(arm)
        shape = model_shape(model)
        if shape is not None:
            prompt, response, answer = _lengths(arm.settings, model, study.base)
            need = estimate(
                shape,
                arm.settings,
                prompt_tokens=prompt,
                response_tokens=response,
                answer_tokens=answer,
                on_gpu=slots[0].kind != "core",
            )
            place = PLACES.get(slots[0].kind, f"a {slots[0].kind}")
            estimates.append(
                MemoryFit(arm.name, need, None if memory is None else memory / per_place, place)
            )
    return estimates


def require_memory(study: Study, slots: Sequence[Slot]) -> None:
    """LabError where an arm's estimate is above what a worker has."""
    short = [fit for fit in memory_fits(study, slots) if fit.too_little]
    if short:
        largest = max(short, key=lambda fit: fit.need.total)
        raise LabError(
            f"too little memory: {largest.line()}; use gradient_checkpointing, lora_rank, optimizer"
            " = 'adamw-8bit', a smaller at_a_time or microbatch_tokens, or go on all the same with"
            " --ignore-memory-check"
        )


def worker_memory(slots: Sequence[Slot]) -> OptionalFloat:
    """Bytes of the smallest GPU among the places, or one worker's share of main memory; None where
    that is not known.

    The memory of a GPU that several workers share is given whole. Other hosts are not asked.
    """
    if any(slot.host is not None for slot in slots):
        return None
    gpus = {slot.index for slot in slots if slot.kind == "gpu"}
    if gpus:
        memory_of_gpu = gpu_memory()
        sizes = [memory_of_gpu.get(gpu) for gpu in gpus]
        return None if None in sizes else min(size for size in sizes if size is not None)
    with suppress(OSError, ValueError):
        total = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        with suppress(OSError, ValueError):
            total = min(
                total, float(Path("/sys/fs/cgroup/memory.max").read_text())
            )  # "max": a ValueError
        return total / len({slot.name for slot in slots})
    return None


def _lengths(settings: Settings, model: str, base: Path) -> tuple[int, int, int]:
    """Tokens of the longest prompt, about, of the longest response that is trained on, and of a
    benchmark's longest.
    """
    task = build_task(settings.task.name, options_for(settings.task, model), base)
    try:
        longest = max(len(problem.prompt) for problem in task.problems("train")[:LOOKED_AT])
    except LabError:  # its data is not here yet
        longest = UNKNOWN_PROMPT
    answers = [0]
    for bench in settings.bench:
        options = {} if bench.task is None else options_for(bench.task, model)
        bench_task = task if bench.task is None else build_task(bench.task.name, options, base)
        answers.append(bench.max_tokens or bench_task.max_tokens)
    response = settings.rollout.max_tokens or task.max_tokens
    return round(longest / CHARACTERS_PER_TOKEN) + TEMPLATE_TOKENS, response, max(answers)
