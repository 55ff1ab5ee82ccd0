"""Ten broken trainings and ten healthy ones: what `gspo-lab diagnose` says of each.

    python benchmarks/diagnose_trainings.py [--work FOLDER]

Every training is real: the native engine, a built-in model, 24 steps of 64 responses at most. A
broken one has one declared fault, and the signal that must tell it. Any other warning or error is
listed as said besides; of a healthy training it is a false alarm. The script ends with the tables
of docs/how-to/diagnose-a-log.md. A folder with finished runs is not trained again.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gspo_lab.analysis.diagnosis import diagnose, read_log
from gspo_lab.exchange.importers import RunSpec
from gspo_lab.running.conduct import conduct
from gspo_lab.study import load_study

HEAD = """
question = "What does gspo-lab diagnose say of this training?"
model = "{model}"
seeds = [{seeds}]
steps = 24
[task]
{task}
[warm_start]
steps = {warm_start}
batch_size = 16
learning_rate = 4e-3
[rollout]
prompts_per_step = 8
group_size = 8
[update]
learning_rate = {rate}
minibatches = 4
warmup_updates = 8
[[bench]]
name = "addition"
problems = 128
every = 24
[waive]
aggregation-label = "a fault made on purpose"
"""
SUMS = 'name = "addition"\ndigits = 2\nhasty = 0.5'
ONES = """
from dataclasses import replace

from gspo_lab.tasks.addition import Addition


class Ones(Addition):
    def grade(self, problem, answer):
        share = answer.count("1") / max(1, len(answer))
        return replace(super().grade(problem, answer), reward=share)
"""
"""A task whose best answer is the same to every question, so that the entropy collapses."""
CALIBRATED = "clip_low = 0.0336\nclip_high = 0.0046"


@dataclass(frozen=True)
class Training:
    """One training. `signal` is what must be found; None: it is healthy."""

    name: str
    arm: str
    signal: str | None = None
    model: str = "tiny-qwen3"
    task: str = SUMS
    warm_start: int = 1000
    rate: str = "2e-4"
    seeds: str = "0"


BROKEN = (
    Training("wrong range", 'objective = "gspo"\nclip_low = 0.2\nclip_high = 0.27', signal="range"),
    Training("ratio 1", 'objective = "gspo"\nupdate = {minibatches = 1}', signal="ratios"),
    Training(
        "token aggregation",
        'objective = "gspo"\naggregation = "token-mean"',
        signal="aggregation",
    ),
    Training(
        "collapsed entropy",
        'objective = "grpo"',
        signal="entropy",
        task=SUMS.replace("addition", "ones.py:Ones"),
        warm_start=300,
        rate="1e-3",
    ),
    Training("truncated answers", 'objective = "grpo"\nrollout = {max_tokens = 6}', "truncated"),
    Training("stale rollouts", 'objective = "grpo"\nrollout = {staleness = 3}', "staleness"),
    Training(
        "bfloat16 mismatch",
        'objective = "gspo"\nrollout = {dtype = "bfloat16"}\nupdate = {old_logprobs = "sampler"}',
        signal="old-log-probs",
    ),
    Training(
        "no replay",
        'objective = "grpo"\nrouting_replay = "none"',
        signal="routing-replay",
        model="tiny-qwen3-moe-fresh",
        rate="9e-4",
    ),
    Training("no signal", 'objective = "grpo"', signal="no-signal", warm_start=0),
    Training("reward fall", 'objective = "grpo"', signal="reward", rate="1e-2"),
)
HEALTHY = (
    Training("grpo", 'objective = "grpo"'),
    Training("grpo, another seed", 'objective = "grpo"', seeds="1"),
    Training("gspo, the paper's range", 'objective = "gspo"'),
    Training("gspo, another seed", 'objective = "gspo"', seeds="1"),
    Training("gspo, a calibrated range", f'objective = "gspo"\n{CALIBRATED}'),
    Training("gspo-token", 'objective = "gspo-token"'),
    Training("dapo", 'objective = "dapo"'),
    Training("cispo", 'objective = "cispo"'),
    Training(
        "gspo, the sampler's log-probs in float32",
        f'objective = "gspo"\n{CALIBRATED}\nupdate = {{old_logprobs = "sampler"}}',
    ),
    Training(
        "grpo with replay",
        'objective = "grpo"\nrouting_replay = "old-policy"',
        model="tiny-qwen3-moe-fresh",
    ),
)


def trained(training: Training, number: int, work: Path) -> Path:
    """The folder of the training's run, which is trained where it is not yet."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "ones.py").write_text(ONES)
    toml = work / f"t{number:02}.toml"
    values = {**vars(training), "seeds": training.seeds}
    arm = f"[arm.one]\n{training.arm}\n"
    toml.write_text(HEAD.format(**values) + arm)
    study = load_study(toml)
    folder = next(iter(study.runs())).folder(work / "runs")
    if not (folder / "checkpoints" / "final").is_dir():
        conduct(study, work / "runs", jobs=1, console=Console(), live=False)
    return folder


def main() -> None:
    """Train, diagnose, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/_diagnose"))
    parser.add_argument("--only", type=int, nargs="*", help="numbers of trainings, from 0")
    chosen = parser.parse_args()
    found = alarms = 0
    print("| training | must say | says | says besides |\n|---|---|---|---|")
    for number, training in enumerate(BROKEN + HEALTHY):
        if chosen.only and number not in chosen.only:
            continue
        folder = trained(training, number, chosen.work)
        signals = diagnose(read_log(RunSpec(path=str(folder)))).signals
        raised = {one.name: one for one in signals if one.level in ("warn", "error")}
        wanted = raised.pop(training.signal or "", None)
        said = f"{wanted.level}: {wanted.value}" if wanted else "nothing"
        others = "; ".join(f"{one.name} {one.level}: {one.value}" for one in raised.values())
        print(f"| {training.name} | {training.signal or 'nothing'} | {said} | {others} |")
        found += wanted is not None
        alarms += training.signal is None and bool(raised)
    print(f"\nfound {found} of {len(BROKEN)}; alarms in {alarms} of {len(HEALTHY)} healthy ones")


if __name__ == "__main__":
    main()
