"""Run folders as a finished study leaves them."""

from pathlib import Path

from laboratory import declare, leave

from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.study import Run, load_study

STUDY = """\
# Is this study only here to be looked at?
question = "Is {name} only here to be looked at?"
task = "addition"
seeds = {seeds}
steps = 4

[update]
minibatches = 2

[[bench]]
name = "sums"
problems = 4
every = 4

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""


def tree(folder: Path) -> list[str]:
    """Every path below the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def write_study(folder: Path, name: str = "seen", seeds: int = 2) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(STUDY.format(name=name, seeds=seeds), encoding="utf-8")
    return path


def leave_runs(path: Path, runs: Path, *, at: float = 1000.0, unfinished: str = "") -> None:
    """The run folders that conducting the study `path` leaves.

    The run of arm/seed `unfinished` has only begun.
    """
    study = load_study(path)
    declare(study, runs)
    for run in study.runs():
        if f"{run.arm}/s{run.seed}" == unfinished:
            leave(run, runs, _records(run, at, 1))
        else:
            end = RunStatus(state="finished", step=run.settings.steps, at=at + 60)
            leave(run, runs, [*_records(run, at, run.settings.steps), end])


def _records(run: Run, at: float, steps: int) -> list[Record]:
    gain = 0.1 if run.arm == "gspo" else 0.0
    out: list[Record] = [
        RunStatus(state="started", step=0, at=at, facts={"device": "cpu"}),
        *_answers(0, 1),
    ]
    for step in range(steps):
        out += [
            UpdateRecord(
                step=step,
                minibatch=index,
                response_tokens=100,
                clipped_tokens=10 * index,
                clip_fraction_tokens=0.1 * index,
                grad_norm=1.0 + run.seed * 1e-9,  # no two seeds have the very same
                nonfinite=0,
            )
            for index in range(run.settings.update.minibatches)
        ]
        out.append(StepRecord(step=step, prompts=32, responses=256, reward_mean=step / 10 + gain))
    return [*out, *(_answers(steps, 3 if gain else 2) if steps == run.settings.steps else [])]


def _answers(step: int, right: int) -> list[Record]:
    return [
        AnswerRecord(
            step=step,
            bench="sums",
            problem=f"p{index}",
            sample=0,
            text="#4",
            tokens=3,
            truncated=0,
            reward=float(index < right),
            correct=int(index < right),
        )
        for index in range(4)
    ]
