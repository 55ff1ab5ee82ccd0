"""gspo-lab against TRL's GRPOTrainer: same model, prompts, samples, updates and optimizer, measured
side by side.

    pip install -c constraints.txt -e '.[train]' trl==1.16.0    # in an environment of its own
    python benchmarks/vs_trl.py step                    # one training step, one thread, one process
    python benchmarks/vs_trl.py study --rounds 2        # 2 arms x 3 seeds, from start to end
    python benchmarks/vs_trl.py vocabulary --steps 3    # 151,936 tokens: time and memory
    GSPO_LAB_SMOLLM2=FOLDER python benchmarks/vs_trl.py smollm2 --steps 2 --levels token
    python benchmarks/vs_trl.py step --model tiny-qwen3-moe --steps 12 --device cuda

Both start from the same cached warm start, whose making is in neither figure. A rollout batch has
32 prompts x 8 responses of at most 29 tokens and 4 mini-batches, with AdamW, without KL term and
evaluation. `vocabulary` takes two layers of Qwen3-0.6B's shape with random weights and its
vocabulary, 4 x 8 responses and 2 mini-batches; `smollm2` takes SmolLM2-135M-Instruct, whose folder
GSPO_LAB_SMOLLM2 names, with the same sizes.

Rewards: `own` is the addition task's grade, with the study's own share of groups without advantage.
A number sets that share exactly, by rewarding every other response of the other groups. With
`vocabulary` and `smollm2` every group has an advantage.

Neither side writes checkpoints within the measured steps; gspo-lab records everything that is
always recorded. With --rounds both sides take turns, and the best of each counts, in wall-clock and
in processor time. Prints both sides and the ratio, and writes them beside this file. Memory is the
peak within the measured steps: on a CPU the resident size of the process, on a GPU torch's
allocations.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vs_trl_sides import GROUP, MAX_TOKENS, RANGES, RATE, SIDES, WARMUP, WIDE, wide_model

PRESETS = {"token": "grpo", "sequence": "gspo"}
SIZES = {"step": (32, 4), "study": (32, 4), "vocabulary": (4, 2), "smollm2": (4, 2)}
"""Per benchmark the prompts of a rollout batch, and its mini-batches."""
STUDY = """
question = "How long does a step take?"
model = "{model}"
device = "{device}"
steps = {steps}
seeds = {seeds}
task = {task}
[warm_start]
steps = 1200
batch_size = 16
learning_rate = 4e-3
[rollout]
prompts_per_step = {prompts}
group_size = {group}
max_tokens = {max_tokens}
stop = ["\\n"]
[update]
minibatches = {minibatches}
learning_rate = {rate}
warmup_updates = {warmup}
checkpoint_every = 1000
"""

GRADER = """
import itertools
calls = itertools.count()

def grade(problem, answer):
    call = next(calls)
    return 0.0 if call // {group} % 10 < {tenths} else float(call % 2)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*SIZES, *SIDES])
    parser.add_argument("--model", default="tiny-qwen3", choices=["tiny-qwen3", "tiny-qwen3-moe"])
    parser.add_argument("--steps", type=int, default=12, help="rollout batches a run")
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often both sides are timed, in turns"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--levels", nargs="+", default=list(RANGES), choices=list(RANGES))
    parser.add_argument(
        "--shares",
        nargs="+",
        default=["own", "0", "0.3"],
        help="of groups without advantage, for step",
    )
    parser.add_argument(
        "--vocabulary", type=int, default=WIDE["vocab_size"], help="tokens, for vocabulary"
    )
    parser.add_argument("--out", type=Path, help="the JSON's place; default: beside this file")
    parser.add_argument("--wish", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what in SIDES:
        print(json.dumps(SIDES[options.what](json.loads(options.wish))))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GSPO_LAB_CACHE"] = str(
            Path(folder) / "cache"
        )  # its one warm start is the model of both sides
        bench = Bench(Path(folder), options)
        found = bench.study_table() if options.what == "study" else bench.steps_table()
    place = options.out or Path(__file__).with_name(f"vs_trl_{options.what}_{options.model}.json")
    place.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


class Bench:
    """Both sides on one model, in one folder."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.model = options.model
        self.steps, self.rounds, self.device = options.steps, options.rounds, options.device
        self.levels = options.levels
        self.prompts, self.minibatches = SIZES[options.what]
        self.shares = ["0"] if options.what in ("vocabulary", "smollm2") else options.shares
        if options.what == "vocabulary":
            self.model = str(wide_model(folder / "wide", options.vocabulary))
            self.start = folder / "wide"
        elif options.what == "smollm2":
            if (name := os.environ.get("GSPO_LAB_SMOLLM2")) is None:
                raise SystemExit("GSPO_LAB_SMOLLM2 names no folder of SmolLM2-135M-Instruct")
            self.model = name
            self.start = Path(name)
        else:
            self.run_study(self.study("warm", "own", ["token"], [0], steps=1))
            (self.start,) = (
                path.parent for path in (folder / "cache" / "warm-starts").glob("*/manifest.json")
            )

    def steps_table(self) -> list[dict[str, Any]]:
        rows = []
        for share in self.shares:
            for level in self.levels:
                wish = self.wish(share, level, seed=0, threads=1)
                each: dict[str, list[dict[str, float]]] = {"lab": [], "trl": []}
                for turn in range(self.rounds):
                    wish["study"] = str(
                        self.study(f"step-{share}-{level}-{turn}", share, [level], [0])
                    )
                    for side, found in each.items():
                        found.append(
                            json.loads(
                                command(self.side(side, wish), 1, self.device).splitlines()[-1]
                            )
                        )
                row: dict[str, Any] = {"share": share, "level": level, "rounds": each}
                for name in ("seconds_step", "processor_step", "peak_memory_bytes"):
                    row[name] = {
                        side: min(one[name] for one in found) for side, found in each.items()
                    }
                    row[name]["ratio"] = row[name]["lab"] / row[name]["trl"]
                rows.append(row)
                told = [f"{side} {tell(found)}" for side, found in each.items()]
                ratios = [
                    row[name]["ratio"]
                    for name in ("seconds_step", "processor_step", "peak_memory_bytes")
                ]
                print(
                    f"{Path(self.model).name} {level:8} zero-advantage {share:>3}:"
                    f" {' | '.join(told)} | lab / TRL {{:.2f}} of the time, {{:.2f}} of the"
                    " processor time, {:.2f} of the memory".format(*ratios),
                    flush=True,
                )
        return rows

    def study_table(self) -> dict[str, Any]:
        """Two arms x three seeds.

        TRL runs one after the other only in the first round, because that is slower.
        """
        cores = (os.cpu_count() or 1) if self.device == "cpu" else 2
        ways: dict[str, Callable[[int], None]] = {
            "lab": lambda turn: self.run_study(
                self.study(f"study-{turn}", "own", list(RANGES), [0, 1, 2])
            ),
            "trl, a run a core": lambda _: self.trl_runs(at_once=cores, threads=1),
            "trl, one after the other, all cores": lambda _: self.trl_runs(
                at_once=1, threads=cores
            ),
        }
        each: dict[str, list[dict[str, float]]] = {}
        for turn in range(self.rounds):
            for name, work in list(ways.items())[: None if turn == 0 else 2]:
                each.setdefault(name, []).append(timed(lambda work=work, turn=turn: work(turn)))  # type: ignore[misc]
                took = each[name][-1]
                told = f"{took['wall']:.1f} s, {took['processor']:.1f} s of processor time"
                print(f"{name}, 6 runs x {self.steps} steps: {told}", flush=True)
        best = {
            name: {what: min(one[what] for one in took) for what in took[0]}
            for name, took in each.items()
        }
        ratio = {
            what: best["lab"][what] / min(one[what] for name, one in best.items() if name != "lab")
            for what in best["lab"]
        }
        print(f"lab / TRL {ratio['wall']:.2f}, {ratio['processor']:.2f} of the processor time")
        return {
            "rounds": each,
            "ratio": ratio,
            "model": self.model,
            "steps": self.steps,
            "device": self.device,
        }

    def trl_runs(self, *, at_once: int, threads: int) -> None:
        levels = [(level, seed) for seed in range(3) for level in RANGES]
        waiting = [
            self.side("trl", self.wish("own", level, seed, threads)) for level, seed in levels
        ]
        running: list[subprocess.Popen[str]] = []
        while waiting or running:
            while waiting and len(running) < at_once:
                quiet = subprocess.DEVNULL
                environment = environment_of(threads, self.device)
                running.append(
                    subprocess.Popen(
                        waiting.pop(0), stdout=quiet, stderr=quiet, text=True, env=environment
                    )
                )
            for one in [one for one in running if one.poll() is not None]:
                if one.returncode:
                    raise SystemExit(f"a TRL run failed with code {one.returncode}")
                running.remove(one)
            time.sleep(0.05)

    def study(
        self,
        name: str,
        share: str,
        levels: Sequence[str],
        seeds: list[int],
        steps: int | None = None,
    ) -> Path:
        """A study's file."""
        task = '{name = "addition", digits = 2, hasty = 0.5}'
        text = STUDY.format(
            model=self.model,
            device=self.device,
            steps=steps or self.steps,
            seeds=seeds,
            task=task,
            prompts=self.prompts,
            group=GROUP,
            max_tokens=MAX_TOKENS,
            minibatches=self.minibatches,
            rate=RATE,
            warmup=WARMUP,
        )
        if share != "own":
            tenths = round(10 * float(share))
            (self.folder / f"grader{tenths}.py").write_text(
                GRADER.format(group=GROUP, tenths=tenths)
            )
            problems = [json.dumps({"prompt": text_, "reference": ""}) for text_ in prompts()]
            (self.folder / "problems.jsonl").write_text("\n".join(problems))
            own = (
                f'{{name = "grader{tenths}.py:grade", problems = "problems.jsonl", max_tokens ='
                f" {MAX_TOKENS}}}"
            )
            # The starting model is the addition task's: a folder, as TRL gets it.
            text = text.replace(task, own).replace(
                f'model = "{self.model}"', f'model = "{self.start}"'
            )
            text = text.replace("steps = 1200", "steps = 0")
        path = self.folder / f"{name}.toml"
        arms = [f'[arm.{PRESETS[level]}]\nobjective = "{PRESETS[level]}"\n' for level in levels]
        path.write_text(text + "".join(arms))
        return path

    def run_study(self, path: Path) -> None:
        """The user's command: runs, records, report."""
        places = ["--runs", str(self.folder / "runs"), "--output-dir", str(self.folder / "reports")]
        jobs = ["--jobs", "2"] if self.device == "cuda" else []  # as many as TRL has at once
        command(
            [sys.executable, "-m", "gspo_lab.cli", "run", str(path), *places, *jobs],
            None,
            self.device,
        )

    def wish(self, share: str, level: str, seed: int, threads: int) -> dict[str, Any]:
        return {
            "model": str(self.start),
            "share": share,
            "level": level,
            "seed": seed,
            "threads": threads,
            "device": self.device,
            "steps": self.steps,
            "prompts": self.prompts,
            "minibatches": self.minibatches,
            "out": str(self.folder / "trl"),
            "runs": str(self.folder / "runs"),
        }

    def side(self, name: str, wish: dict[str, Any]) -> list[str]:
        return [sys.executable, __file__, name, "--wish", json.dumps(wish)]


def prompts() -> list[str]:
    from gspo_lab.tasks import build_task

    return [
        problem.prompt
        for problem in build_task("addition", {"digits": 2}, Path()).problems("train")
    ]


def timed(work: Callable[[], None]) -> dict[str, float]:
    """Wall-clock seconds, and processor seconds of all child processes."""

    def now() -> tuple[float, float]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.perf_counter(), used.ru_utime + used.ru_stime

    began = now()
    work()
    return {name: b - a for name, a, b in zip(("wall", "processor"), began, now(), strict=True)}


def command(line: list[str], threads: int | None, device: str) -> str:
    done = subprocess.run(
        line, capture_output=True, text=True, env=environment_of(threads, device), check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(line[:4])} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def environment_of(threads: int | None, device: str) -> dict[str, str]:
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {
        **os.environ,
        **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}),
        "HF_HUB_OFFLINE": "1",
        **own,
    }


def tell(rounds: list[dict[str, float]]) -> str:
    best = min(rounds, key=lambda one: one["seconds_step"])
    return (
        f"{1e3 * best['seconds_step']:.0f} ms ({best['response_tokens']:.1f} tokens a response,"
        f" {best['zero_share']:.0%} of groups without advantage,"
        f" {best['peak_memory_bytes'] / 1e9:.2f} GB)"
    )


if __name__ == "__main__":
    main()
