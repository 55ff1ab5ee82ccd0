"""Supervised training of an embedded model on a task's demonstrations: made once, kept by content.

    warm_start("tiny-qwen3", task, settings, seed=0, cache=cache_folder())  ->  a folder that
    `load_model` reads

Everything that decides the weights is in the key, the demonstrations themselves included: a folder
that exists is the one that would be made again.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gspo_lab.common.atomic_files import atomic_folder, wait_for_lock, write_sums
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.registry import unlisted
from gspo_lab.study.start_tables import WarmStart
from gspo_lab.tasks.base import Problem, Problems, Task
from gspo_lab.training.models.builtin_models import build, byte_tokenizer, config
from gspo_lab.training.models.check import EMBEDDED
from gspo_lab.training.models.load import (
    encode_prompt,
    explain_write_error,
    silence_transformers,
    weights_digest,
)
from gspo_lab.training.models.routing import Routers

WARM_START_VERSION = 1
"""Raised with every change of this file that changes the weights."""

MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.95)
MANIFEST = "manifest.json"

Progress = Callable[[int, int, float], None]
"""`(steps done, steps in all, loss in nats per response token)`, called after every step."""


def warm_start(
    model_name: str,
    task: Task,
    settings: WarmStart,
    seed: int,
    cache: Path,
    progress: Progress | None = None,
) -> Path:
    """The folder of the trained model with its tokenizer, trained now if `cache` does not hold it.

    `seed` draws the weights and the order of the demonstrations; 0 steps leave the weights as
    drawn. Trains on the CPU with one thread, so that a machine makes the same bits every time.
    Callers that want the same folder at the same time wait for the first; a death on the way leaves
    nothing that counts.
    """
    if model_name not in EMBEDDED:
        raise LabError(
            "warm_start trains an embedded model, not"
            f" {unlisted(model_name, EMBEDDED, 'use one of')}, or a checkpoint with"
            " warm_start.steps = 0"
        )
    demonstrated = (
        list(filter(demonstrated_turns, task.problems("train"))) if settings.steps else []
    )
    if settings.steps and not demonstrated:
        raise LabError(
            f"warm_start: the task '{task.name}' has no demonstrations to train on; use steps = 0"
        )
    facts = _facts(model_name, task, demonstrated, settings, seed)
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    folder = cache / "warm-starts" / f"{model_name}-{key[:24]}"
    if (folder / MANIFEST).is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"the cache folder {cache} cannot be made ({error}); set GSPO_LAB_CACHE to another"
        ) from error
    with wait_for_lock(folder.with_name(f".{folder.name}.lock")):
        if not (folder / MANIFEST).is_file():
            model = build(model_name, seed)
            if settings.steps:
                if not EMBEDDED[model_name].trains_routers:
                    freeze_routers(model)
                train(model, byte_tokenizer(), demonstrated, settings, seed, progress)
            _keep(folder, model, facts)
    return folder


def train(
    model: Any,
    tokenizer: Any,
    demonstrated: Problems,
    settings: WarmStart,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Train `model` in place on the demonstrations of `demonstrated`; the global random state is
    neither read nor changed.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=BETAS, weight_decay=0.0, fused=True
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model.train()
    try:
        order = _forever(len(demonstrated), seed)
        for step in range(settings.steps):
            batch = [demonstrated[next(order)] for _ in range(settings.batch_size)]
            value = loss(model, *pad_demonstrations(tokenizer, batch))
            value.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
            optimizer.param_groups[0]["lr"] = settings.rate(step)
            optimizer.step()
            optimizer.zero_grad()
            if progress is not None:
                progress(step + 1, settings.steps, value.item())
    finally:
        torch.set_num_threads(threads)
        model.eval()


def freeze_routers(model: Any) -> None:
    """Keep a mixture's routers as they are in `train`; a dense model has none."""
    routers = Routers.of(model)
    for parameter in routers.parameters if routers is not None else ():
        parameter.requires_grad_(False)


def demonstrated_turns(problem: Problem) -> list[str]:
    """What a problem's demonstration has the model write and the environment reply, by turns; empty
    without one.
    """
    if problem.demonstrated_turns is not None:
        return list(problem.demonstrated_turns)
    return [] if problem.demonstration is None else [problem.demonstration]


def pad_demonstrations(tokenizer: Any, batch: Problems) -> tuple[Tensor, Tensor]:
    """`(ids_BS, answer_BS)` of prompt + demonstration + <eos>, padded on the right to the longest.

    `answer_BS` is True at the tokens to be learnt: the demonstration's, without the environment's
    replies, and <eos>.
    """
    rows = []
    answers = []
    for problem in batch:
        ids = list(encode_prompt(tokenizer, problem.prompt))
        answer = [False for _ in ids]
        turns = demonstrated_turns(problem) or [""]
        for place, turn_ids in enumerate(tokenizer(turns, add_special_tokens=False)["input_ids"]):
            ids += turn_ids
            answer += repeat(place % 2 == 0, len(turn_ids))
        rows.append(torch.tensor([*ids, tokenizer.eos_token_id]))
        answers.append(torch.tensor([*answer, True]))
    ids_BS = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    return ids_BS, pad_sequence(answers, batch_first=True)


def loss(model: Any, ids_BS: Tensor, answer_BS: Tensor) -> Tensor:
    """Mean cross-entropy over the batch's answer tokens, in nats; 0-d.

    The padding is behind the text, where a causal model does not look: no attention mask is needed.
    Only positions that predict an answer token reach the output head.
    """
    hidden_BSD = model.base_model(input_ids=ids_BS[:, :-1], use_cache=False).last_hidden_state
    logits_NV = model.get_output_embeddings()(hidden_BSD[answer_BS[:, 1:]])
    return torch.nn.functional.cross_entropy(logits_NV, ids_BS[:, 1:][answer_BS[:, 1:]])


def _facts(
    model_name: str, task: Task, demonstrated: Problems, settings: WarmStart, seed: int
) -> JsonObject:
    """Everything that decides the weights, as JSON."""
    texts = hashlib.sha256()
    for problem in demonstrated:
        texts.update(
            json.dumps(
                [problem.prompt, problem.demonstrated_turns or problem.demonstration]
            ).encode()
        )
    return {
        "version": WARM_START_VERSION,
        "model": model_name,
        "config": config(model_name).to_dict(),
        "seed": seed,
        "packages": {package: version(package) for package in ("torch", "transformers")},
        "training": (
            {
                "task": task.name,
                "demonstrations": len(demonstrated),
                "demonstrations_sha256": texts.hexdigest(),
                **settings.model_dump(exclude={"per_seed", "seed"}),
            }
            if settings.steps
            else None
        ),
    }


def _keep(folder: Path, model: Any, facts: JsonObject) -> None:
    """Save the whole in one step."""
    with (
        explain_write_error(folder, "its warm start is made again"),
        atomic_folder(folder) as temporary,
    ):
        with silence_transformers():
            model.save_pretrained(temporary)
            byte_tokenizer().save_pretrained(temporary)
        manifest = {**facts, "weights": weights_digest(model)}
        (temporary / MANIFEST).write_text(
            json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
        write_sums(temporary)


def _forever(count: int, seed: int) -> Iterator[int]:
    """0 to count - 1 in a random order, then in another, without end."""
    source = random.Random(f"warm start {seed}")
    while True:
        yield from source.sample(range(count), count)
