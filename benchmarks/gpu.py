"""Benchmarks on a GPU, in one command of at most nine minutes, without a network, in an installed
environment.

    nox -s gpu                                             # or, with another interpreter:
    python benchmarks/gpu.py [--minutes 9] [--only quickstart vllm ...]
    python benchmarks/gpu.py --device cpu --tiny           # the same code on small shapes

Each part has its own process. A part that fails or runs out of time is reported, and the others
continue:

    quickstart    one seed on the CPU and on the device, compared with each other
    shapes        steps of Qwen3-0.6B's shape and of two layers of Qwen3-30B-A3B's, with random
                  weights in bfloat16: all weights and LoRA
    smollm2       if GSPO_LAB_SMOLLM2 names a folder of SmolLM2-135M-Instruct: steps of
                  studies/smollm2.toml in float32, bfloat16, float16, and bfloat16 with the head in
                  float32
    vllm          if vLLM is installed: two checked pushes, and the experts that it reports (R3)
                  against the trainer's
    vocabulary, step, study
                  if TRL is installed: benchmarks/vs_trl.py on the device

Writes gpu.json and gpu.md, the table for docs/results/performance.md, beside this file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError

HERE = Path(__file__).parent
PARTS = ("quickstart", "shapes", "smollm2", "vllm", "vocabulary", "step", "study")
LIMITS = {"quickstart": 150, "shapes": 180, "smollm2": 150}
"""Most seconds of a part beside others; the others may take the remaining time."""

DENSE = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
}
EXPERTS = {
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151_936,
    "tie_word_embeddings": False,
}
SHAPES = {"Qwen3-0.6B": DENSE, "Qwen3-30B-A3B, 2 layers": EXPERTS}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 20_000,
}
"""Sizes that --tiny uses instead of a shape's; vLLM's attention on CPUs needs heads of 32 or more.
"""

STUDY = """
question = "How long does a step take?"
model = "{model}"
device = "{device}"
steps = {steps}
seeds = [0]
task = {{name = "addition", digits = 2}}
[rollout]
prompts_per_step = {prompts}
group_size = 8
max_tokens = {tokens}
stop = []
dtype = "bfloat16"
[update]
dtype = "bfloat16"
minibatches = 2
lora_rank = {rank}
skip_zero_advantage = false
checkpoint_every = 1000
[arm.gspo]
objective = "gspo"
"""

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="small shapes and few steps")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        try:
            for row in RUN[options.part](options):
                print(json.dumps(row), flush=True)
        except LabError as error:
            sys.exit("\n".join([str(error), *error.details]))
        return
    ends = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"GSPO_LAB_CACHE": str(Path(name) / "cache"), "HF_HUB_OFFLINE": "1"}
        parts = {
            part: measured(part, options, Path(name), ends)
            for part in PARTS
            if part in options.only
        }
    found = {
        "machine": machine(options.device),
        "device": options.device,
        "tiny": options.tiny,
        "parts": parts,
    }
    (HERE / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "gpu.md").write_text(table := as_table(found))
    print(table)


def measured(part: str, options: argparse.Namespace, home: Path, ends: float) -> Row:
    """A part's rows, and the reason if some are missing."""
    began = time.monotonic()
    left = (
        ends - began
        if len(options.only) == 1
        else min(LIMITS.get(part, ends - began), ends - began)
    )
    (home / part).mkdir()
    wish = [
        "--device",
        options.device,
        *(["--tiny"] if options.tiny else []),
        "--home",
        str(home / part),
    ]
    command = [sys.executable, __file__, "--part", part, *wish]
    trouble = None
    with (home / f"{part}.out").open("w+") as out, (home / f"{part}.err").open("w+") as err:
        try:
            # It has its own process group, so that its children end with it.
            process = subprocess.Popen(command, stdout=out, stderr=err, process_group=0)
            if code := process.wait(timeout=max(left, 0)):
                trouble = f"failed with code {code}"
        except subprocess.TimeoutExpired:
            trouble = f"out of time after {left:.0f} s"
            os.killpg(process.pid, 9)
            process.wait()
        out.seek(0)
        err.seek(0)
        rows = [json.loads(line) for line in out if line.startswith("{")]
        said = err.read()[-4000:] if trouble else ""
    if said:
        print(said, file=sys.stderr)
    seconds = time.monotonic() - began
    print(
        f"{part}: {trouble or 'done'}, {len(rows)} figures, {seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return {"rows": rows, "trouble": trouble, "said": said, "seconds": round(seconds, 1)}


def row(what: str, value: Any, unit: str = "", bound: float | None = None) -> Row:
    """A figure; with a bound also whether value <= bound."""
    holds = None if bound is None else value <= bound
    return {"what": what, "value": value, "unit": unit, "bound": bound, "holds": holds}


def quickstart(options: argparse.Namespace) -> Iterator[Row]:
    """The study with one seed, on the CPU and on the device: equal prompts, starting model and
    noise.
    """
    import gspo_lab

    home = options.home
    file = HERE.parent / "studies" / "quickstart.toml"
    places = ["--runs", str(home / "runs"), "--output-dir", str(home / "reports")]
    for name, device in (("cpu", "cpu"), ("device", options.device)):
        line = [
            "run",
            str(file),
            "--name",
            name,
            "--seeds",
            "1",
            "--steps",
            "2" if options.tiny else "10",
            *places,
        ]
        done([sys.executable, "-m", "gspo_lab.cli", *line, "--set", f"device={device}"])
    with gspo_lab.open(home / "runs") as lab:
        cpu = lab.study("cpu")
        device = lab.study("device")
        of_steps = (
            "prompt_digest",
            "rollout_digest",
            "reward_mean",
            "mismatch_abs_mean",
            "seconds_step",
        )
        a = cpu.records(*of_steps).sort_values(["arm", "step"]).reset_index()
        b = device.records(*of_steps).sort_values(["arm", "step"]).reset_index()
        of_updates = ("grad_norm", "clip_fraction_tokens")
        order = ["arm", "step", "minibatch"]
        x = cpu.records(*of_updates).sort_values(order).reset_index()
        y = device.records(*of_updates).sort_values(order).reset_index()
        final = [one.runs().set_index("arm")["final"] for one in (cpu, device)]
    began = a["step"] == 0
    opened = (x["step"] == 0) & (x["minibatch"] == 0)
    clipped = [one.groupby("arm")["clip_fraction_tokens"].mean() for one in (x, y)]
    equal = a["rollout_digest"] == b["rollout_digest"]
    yield row(
        "rollout batches with other prompts",
        int((a["prompt_digest"] != b["prompt_digest"]).sum()),
        "",
        0,
    )
    yield row("rollout batches equal to the last token", int(equal.sum()), f"of {len(equal)}")
    reward = (a["reward_mean"] - b["reward_mean"])[began].abs().max()
    yield row("first rollout batch: reward", float(reward), "apart", 0.05)
    norms = x["grad_norm"][opened], y["grad_norm"][opened]
    yield row(
        "first gradient: its norm", float((norms[1] / norms[0] - 1).abs().max()), "relative", 0.05
    )
    yield row("clip share of the run", float((clipped[0] - clipped[1]).abs().max()), "apart", 0.1)
    yield row("final score", float((final[0] - final[1]).abs().max()), "apart", 0.15)
    for name, steps in (("CPU", a), (options.device, b)):
        yield row(
            f"sampler against trainer, {name}",
            float(steps["mismatch_abs_mean"].max()),
            "nats",
            1e-4,
        )
        yield row(f"a step, {name}", float(steps["seconds_step"].median()), "s")


def shapes(options: argparse.Namespace) -> Iterator[Row]:
    """Two rollout batches of each shape through the whole engine; the second one is reported."""
    for name, sizes in SHAPES.items():
        folder = random_model(options, sizes)
        for rank, how in ((0, "all weights"), (16, "LoRA")):
            prompts, tokens = (2, 8) if options.tiny else (8, 128)
            text = STUDY.format(
                model=folder,
                device=options.device,
                steps=2,
                prompts=prompts,
                tokens=tokens,
                rank=rank,
            )
            study = folder.with_name(f"{folder.name}-{rank}.toml")
            study.write_text(text)
            wish = {
                "study": str(study),
                "runs": str(options.home / "runs"),
                "device": options.device,
            }
            yield from told_by(
                f"{name}, {how}",
                [sys.executable, str(HERE / "vs_trl.py"), "lab", "--wish", json.dumps(wish)],
            )


SIDES = ("update", "rollout")
PRECISIONS = {
    "float32": (),
    "bfloat16": [f"{side}.dtype=bfloat16" for side in SIDES],
    "float16": [f"{side}.dtype=float16" for side in SIDES],
    "bfloat16, head in float32": [
        f"{side}.{key}" for side in SIDES for key in ("dtype=bfloat16", "float32_head=true")
    ],
}


def smollm2(options: argparse.Namespace) -> Iterator[Row]:
    """Two steps of the study's GSPO in each precision: the mismatch at equal weights, and the
    second step's time.
    """
    import gspo_lab

    model = os.environ.get("GSPO_LAB_SMOLLM2")
    if model is None:
        yield row("SmolLM2", None, "GSPO_LAB_SMOLLM2 names no folder")
        return
    study = HERE.parent / "studies" / "smollm2.toml"
    runs = options.home / "runs"
    sizes = ["rollout.prompts_per_step=2", "rollout.max_tokens=8"] if options.tiny else []
    # Without skipping, all log-probs are compared, also where no response earned anything.
    whole = ["update.skip_zero_advantage=false", "bench.addition.problems=2"]
    common = [f"model={model}", f"device={options.device}", *whole, *sizes]
    for index, (name, precision) in enumerate(PRECISIONS.items()):
        line = [
            "run",
            str(study),
            "--name",
            f"p{index}",
            "--arms",
            "gspo",
            "--seeds",
            "1",
            "--steps",
            "2",
        ]
        words = [word for setting in (*common, *precision) for word in ("--set", setting)]
        done(
            [
                sys.executable,
                "-m",
                "gspo_lab.cli",
                *line,
                *words,
                "--runs",
                str(runs),
                "--output-dir",
                str(options.home),
            ]
        )
        laps = [f"seconds_{lap}" for lap in ("step", "rollout", "old_logprobs", "update")]
        with gspo_lab.open(runs) as lab:
            steps = lab.study(f"p{index}").records(
                "mismatch_abs_mean", "mismatch_k3", "reward_mean", *laps
            )
            updates = lab.study(f"p{index}").records("nonfinite")
        first = steps.reset_index().sort_values("step").iloc[0]
        second = steps.reset_index().sort_values("step").iloc[1]
        yield row(
            f"{name}: sampler against trainer", float(first["mismatch_abs_mean"]), "nats a token"
        )
        yield row(f"{name}: mismatch k3", float(first["mismatch_k3"]))
        yield row(f"{name}: first reward", float(first["reward_mean"]))
        for lap in laps:
            yield row(f"{name}: {lap.removeprefix('seconds_')}", float(second[lap]), "s")
        yield row(f"{name}: updates that were not finite", int(updates["nonfinite"].sum()), "", 0)


def told_by(name: str, command: list[str]) -> Iterator[Row]:
    """The figures of one training side; a failed one is missing."""
    try:
        found = json.loads(done(command).splitlines()[-1])
    except RuntimeError as error:
        yield row(name, None, str(error)[-300:])
        return
    yield row(f"{name}: a step", found["seconds_step"], "s")
    for lap in ("rollout", "old_logprobs", "update"):
        yield row(f"{name}: {lap}", found[lap], "s")
    yield row(f"{name}: peak memory", found["peak_memory_bytes"] / 1e9, "GB")
    yield row(f"{name}: updates that were not finite", found["nonfinite"], "", 0)


def random_model(options: argparse.Namespace, sizes: dict[str, Any]) -> Path:
    """A model folder of these sizes with random bfloat16 weights and the built-in models'
    tokenizer.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    from gspo_lab.training.models.builtin_models import byte_tokenizer

    tokenizer = byte_tokenizer()
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    if options.tiny:
        sizes = {name: TINY.get(name, value) for name, value in sizes.items()}
    make, kind = (
        (Qwen3MoeConfig, Qwen3MoeForCausalLM)
        if "num_experts" in sizes
        else (Qwen3Config, Qwen3ForCausalLM)
    )
    torch.manual_seed(0)
    with torch.device(options.device):
        model = kind(make(**sizes, **special, dtype="bfloat16")).to(torch.bfloat16)
    folder = options.home / kind.__name__
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def vllm(options: argparse.Namespace) -> Iterator[Row]:
    """vLLM on the layers with experts: checked pushes, and its experts against the trainer's."""
    if find_spec("vllm") is None:
        yield row("vLLM", None, "not installed")
        return
    import torch
    from vllm_push import update

    from gspo_lab.training.models.load import load_model
    from gspo_lab.training.models.routing import Routers, expert_change
    from gspo_lab.training.samplers import Request, Sampling, noise_key
    from gspo_lab.training.samplers.vllm_sampler import VllmSampler

    folder = random_model(options, EXPERTS)
    model, tokenizer = load_model(str(folder), dtype="bfloat16", device=options.device)
    sampler = VllmSampler(model, tokenizer, "bfloat16")
    began = time.perf_counter()
    facts = sampler.facts()
    yield row(
        f"vLLM {facts['vllm']}: start and first push ({facts['push']})",
        time.perf_counter() - began,
        "s",
    )
    update(model, 1e-5)
    began = time.perf_counter()
    sampler.refresh()
    yield row("vLLM: a push after an update, with its proof", time.perf_counter() - began, "s")
    assert sampler.check is not None
    judged = sampler.check.mean if sampler.check.judged == "mean" else sampler.check.median
    yield row(
        f"vLLM: {sampler.check.judged} gap of log-probs", judged, "nats", sampler.check.tolerance
    )
    prompt = tuple(tokenizer.encode("12+34="))
    requests = [Request("sum", prompt, sample, noise_key(sample)) for sample in range(64)]
    began = time.perf_counter()
    rollouts = sampler.sample(requests, Sampling(max_tokens=32), routes=sampler.returns_routes)
    yield row(
        "vLLM: tokens a second",
        sum(len(one.response_ids) for one in rollouts) / (time.perf_counter() - began),
    )
    if not sampler.returns_routes:
        yield row("vLLM: experts (R3)", None, f"not told on {options.device}")
        return
    routers = Routers.of(model)
    gaps = []
    assert routers is not None
    for one in rollouts[:8]:
        ids = torch.tensor([[*one.request.prompt_ids, *one.response_ids[:-1]]], device=model.device)
        with torch.no_grad(), routers.tap(*ids.shape) as seen:
            model(ids)
        told = torch.from_numpy(one.routes)[None]
        gaps.append(
            float(
                expert_change(told, seen.natural_BSLK.cpu(), torch.ones(told.shape[:2]).bool())[
                    0
                ].mean()
            )
        )
    yield row("vLLM: experts other than the trainer's", sum(gaps) / len(gaps), "share", 0.1)


def vs_trl(options: argparse.Namespace) -> Iterator[Row]:
    """benchmarks/vs_trl.py on the device."""
    what = options.part
    if find_spec("trl") is None:
        yield row(f"{what} against TRL", None, "TRL is not installed")
        return
    out = options.home / "found.json"
    size = (
        ["--steps", "2", "--levels", "token", "--vocabulary", "20000"]
        if options.tiny
        else ["--steps", "6"]
    )
    line = [what, "--device", options.device, "--shares", "own", "--out", str(out), *size]
    done([sys.executable, str(HERE / "vs_trl.py"), *line])
    found = json.loads(out.read_text())
    if what == "study":
        for name, rounds in found["rounds"].items():
            yield row(f"study: {name}", rounds[0]["wall"], "s")
        yield row("study: lab / TRL, time", found["ratio"]["wall"], "", 0.6)
        return
    for one in found:
        for side in ("lab", "trl"):
            yield row(f"{what}, {one['level']}: {side}", one["seconds_step"][side], "s")
            yield row(
                f"{what}, {one['level']}: {side}, memory",
                one["peak_memory_bytes"][side] / 1e9,
                "GB",
            )
        yield row(f"{what}, {one['level']}: lab / TRL, time", one["seconds_step"]["ratio"], "", 0.8)
        yield row(
            f"{what}, {one['level']}: lab / TRL, memory", one["peak_memory_bytes"]["ratio"], "", 0.6
        )


RUN = dict.fromkeys(PARTS, vs_trl) | {
    "quickstart": quickstart,
    "shapes": shapes,
    "smollm2": smollm2,
    "vllm": vllm,
}


def done(command: list[str]) -> str:
    """The output of a command. RuntimeError with its last lines if it failed."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command[1:4])}: {(ended.stdout + ended.stderr)[-2000:]}")
    return ended.stdout


def machine(device: str) -> str:
    import torch
    import transformers

    from gspo_lab.training.engines.facts import facts

    name = facts(device=torch.device(device))["device"]
    return f"{name}, torch {torch.__version__}, transformers {transformers.__version__}"


def as_table(found: dict[str, Any]) -> str:
    lines = [found["machine"], "", "| part | what | figure | bound |", "|---|---|---|---|"]
    for part, one in found["parts"].items():
        for each in one["rows"]:
            value = each["value"]
            figure = (
                f"not measured: {each['unit']}"
                if value is None
                else f"{value:.3g} {each['unit']}".strip()
            )
            held = (
                ""
                if each["bound"] is None
                else f"{each['bound']:.3g}, {'held' if each['holds'] else 'MISSED'}"
            )
            lines.append(f"| {part} | {each['what']} | {figure} | {held} |")
        if one["trouble"]:
            lines.append(f"| {part} | | {one['trouble']} | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
