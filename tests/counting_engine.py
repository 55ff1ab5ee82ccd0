"""A real engine that trains nothing: it counts.

Its numbers follow from arm, seed and step, so that a test knows them.

behaviour.json beside the study sets how it behaves: {"fail": {"arm/s0": how}, "hold": {"arm/s0":
step}, "deaf": false, "right": {"arm/s0": problems}, "bonus": {"arm": reward}}. A held run stays in
the middle of that step until it is asked to stop, or with "deaf" until its conductor is gone.
"""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import AnswerRecord, RunStatus, StepRecord, UpdateRecord
from gspo_lab.study import Run
from gspo_lab.training.engines.base import Sink, Stop


def reward(run: Run, step: int) -> float:
    return 0.5 + 0.01 * step + 0.001 * run.seed + (0.1 if run.arm == "b" else 0.0)


class CountingEngine:
    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        behaviour = json.loads((Path(run.base) / "behaviour.json").read_text())
        name = f"{run.arm}/s{run.seed}"
        failure = behaviour["fail"].get(name)
        if failure == "lab":
            raise LabError("the counting engine has run out of fingers; buy gloves")
        saved = folder / "checkpoints" / "count.json"
        first = json.loads(saved.read_text()) if saved.exists() else 0
        sink.write(
            [
                RunStatus(
                    state="started",
                    step=first,
                    at=time.time(),
                    facts={"warm_start": run.warm_start},
                )
            ]
        )
        if first == 0:
            sink.write(answers(run, 0, 0))
        for step in range(first, run.settings.steps):
            if stop():
                save(saved, step)
                return False
            if behaviour["hold"].get(name) == step:
                stay(
                    held_mark(Path(run.base), name), (lambda: False) if behaviour["deaf"] else stop
                )
            if failure == "crash" and step == 2:
                raise ZeroDivisionError("the counting engine divided by its conscience")
            if failure in ("exit 0", "exit 7") and step == 2:
                leave(int(failure[-1]), folder)
            sink.write(
                [
                    *updates(run, step),
                    record(
                        run,
                        step,
                        behaviour["bonus"].get(run.arm, 0.0),
                        behaviour.get("flat", False),
                    ),
                ]
            )
            if step + 1 < run.settings.steps and any(
                step + 1 in one.moments(step + 2) for one in run.settings.bench
            ):
                sink.write(answers(run, step + 1, right(run, behaviour)))
            if (step + 1) % run.settings.update.checkpoint_every == 0:
                save(saved, step + 1)
        sink.write(answers(run, run.settings.steps, right(run, behaviour)))
        save(saved, run.settings.steps)
        return True


def leave(code: int, folder: Path) -> None:
    """End the process as a grader may, a child of it still at work."""
    child = subprocess.Popen(["sleep", "600"])
    (folder / "child").write_text(str(child.pid))
    os._exit(code)


def held_mark(base: Path, name: str) -> Path:
    """The file that is there as soon as the run `name`, "arm/s0", is held."""
    return base / f"held-{name.replace('/', '-')}"


def stay(mark: Path, stop: Stop) -> None:
    parent = os.getppid()
    mark.touch()
    while not stop() and os.getppid() == parent:
        time.sleep(0.02)


def right(run: Run, behaviour: JsonObject) -> int:
    """How many problems a run answers right: b one more than a, unless it is told otherwise."""
    return int(behaviour["right"].get(f"{run.arm}/s{run.seed}", 6 if run.arm == "b" else 5))


def record(run: Run, step: int, bonus: float, flat: bool) -> StepRecord:
    rollout = run.settings.rollout
    return StepRecord(
        step=step,
        prompts=rollout.prompts_per_step,
        responses=rollout.prompts_per_step * rollout.group_size,
        reward_mean=reward(run, step) + bonus,
        zero_variance_groups=float(flat),
        seconds_step=2.0,
        seconds_rollout=1.0,
    )


def updates(run: Run, step: int) -> list[UpdateRecord]:
    """Clipping and log-ratios grow with the mini-batch; the first one has none.

    Odd steps have three times the tokens and clip twice as much.
    """
    out = []
    for minibatch in range(run.settings.update.minibatches):
        detail: dict[str, list[Any]] | None = None
        if run.settings.record.token_detail:
            moves = [0.001 * minibatch * (i + 1) for i in range(50)]
            detail = {
                "length": [1] * 100,
                "advantage": [1.0] * 50 + [-1.0] * 50,
                "sum_log_ratio": [*moves, *(-move for move in moves)],
                "log_ratios": [*([move] for move in moves), *([-move] for move in moves)],
            }
        out.append(
            UpdateRecord(
                step=step,
                minibatch=minibatch,
                clip_fraction_tokens=0.1 * minibatch * (1 + step % 2),
                response_tokens=100 * (1 + 2 * (step % 2)),
                nonfinite=0,
                response_detail=detail,
            )
        )
    return out


def answers(run: Run, step: int, right: int) -> list[AnswerRecord]:
    """To ten problems, of which the first `right` are answered right."""
    return [
        AnswerRecord(
            step=step,
            bench=bench.name,
            problem=f"p{i}",
            sample=0,
            text="?",
            tokens=1,
            reward=float(i < right),
            correct=int(i < right),
        )
        for bench in run.settings.bench
        for i in range(10)
    ]


def save(path: Path, steps: int) -> None:
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(steps))
    partial.replace(path)
