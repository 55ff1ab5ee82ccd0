"""Whole runs of the native engine on "apart", a device with memory of its own, and on the CPU.

    python apart_runs.py LIBRARY FOLDER       prints as JSON, by case: the losses of all updates on
    both, those of a run
                                              that was stopped and taken up again, and how many
                                              answers `eval` gets; and how a precision and another
                                              device are refused

LIBRARY is apart.cpp, compiled. Its kernels are the CPU's, on copies; a tensor that lies elsewhere
is refused, as on a GPU. The runs lie in FOLDER.
"""

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.utils.backend_registration
from lottery import train, write_study
from torch.nn.attention import SDPBackend, sdpa_kernel

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Integers, Strings
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run, load_study
from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides, bench_of
from gspo_lab.tasks.evaluation.evaluated_models import run_subjects
from gspo_lab.tasks.evaluation.evaluation_run import evaluate_subject
from gspo_lab.training.models.load import check_dtype, device_of

CASES: dict[str, Strings] = {
    "dense": ("gspo",),
    "experts": ("gspo", "model=tiny-qwen3-moe"),
    "replay": ("grpo", "model=tiny-qwen3-moe", "routing_replay=old-policy"),
    "rollout-replay": ("grpo", "model=tiny-qwen3-moe", "routing_replay=rollout"),
    "adapters": ("gspo", "update.lora_rank=4", "update.lora_alpha=8"),
    "kl": ("gspo", "objective.kl_coef=0.1"),
    "critic": ("grpo", "objective.advantage=gae"),
    "stale": ("gspo", "rollout.staleness=1"),
}
"""The arm, and what is changed of the study."""


def register(library: str) -> None:
    """Make torch know the device by its name."""
    torch.ops.load_library(library)
    torch.utils.backend_registration.rename_privateuse1_backend("apart")
    module: Any = ModuleType("torch.apart")
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.set_device = lambda _: None
    torch._register_device_module("apart", module)
    torch.utils.backend_registration.generate_methods_for_privateuse1_backend()


def run_of(case: str, device: str, folder: Path) -> Run:
    arm, *changes = CASES[case]
    study = load_study(folder / "study.toml", overrides=[*changes, f"device={device}"], seeds=[0])
    return next(run for run in study.runs() if run.arm == arm)


def losses(case: str, device: str, folder: Path, stops: Integers = ()) -> list[float]:
    """Of a run that is stopped after so many steps, and taken up again each time."""
    run = run_of(case, device, folder)
    out = []
    place = folder / f"{case}-{device}{len(stops)}"
    for stop in (*map(stop_after, stops), lambda: False):
        out += [update.loss for update in train(run, place, stop).updates]
    return out


def stop_after(times: int) -> Callable[[], bool]:
    calls = count()
    return lambda: next(calls) > times


def evaluated(case: str, folder: Path) -> list[int]:
    """How many answers the start and the end of the case's run give on the device."""
    run = run_of(case, "apart", folder)
    place = RunFolder(folder / f"{case}-apart0")
    (place.path / "run.json").write_text(json.dumps(run.to_json()))
    task = run.settings.task
    bench = bench_of(
        task.name, task.options, Path(run.base), BenchmarkOverrides(samples=1, problems=2)
    )
    return [
        evaluate_subject(subject, bench, lambda _: None).new
        for subject in run_subjects(place, device="apart")
    ]


def results(case: str, folder: Path) -> dict[str, list[float]]:
    return {
        "cpu": losses(case, "cpu", folder),
        "apart": losses(case, "apart", folder),
        "resumed": losses(case, "apart", folder, (1,)),
        "answers": [*evaluated(case, folder)],
    }


def refusal(check: Callable[[], object]) -> str:
    try:
        check()
    except LabError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    register(sys.argv[1])
    folder = Path(sys.argv[2])
    write_study(folder)
    with sdpa_kernel(SDPBackend.MATH):  # the attention of any device
        cases = {case: results(case, folder) for case in CASES}
    refusals = [
        refusal(lambda: check_dtype("update.dtype", "float16", torch.device("apart"))),
        refusal(lambda: device_of("apart:1")),
        refusal(lambda: device_of("tpu")),
        refusal(lambda: device_of("meta")),
    ]
    print(json.dumps({"cases": cases, "refusals": refusals}))
