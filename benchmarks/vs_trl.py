"""The lab against TRL's GRPOTrainer: same model, prompts, samples, updates and optimizer, measured side by side.

    pip install -c constraints.txt -e '.[train]' trl==1.16.0     # in an environment of its own
    python benchmarks/vs_trl.py step                             # one training step, one thread, one process
    python benchmarks/vs_trl.py study                            # 2 arms x 3 seeds, from the command to the last run
    python benchmarks/vs_trl.py vocabulary --steps 2             # 151,936 tokens in the vocabulary: time and memory
    python benchmarks/vs_trl.py step --model tiny-qwen3-moe --steps 12

Both start from the model that the lab warm-starts and caches first; making it is in neither figure. 32 prompts x 8
responses of at most 29 tokens a rollout batch, 4 mini-batches, AdamW, no KL term, no evaluation. Rewards: `own` is the
addition task's grade, so the share of groups without advantage is the study's own; a number makes it exactly that
share, by rewarding every other response of the other groups. `vocabulary` takes two layers of Qwen3-0.6B's shape with
random weights and its vocabulary, 4 x 8 responses, 2 mini-batches, no group without advantage. Neither side checkpoints
within the measured steps, and the lab records everything that it always records. Prints both sides and the ratio, and
writes them beside this file. Memory is the process's highest resident size.
"""

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GROUP, MAX_TOKENS = 8, 29
RATE, WARMUP = 2e-4, 20
RANGES = {"token": (0.2, 0.27), "sequence": (3e-4, 4e-4)}
FIRST = 3
"""Steps left out of the median: caches warm up."""
SIZES = {"step": (32, 4), "study": (32, 4), "vocabulary": (4, 2)}
"""Per benchmark the prompts of a rollout batch, and its mini-batches."""
WIDE = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}

STUDY = """
question = "How long does a step take?"
model = "{model}"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "study", "vocabulary", "trl"])
    parser.add_argument("--model", default="tiny-qwen3", choices=["tiny-qwen3", "tiny-qwen3-moe"])
    parser.add_argument("--steps", type=int, default=12, help="rollout batches a run")
    parser.add_argument("--wish", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "trl":
        print(json.dumps(trl_run(json.loads(options.wish))))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GSPO_LAB_CACHE"] = str(Path(folder) / "cache")
        bench = Bench(Path(folder), options.what, options.model, options.steps)
        found = bench.study_table() if options.what == "study" else bench.steps_table()
    place = Path(__file__).with_name(f"vs_trl_{options.what}_{options.model}.json")
    place.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


class Bench:
    """Both sides on one model, in one folder."""

    def __init__(self, folder: Path, what: str, model: str, steps: int) -> None:
        self.folder = folder
        self.model = model
        self.steps = steps
        self.prompts, self.minibatches = SIZES[what]
        self.shares = ["0"] if what == "vocabulary" else ["own", "0", "0.3"]
        if what == "vocabulary":
            self.model, self.start = "151,936 tokens", wide_model(folder / "wide")
        else:
            self.lab("warm", "own", {"grpo": "grpo"}, [0], steps=1)
            (self.start,) = (path.parent for path in (folder / "cache" / "warm-starts").glob("*/manifest.json"))

    def steps_table(self) -> list[dict[str, Any]]:
        rows = []
        for share in self.shares:
            for level, arm in (("token", "grpo"), ("sequence", "gspo")):
                ours = self.lab(f"step-{share}-{arm}", share, {arm: arm}, [0])
                wish = self.wish(share, level, seed=0, threads=1)
                theirs = json.loads(command(self.trl(wish), threads=1).splitlines()[-1])
                ratio, memory = (ours[name] / theirs[name] for name in ("seconds_step", "peak_memory_bytes"))
                rows.append(
                    {"share": share, "level": level, "lab": ours, "trl": theirs, "ratio": ratio, "memory": memory}
                )
                print(
                    f"{self.model} {level:8} zero-advantage {share:>3}: lab {told(ours)} | TRL {told(theirs)} | "
                    f"lab / TRL {ratio:.2f} of the time, {memory:.2f} of the memory",
                    flush=True,
                )
        return rows

    def study_table(self) -> dict[str, Any]:
        began = time.perf_counter()
        self.lab("study", "own", {"grpo": "grpo", "gspo": "gspo"}, [0, 1, 2])
        found = {"lab": time.perf_counter() - began}
        print(f"lab, 6 runs x {self.steps} steps with its report: {found['lab']:.1f} s", flush=True)
        levels = [(level, seed) for seed in range(3) for level in ("token", "sequence")]
        cores = os.cpu_count() or 1
        for name, at_once, threads in (("one after the other, all cores", 1, cores), ("a run a core", cores, 1)):
            began = time.perf_counter()
            waiting = [self.trl(self.wish("own", level, seed, threads)) for level, seed in levels]
            running: list[subprocess.Popen[str]] = []
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(started(waiting.pop(0), threads))
                for one in [one for one in running if one.poll() is not None]:
                    if one.returncode:
                        raise SystemExit(f"a TRL run failed with code {one.returncode}")
                    running.remove(one)
                time.sleep(0.05)
            found[f"trl, {name}"] = time.perf_counter() - began
            print(f"TRL, the same runs, {name}: {found[f'trl, {name}']:.1f} s", flush=True)
        best = min(value for name, value in found.items() if name != "lab")
        print(f"lab / TRL {found['lab'] / best:.2f}")
        return {**found, "ratio": found["lab"] / best, "model": self.model, "steps": self.steps}

    def lab(
        self, name: str, share: str, arms: dict[str, str], seeds: list[int], steps: int | None = None
    ) -> dict[str, Any]:
        """Run a study; the medians of its steps."""
        task = '{name = "addition", digits = 2, hasty = 0.5}'
        text = STUDY.format(
            model=self.model,
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
            (self.folder / f"grader{tenths}.py").write_text(GRADER.format(group=GROUP, tenths=tenths))
            problems = [json.dumps({"prompt": text_, "reference": ""}) for text_ in prompts()]
            (self.folder / "problems.jsonl").write_text("\n".join(problems))
            own = f'{{name = "grader{tenths}.py:grade", problems = "problems.jsonl", max_tokens = {MAX_TOKENS}}}'
            # The start is the one that the addition task made: a folder, as TRL gets it.
            text = text.replace(task, own).replace(f'model = "{self.model}"', f'model = "{self.start}"')
            text = text.replace("steps = 1200", "steps = 0")
        path = self.folder / f"{name}.toml"
        path.write_text(text + "".join(f'[arm.{arm}]\nobjective = "{preset}"\n' for arm, preset in arms.items()))
        runs = self.folder / "runs"
        jobs = ["--jobs", "1"] if len(arms) * len(seeds) == 1 else []
        line = ["run", str(path), "--runs", str(runs), "--reports", str(self.folder / "reports"), *jobs]
        command([sys.executable, "-m", "gspo_lab", *line], threads=None)
        query = """
            SELECT seconds_step, seconds_rollout, seconds_old_logprobs, seconds_update, response_tokens_mean,
                   zero_variance_groups, peak_memory_bytes
            FROM steps JOIN runs USING (run_id) WHERE study = ? AND step >= ?"""
        rows = sqlite3.connect(runs / "lab.db").execute(query, (name, min(FIRST, (steps or self.steps) - 1))).fetchall()
        names = ("seconds_step", "seconds_rollout", "seconds_old", "seconds_update", "response_tokens", "zero_share",
                 "peak_memory_bytes")  # fmt: skip
        return {key: statistics.median(column) for key, column in zip(names, zip(*rows, strict=True), strict=True)}

    def wish(self, share: str, level: str, seed: int, threads: int) -> dict[str, Any]:
        return {
            "model": str(self.start),
            "share": share,
            "level": level,
            "seed": seed,
            "threads": threads,
            "steps": self.steps,
            "prompts": self.prompts,
            "minibatches": self.minibatches,
            "out": str(self.folder / "trl"),
        }

    def trl(self, wish: dict[str, Any]) -> list[str]:
        return [sys.executable, __file__, "trl", "--wish", json.dumps(wish)]


def trl_run(wish: dict[str, Any]) -> dict[str, float]:
    """One run of GRPOTrainer, in this process; the medians of its rollout batches (MINIBATCHES updates each)."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from gspo_lab.tasks import build_task

    torch.set_num_threads(wish["threads"])
    minibatches = wish["minibatches"]
    task = build_task("addition", {"digits": 2, "hasty": 0.5}, Path())
    problems = {problem.prompt: problem for problem in task.problems("train")}
    lengths: list[float] = []
    shares: list[float] = []

    def reward(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        if wish["share"] == "own":
            found = [
                float(task.grade(problems[prompt], text.removesuffix("\n")).reward or 0.0)
                for prompt, text in zip(prompts, completions, strict=True)
            ]
        else:
            tenths = round(10 * float(wish["share"]))
            found = [0.0 if i // GROUP % 10 < tenths else float(i % 2) for i in range(len(prompts))]
        groups = [found[i : i + GROUP] for i in range(0, len(found), GROUP)]
        shares.append(sum(min(one) == max(one) for one in groups) / len(groups))
        lengths.append(sum(map(len, completion_ids)) / len(completion_ids))
        return found

    class Watch(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.at = [time.perf_counter()]

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % minibatches == 0:
                self.at.append(time.perf_counter())

    tokenizer = AutoTokenizer.from_pretrained(wish["model"])
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(tokenizer.encode("\n"))[0]  # the lab's stop text
    model = AutoModelForCausalLM.from_pretrained(wish["model"], dtype=torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    low, high = RANGES[wish["level"]]
    config = GRPOConfig(
        output_dir=wish["out"],
        seed=wish["seed"],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=wish["prompts"] * GROUP // minibatches,
        gradient_accumulation_steps=1,
        steps_per_generation=minibatches,
        num_generations=GROUP,
        num_iterations=1,
        max_completion_length=MAX_TOKENS,
        max_steps=wish["steps"] * minibatches,
        learning_rate=RATE,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=WARMUP,
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=0.0,
        epsilon=low,
        epsilon_high=high,
        importance_sampling_level=wish["level"],
        loss_type="grpo",
        scale_rewards="group",
        temperature=1.0,
        report_to=[],
        logging_steps=minibatches,
        save_strategy="no",
        disable_tqdm=True,
    )
    watch = Watch()
    data = Dataset.from_list([{"prompt": prompt} for prompt in problems])
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=[watch],
    )
    trainer.train()
    seconds = [b - a for a, b in zip(watch.at[:-1], watch.at[1:], strict=True)]
    first = min(FIRST, wish["steps"] - 1)
    return {
        "seconds_step": statistics.median(seconds[first:]),
        "response_tokens": statistics.median(lengths[first:]),
        "zero_share": statistics.median(shares[first:]),
        "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def wide_model(folder: Path) -> Path:
    """A model folder: WIDE at random weights, with the embedded models' tokenizer, one token per byte."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from gspo_lab.models.tokenizer import byte_tokenizer

    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    Qwen3ForCausalLM(Qwen3Config(**WIDE, **ids)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def prompts() -> list[str]:
    from gspo_lab.tasks import build_task

    return [problem.prompt for problem in build_task("addition", {"digits": 2}, Path()).problems("train")]


def command(line: list[str], threads: int | None) -> str:
    done = subprocess.run(line, capture_output=True, text=True, env=environment(threads), check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(line[:4])} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def started(line: list[str], threads: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, env=environment(threads)
    )


def environment(threads: int | None) -> dict[str, str]:
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", **own}


def told(side: dict[str, float]) -> str:
    return (
        f"{1e3 * side['seconds_step']:.0f} ms ({side['response_tokens']:.1f} tokens a response, "
        f"{side['zero_share']:.0%} of groups without advantage, {side['peak_memory_bytes'] / 1e9:.2f} GB)"
    )


if __name__ == "__main__":
    main()
