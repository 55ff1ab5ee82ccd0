"""Push weights into a running vLLM engine, and check that they arrived.

vLLM's `reload_weights` may leave old ones: its CPU kernels pack the experts only when they are
created. So the first way that works is used, and every push is checked by the log-probs of a few
sampled tokens. The engine starts with random weights, which are easy to detect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from gspo_lab.common.errors import LabError
from gspo_lab.training.models.check import first_line
from gspo_lab.training.models.load import computing_in
from gspo_lab.training.models.lora import merged_state

PROMPTS = 16
PROMPT_TOKENS = 16
RESPONSE_TOKENS = 8
"""Size of a check.

Its prompts are random tokens, which reach more experts and embeddings than a text.
"""

TRIES = 5
"""Samples of a check in float32. A correct push sometimes fails: if two experts are equally likely,
rounding may send a token to the other one, which changes that sequence much. Stale weights fail in
every sample."""

EXACT = 1e-4
ROUNDED = 5.0
COARSE = 0.05
"""Tolerances. vLLM and the trainer in float32: a mean gap of EXACT nats per token, which detects
one stale expert. Only vLLM in bfloat16: a median gap of ROUNDED times the effect of that rounding
on the trainer's log-probs; the median, because rounding sends some tokens to other experts, which
changes them by nats. Both in bfloat16: a median gap of COARSE, because there is no exact
reference."""


@dataclass(frozen=True, slots=True)
class WeightSyncCheck:
    """|log p of vLLM - log p of the trainer| over `tokens` sampled tokens, in nats, and the
    tolerance.
    """

    tokens: int
    mean: float
    median: float
    largest: float
    judged: Literal["mean", "median"]
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the log-probs agree within the tolerance, so that the weights have arrived; False
        for NaN.
        """
        return (self.mean if self.judged == "mean" else self.median) <= self.tolerance

    def __str__(self) -> str:
        return (
            f"log-probs of {self.tokens} sampled tokens are off by {self.mean:.2g} nats in the"
            f" mean, {self.median:.2g} in the median and {self.largest:.2g} at most; tolerated is a"
            f" {self.judged} of {self.tolerance:.2g}"
        )


def reload(engine: Any, model: Any) -> None:
    """vLLM's method: it loads and repacks the weights layer by layer, like a checkpoint."""
    engine.collective_rpc(
        "reload_weights", kwargs={"weights_iterator": iter(checkpoint_weights(model).items())}
    )


def reload_and_pack(engine: Any, model: Any) -> None:
    """`reload` with new kernels of the experts, because only a new kernel packs its weights."""
    engine.collective_rpc(_forget_expert_kernels)
    reload(engine, model)


WAYS: dict[str, Callable[[Any, Any], None]] = {
    "reload": reload,
    "reload, experts packed anew": reload_and_pack,
}
"""Ways to push, called as `(engine, model)`, in the order of the tries."""


def checkpoint_weights(model: Any) -> Mapping[str, Tensor]:
    """The weights as the family's checkpoints have them, adapters merged, a tied head too: vLLM's
    loaders expect it.
    """
    from transformers.core_model_loading import revert_weight_conversion

    weights: Mapping[str, Tensor] = revert_weight_conversion(model, merged_state(model))
    return weights


def first_push(engine: Any, model: Any, dtype: str) -> tuple[str, WeightSyncCheck]:
    """Push with the first way whose check holds.

    Returns its name and check. LabError if none works.
    """
    failed = []
    for name, push in WAYS.items():
        try:
            push(engine, model)
            check = check_sync(engine, model, dtype)
        except (
            Exception
        ) as error:  # this way does not fit the family: loaders and kernels raise any error
            failed.append(f"{name}: {type(error).__name__}: {error_line(error)}")
            continue
        if check.holds:
            return name, check
        failed.append(f"{name}: {check}")
    raise LabError(
        "vLLM does not sample from the weights that it was given; use rollout.sampler ="
        " 'transformers'",
        details=tuple(failed),
    )


def push(engine: Any, model: Any, dtype: str, way: str) -> WeightSyncCheck:
    """Push the model's present weights. LabError if vLLM then does not sample from them."""
    WAYS[way](engine, model)
    check = check_sync(engine, model, dtype)
    if not check.holds:
        raise LabError(
            f"vLLM does not sample from the trainer's weights after a push ({way}): {check}; "
            "use rollout.sampler = 'transformers'"
        )
    return check


def check_sync(engine: Any, model: Any, dtype: str, seed: int = 0) -> WeightSyncCheck:
    """Compare log-probs of sampled tokens.

    Returns the first check that holds, or the last of TRIES.
    """
    for place in range(seed, seed + TRIES):
        check = compare(engine, model, dtype, place)
        if check.holds or check.judged == "median":  # a few sequences do not change a median
            break
    return check


def empty_prefix_cache(engine: Any) -> None:
    """Delete cached keys and values, which a push makes stale. vLLM refuses while it computes."""
    if not engine.reset_prefix_cache():
        raise RuntimeError(
            "vLLM did not empty its prefix cache: some of its blocks are still in use"
        )


@torch.no_grad()
def compare(engine: Any, model: Any, dtype: str, seed: int) -> WeightSyncCheck:
    """The check of one sample, P prompts of S tokens and T response tokens.

    `seed` draws the prompts.
    """
    from vllm import SamplingParams

    random = torch.Generator().manual_seed(seed)
    prompt_PS = torch.randint(
        model.config.get_text_config().vocab_size, (PROMPTS, PROMPT_TOKENS), generator=random
    )
    params = [
        SamplingParams(
            seed=place, max_tokens=RESPONSE_TOKENS, logprobs=0, detokenize=False, ignore_eos=True
        )
        for place in range(PROMPTS)
    ]
    empty_prefix_cache(engine)
    answers = engine.generate(
        [{"prompt_token_ids": ids} for ids in prompt_PS.tolist()], params, use_tqdm=False
    )
    response_PT = torch.tensor([answer.outputs[0].token_ids for answer in answers])
    engine_PT = torch.tensor(
        [token_logprobs(answer.outputs[0]) for answer in answers], dtype=torch.float64
    )

    training = model.training
    model.eval()
    trainer_PT = _logprobs(model, prompt_PS, response_PT)
    judged: Literal["mean", "median"] = "median"
    if model.dtype != torch.float32:
        tolerance = COARSE
    elif dtype == "float32":
        judged = "mean"
        tolerance = EXACT
    else:
        with computing_in("bfloat16", model.device.type):
            tolerance = ROUNDED * float(
                _gap(_logprobs(model, prompt_PS, response_PT), trainer_PT).median()
            )
    model.train(training)
    gap_PT = _gap(engine_PT, trainer_PT)
    mean = float(gap_PT.mean())
    median = float(gap_PT.median())
    largest = float(gap_PT.max())
    return WeightSyncCheck(gap_PT.numel(), mean, median, largest, judged, tolerance)


def _gap(a_PT: Tensor, b_PT: Tensor) -> Tensor:
    """|a - b|; 0 where both are NaN: a diverged model arrived unchanged, and the run records it."""
    return (a_PT - b_PT).abs().masked_fill(a_PT.isnan() & b_PT.isnan(), 0.0)


def _logprobs(model: Any, prompt_PS: Tensor, response_PT: Tensor) -> Tensor:
    input_PS = torch.cat([prompt_PS, response_PT], dim=1).to(model.device)
    logits_PTV = model(
        input_ids=input_PS, use_cache=False, logits_to_keep=RESPONSE_TOKENS + 1
    ).logits[:, :-1]
    logp_PTV = logits_PTV.double().log_softmax(dim=-1).cpu()
    trainer_PT: Tensor = logp_PTV.gather(2, response_PT[..., None])[..., 0]
    return trainer_PT


def token_logprobs(output: Any) -> list[float]:
    """The log-probs of the tokens of a vLLM output."""
    return [
        float(candidates[token].logprob)
        for token, candidates in zip(output.token_ids, output.logprobs, strict=True)
    ]


def error_line(error: Exception) -> str:
    """The message of a vLLM error, in one line."""
    if isinstance(error, ValidationError):  # its first line only counts the errors
        return str(error.errors()[0]["msg"])
    return first_line(error)


def _forget_expert_kernels(worker: Any) -> None:
    for module in worker.get_model().modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None
