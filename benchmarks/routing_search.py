"""A search for changing routing: small mixtures of experts train for a few steps, and every trial
is recorded.

    python benchmarks/routing_search.py [--work FOLDER] [TRIAL ...]

A trial has a warm start and a few steps of GRPO, or of GRPO with and without replay of the old
policy's experts. The warm start trains a mixture of experts on sums, half of them answered in
haste, with seed 100, which no study uses. The goal is 5 to 10 % of natural experts changed by the
last mini-batch of a rollout batch. With stale rollouts the experts of the sampling policy differ
before the first update. A column has their share, for the arm that replays them.

Each trial is a line below, written before it ran. Its result, or its failure, goes into the JSON
beside this file, and a trial with a result does not run again. The script ends with the table of
docs/results/routing.md.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from gspo_lab.common.errors import LabError
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.conduct import conduct
from gspo_lab.study import load_study
from gspo_lab.study.schema import WarmStart
from gspo_lab.tasks.addition import Addition
from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.models.routing import Routers
from gspo_lab.training.models.warm_start import freeze_routers, train

SEED = 100
START = WarmStart(steps=1200, batch_size=16, learning_rate=4e-3)
RESULTS = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Trial:
    """One line of the search; omitted settings are those of `moe_stability`."""

    name: str
    shape: dict[str, int] = field(default_factory=dict)
    routers: Literal["trained", "drawn"] = "trained"
    """Whether the warm start trains the routers or leaves them as drawn."""
    router_scale: float = 1.0
    """Factor on the routers' weights after the warm start: first choices stay, gaps shrink."""
    digits: int = 2
    learning_rate: float = 9e-4
    minibatches: int = 4
    epochs: int = 1
    steps: int = 8
    staleness: int = 0
    """How many rollout batches older the sampling policy is."""
    replay: bool = False
    """Whether GRPO also runs with replay: of the old policy's experts, or with stale rollouts of
    the sampler's.
    """


TRIALS = (
    # Change one setting at a time from moe_stability's (16 experts, 2 active, 4 layers, 9e-4).
    # First come settings that share its warm start, then shapes.
    Trial("base"),
    Trial("router x .5", router_scale=0.5),
    Trial("router x .25", router_scale=0.25),
    Trial("router x .1", router_scale=0.1),
    Trial("routers as drawn", routers="drawn"),
    Trial("half the rate", learning_rate=4.5e-4),
    Trial("8 mini-batches, half the rate", minibatches=8, learning_rate=4.5e-4),
    Trial("16 mini-batches, a quarter of the rate", minibatches=16, learning_rate=2.25e-4),
    Trial("2 epochs, half the rate", epochs=2, learning_rate=4.5e-4),
    Trial("4 active", {"experts_per_token": 4}),
    Trial("8 active", {"experts_per_token": 8}),
    Trial("64 experts", {"experts": 64}),
    Trial("64 experts, 8 active", {"experts": 64, "experts_per_token": 8}),
    Trial(
        "64 experts, 4 active, as drawn", {"experts": 64, "experts_per_token": 4}, routers="drawn"
    ),
    Trial("8 layers", {"layers": 8}),
    Trial("4 digits", digits=4),
    # Routers as drawn change 5 to 10 % of the choices. At these rates the other mixture is stable
    # (4.5e-4, 6e-4) or unstable (9e-4), so replay could help.
    Trial(
        "as drawn x .5, 4.5e-4",
        routers="drawn",
        router_scale=0.5,
        learning_rate=4.5e-4,
        steps=20,
        replay=True,
    ),
    Trial("as drawn, 6e-4", routers="drawn", learning_rate=6e-4, steps=20, replay=True),
    Trial("as drawn, 9e-4", routers="drawn", steps=16, replay=True),
    Trial(
        "as drawn x .25, 3e-4",
        routers="drawn",
        router_scale=0.25,
        learning_rate=3e-4,
        steps=20,
        replay=True,
    ),
    Trial("as drawn, 7.5e-4", routers="drawn", learning_rate=7.5e-4, steps=20, replay=True),
    # More mini-batches at a lower rate change as many choices, and the policy less.
    Trial(
        "as drawn, 16 mini-batches, 2.25e-4",
        routers="drawn",
        learning_rate=2.25e-4,
        minibatches=16,
        steps=16,
        replay=True,
    ),
    Trial(
        "as drawn, 8 mini-batches, 4.5e-4",
        routers="drawn",
        learning_rate=4.5e-4,
        minibatches=8,
        steps=16,
        replay=True,
    ),
    Trial(
        "as drawn x .25, 4.5e-4",
        routers="drawn",
        router_scale=0.25,
        learning_rate=4.5e-4,
        steps=20,
        replay=True,
    ),
    # Added after all above had run: a tenth of the choices changed and GRPO's reward fell.
    Trial(
        "64 experts, 4 active, as drawn, replay",
        {"experts": 64, "experts_per_token": 4},
        routers="drawn",
        steps=16,
        replay=True,
    ),
    # Stale rollouts, added last: changes before the first update, with trained routers and with
    # routers as drawn. Only arms with replay record the sampler's experts.
    Trial("1 batch stale", staleness=1, steps=12, replay=True),
    Trial("2 batches stale", staleness=2, steps=12, replay=True),
    Trial("4 batches stale", staleness=4, steps=12, replay=True),
    Trial(
        "as drawn, 6e-4, 1 batch stale",
        routers="drawn",
        learning_rate=6e-4,
        staleness=1,
        steps=20,
        replay=True,
    ),
    Trial(
        "as drawn, 6e-4, 4 batches stale",
        routers="drawn",
        learning_rate=6e-4,
        staleness=4,
        steps=20,
        replay=True,
    ),
)

STUDY = """
question = "How much of the routing moves?"
model = "{model}"
device = "cpu"
seeds = [{seed}]
steps = {steps}
task = {{name = "addition", digits = {digits}, hasty = 0.5}}
[rollout]
prompts_per_step = 32
group_size = 8
staleness = {staleness}
[update]
minibatches = {minibatches}
epochs = {epochs}
learning_rate = {learning_rate}
warmup_updates = {warmup}
checkpoint_every = 1000
[arm.grpo]
objective = "grpo"
routing_replay = "none"
"""
REPLAY = """
[arm.grpo-replay]
objective = "grpo"
routing_replay = "{source}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="*", help="names; all where none is given")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/routing_search"), help="folder of starts and runs"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for trial in TRIALS:
        if trial.name in found or (options.trials and trial.name not in options.trials):
            continue
        began = time.monotonic()
        try:
            result = carried_out(trial, options.work)
        except LabError as error:
            result = {"failed": str(error)}
        result["seconds"] = round(time.monotonic() - began)
        found[trial.name] = {"settings": asdict(trial), **result}
        print(trial.name, json.dumps(result), flush=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(
        "| trial | arm | sampled by others | after one update | by the last | tokens | clipped | k3"
        " | reward |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, result in found.items():
        if "failed" in result:
            print(f"| {name} | | failed: {result['failed']} |")
        for arm in ("grpo", "grpo-replay"):
            if arm in result:
                print(f"| {name} | {arm} | {' | '.join(cells(result[arm]))} |")


def cells(one: dict[str, Any]) -> list[str]:
    """One arm's numbers as in the table: shares in per cent; the first, best and last reward."""
    changed = ("changed after one update", "changed by the last", "tokens with any changed")
    shares = ("sampled by others", *changed, "clipped")
    rewards = [reward for reward in one["reward"] if reward is not None]
    course = f"{rewards[0]:.2f} {max(rewards):.2f} {fmean(rewards[-3:]):.2f}" if rewards else "-"
    k3 = "-" if one["k3"] is None else f"{one['k3']:.3f}"
    return [
        *("-" if one.get(key) is None else f"{100 * one[key]:.1f} %" for key in shares),
        k3,
        course,
    ]


def carried_out(trial: Trial, work: Path) -> dict[str, Any]:
    """Each arm's numbers, and how its run ended."""
    work.mkdir(parents=True, exist_ok=True)
    toml = work / f"{trial.name.replace(' ', '-').replace(',', '')}.toml"
    warmup = 2 * trial.minibatches * trial.epochs
    values = {**asdict(trial), "model": start(trial, work), "seed": SEED, "warmup": warmup}
    replayed = REPLAY.format(source="rollout" if trial.staleness else "old-policy")
    toml.write_text(STUDY.format(**values) + (replayed if trial.replay else ""))
    study = load_study(toml)
    done = conduct(study, work / "runs", jobs=1, console=Console(), live=False)
    if done.interrupted:
        raise SystemExit(130)
    arms = {
        run.arm: numbers(RunFolder(run.folder(work / "runs")), trial.staleness)
        for run in study.runs()
    }
    return {**arms, "endings": [one.line for one in done.results]}


def start(trial: Trial, work: Path) -> Path:
    """The folder of the trial's starting model; trials that differ only in the routers' scale share
    the training.
    """
    shape = "-".join(f"{key}{value}" for key, value in trial.shape.items()) or "base"
    trained = work / "starts" / f"{shape}-{trial.routers}-{trial.digits}"
    scaled = trained.with_name(f"{trained.name}-{trial.router_scale:g}")
    if not trained.is_dir():
        model = build("tiny-qwen3-moe", SEED, trial.shape)
        if trial.routers == "drawn":
            freeze_routers(model)
        shown = list(Addition(digits=trial.digits, hasty=0.5).problems("train"))
        train(model, byte_tokenizer(), shown, START, SEED)
        model.save_pretrained(trained)
    if not scaled.is_dir():
        model = AutoModelForCausalLM.from_pretrained(trained)
        routers = Routers.of(model)
        assert routers is not None
        with torch.no_grad():
            for parameter in routers.parameters:
                parameter.mul_(trial.router_scale)
        model.save_pretrained(scaled)
        byte_tokenizer().save_pretrained(scaled)
    return scaled.resolve()


def numbers(folder: RunFolder, staleness: int) -> dict[str, Any]:
    """Means over the steps at the full learning rate and lag, and the reward's course."""
    steps = folder.records(StepRecord.kind)
    full = [one for one in steps if one["step"] >= max(2, staleness)]
    updates = [one for one in folder.records(UpdateRecord.kind) if one["step"] >= max(2, staleness)]
    end = max((one["minibatch"] for one in updates), default=None)
    last = [one for one in updates if one["minibatch"] == end]
    layers = [one["expert_change_layers"] for one in last if one.get("expert_change_layers")]

    def mean(rows: list[dict[str, Any]], name: str) -> float | None:
        known = [row[name] for row in rows if row.get(name) is not None]
        return fmean(known) if known else None

    return {
        "sampled by others": mean(full, "route_gap"),
        "changed after one update": mean(
            [one for one in updates if one["minibatch"] == 1], "expert_change"
        ),
        "changed by the last": mean(last, "expert_change"),
        "by layer": [fmean(layer) for layer in zip(*layers, strict=True)],
        "tokens with any changed": mean(last, "expert_change_any_tokens"),
        "clipped": mean(
            [one for one in updates if one["minibatch"]], "clip_fraction_active_tokens"
        ),
        "k3": mean([one for one in updates if one["minibatch"]], "stale_k3"),
        "router entropy": mean(updates, "router_entropy"),
        "reward": [
            None if one.get("reward_mean") is None else round(one["reward_mean"], 3)
            for one in steps
        ],
        "mismatch k3": mean(full, "mismatch_k3"),
        "tokens": mean(steps, "response_tokens_mean"),
        "seconds a step": mean(steps, "seconds_step"),
    }


if __name__ == "__main__":
    main()
