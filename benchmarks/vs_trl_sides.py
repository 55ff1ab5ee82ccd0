"""The two sides of vs_trl.py, each in its own process: one run of gspo-lab, one of TRL's
GRPOTrainer.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

GROUP = 8
MAX_TOKENS = 29
RATE = 2e-4
WARMUP = 20
RANGES = {"token": (0.2, 0.27), "sequence": (3e-4, 4e-4)}
FIRST = 3
"""Steps that the median leaves out, while caches warm up."""
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


class Laps:
    """Times and memory of rollout batches, added after each; medians without the first ones."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._at = (time.perf_counter(), time.process_time())
        self._found: dict[str, list[float]] = {
            "seconds_step": [],
            "processor_step": [],
            "peak_memory_bytes": [],
        }

    def lap(self) -> None:
        import torch

        from gspo_lab.training.engines.native.step_record import peak_memory

        if self._device == "cuda":
            torch.cuda.synchronize()
        now = (time.perf_counter(), time.process_time())
        peak = peak_memory(torch.device(self._device))
        for name, value in zip(
            self._found, (now[0] - self._at[0], now[1] - self._at[1], peak), strict=True
        ):
            self._found[name].append(float("nan") if value is None else value)
        self._at = (time.perf_counter(), time.process_time())

    def medians(self, **others: list[float]) -> dict[str, float]:
        columns = {**self._found, **others}
        return {
            name: statistics.median(each[min(FIRST, len(each) - 1) :])
            for name, each in columns.items()
        }


def lab_run(wish: dict[str, Any]) -> dict[str, float]:
    """The study's one run, trained and recorded in this process as its worker would."""
    from gspo_lab.recording.records import StepRecord, UpdateRecord
    from gspo_lab.running.conduct.worker_pool import write_run
    from gspo_lab.study import load_study
    from gspo_lab.training.engines.check import make_engine

    (run,) = load_study(Path(wish["study"])).runs()
    folder = write_run(run, Path(wish["runs"]))
    steps: list[Any] = []
    nonfinite: list[Any] = []
    laps = Laps(wish["device"])

    class Watch:
        def write(self, records: Sequence[Any]) -> None:
            journal.write(records)
            nonfinite.extend(
                record.nonfinite for record in records if isinstance(record, UpdateRecord)
            )
            if found := [record for record in records if isinstance(record, StepRecord)]:
                steps.extend(found)
                laps.lap()

    with folder.append() as journal:
        assert make_engine(folder.run()).train(folder.run(), Watch(), folder.path, lambda: False)
    found = laps.medians(
        response_tokens=[one.response_tokens_mean for one in steps],
        zero_share=[one.zero_variance_groups for one in steps],
        rollout=[one.seconds_rollout for one in steps],
        old_logprobs=[one.seconds_old_logprobs for one in steps],
        update=[one.seconds_update for one in steps],
        peak_memory_bytes=[one.peak_memory_bytes for one in steps],  # telling it began a new peak
    )
    return {**found, "nonfinite": sum(nonfinite)}


def trl_run(wish: dict[str, Any]) -> dict[str, float]:
    """One run of GRPOTrainer, in this process; the medians of its rollout batches (MINIBATCHES
    updates each).
    """
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

    def reward(
        prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float]:
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
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % minibatches == 0:
                laps.lap()

    tokenizer = AutoTokenizer.from_pretrained(wish["model"])
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(tokenizer.encode("\n"))[
        0
    ]  # the lab's stop text
    model = AutoModelForCausalLM.from_pretrained(wish["model"], dtype=torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    low, high = RANGES[wish["level"]]
    config = GRPOConfig(
        output_dir=wish["out"],
        seed=wish["seed"],
        use_cpu=wish["device"] == "cpu",
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
    if tokenizer.chat_template:  # the lab gives a chat model a user's message, too
        data = Dataset.from_list(
            [{"prompt": [{"role": "user", "content": prompt}]} for prompt in problems]
        )
    else:
        data = Dataset.from_list([{"prompt": prompt} for prompt in problems])
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=[Watch()],
    )
    laps = Laps(wish["device"])
    trainer.train()
    return laps.medians(response_tokens=lengths, zero_share=shares)


def wide_model(folder: Path, vocabulary: int) -> Path:
    """A model folder:

    WIDE with random weights and the built-in models' tokenizer, one token per byte.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from gspo_lab.training.models.builtin_models import byte_tokenizer

    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    Qwen3ForCausalLM(Qwen3Config(**{**WIDE, "vocab_size": vocabulary}, **ids)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


SIDES: dict[str, Callable[[dict[str, Any]], dict[str, float]]] = {"lab": lab_run, "trl": trl_run}
