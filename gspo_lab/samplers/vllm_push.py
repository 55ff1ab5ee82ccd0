"""Weights into a running vLLM engine, and the proof that they arrived.

vLLM's own `reload_weights` reports success and may leave weights behind: its CPU kernels compute with packed copies of
the experts, and pack them only when a layer's kernel is made. So there are several ways to push; which of them works
for a model is found at the engine's start, whose weights are made up: what a way does not bring is then wrong by far.
Every push is proven by what vLLM says of a few tokens that it samples, against what the trainer's model says of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from gspo_lab.errors import LabError
from gspo_lab.models.load import computing_in
from gspo_lab.models.lora import merged_state

PROMPTS, PROMPT_TOKENS, RESPONSE_TOKENS = 16, 16, 8
"""A proof's size. Its prompts are random tokens, which reach more experts and embeddings than a text does."""

TRIES = 5
"""Samples that a push may fail in float32. A right one fails now and then: two experts are about as likely, rounding
sends a token to the other, and that sequence is off by far. What is stale is so in every sample."""

EXACT, ROUNDED, COARSE = 1e-4, 5.0, 0.05
"""What is tolerated. vLLM and the trainer's weights in float32: a mean gap of EXACT nats per token, in which a single
stale expert shows. vLLM alone in bfloat16: a median gap of ROUNDED times what such rounding does to the trainer's own
log-probs; the median, because rounding sends some tokens to other experts, and those are then off by nats. The weights
themselves in bfloat16: a median gap of COARSE, there being nothing exact to compare with."""


@dataclass(frozen=True, slots=True)
class Proof:
    """|log p of vLLM - log p of the trainer| over `tokens` sampled tokens, in nats, and how much of it is tolerated."""

    tokens: int
    mean: float
    median: float
    largest: float
    judged: Literal["mean", "median"]
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the log-probs agree well enough for the weights to have arrived; False for NaN."""
        return (self.mean if self.judged == "mean" else self.median) <= self.tolerance  # False for NaN

    def __str__(self) -> str:
        return (
            f"log-probs of {self.tokens} sampled tokens are off by {self.mean:.2g} nats in the mean, {self.median:.2g} "
            f"in the median and {self.largest:.2g} at most; tolerated is a {self.judged} of {self.tolerance:.2g}"
        )


def reload(engine: Any, model: Any) -> None:
    """vLLM's own way: it loads and repacks the weights layer by layer, as it loads a checkpoint."""
    engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(checkpoint_weights(model).items())})


def reload_and_pack(engine: Any, model: Any) -> None:
    """The same with the experts' kernels made anew, because only a new kernel packs its weights."""
    engine.collective_rpc(_forget_expert_kernels)
    reload(engine, model)


WAYS: dict[str, Callable[[Any, Any], None]] = {"reload": reload, "reload, experts packed anew": reload_and_pack}
"""The ways to push, `(engine, model)`, in the order in which they are tried."""


def checkpoint_weights(model: Any) -> Mapping[str, Tensor]:
    """The weights under the names and in the shapes of the family's checkpoints, which vLLM's loaders know.

    Adapters are merged. The head of a tied model is among them: vLLM keeps one of its own, for some families packed.
    """
    from transformers.core_model_loading import revert_weight_conversion

    weights: Mapping[str, Tensor] = revert_weight_conversion(model, merged_state(model))
    return weights


def first_push(engine: Any, model: Any, dtype: str) -> tuple[str, Proof]:
    """Push with the first way that is proven; its name. LabError, with what each of them left behind, where none is."""
    failed = []
    for name, push in WAYS.items():
        try:
            push(engine, model)
            proof = prove(engine, model, dtype)
        except Exception as error:  # a way that is none for this family: its loaders and kernels raise their own
            failed.append(f"{name}: {type(error).__name__}: {first_line(error)}")
            continue
        if proof.holds:
            return name, proof
        failed.append(f"{name}: {proof}")
    raise LabError(
        "vLLM does not sample from the weights that it was given; use rollout.sampler = 'transformers'",
        details=tuple(failed),
    )


def push(engine: Any, model: Any, dtype: str, way: str) -> Proof:
    """Push the model's present weights; LabError where vLLM then does not sample from them."""
    WAYS[way](engine, model)
    proof = prove(engine, model, dtype)
    if not proof.holds:
        raise LabError(
            f"vLLM does not sample from the trainer's weights after a push ({way}): {proof}; "
            "use rollout.sampler = 'transformers'"
        )
    return proof


def prove(engine: Any, model: Any, dtype: str, seed: int = 0) -> Proof:
    """Sample a few tokens and ask the trainer's model about them: the first proof that holds, or the last of TRIES."""
    for place in range(seed, seed + TRIES):
        proof = compare(engine, model, dtype, place)
        if proof.holds or proof.judged == "median":  # which a few sequences do not move
            break
    return proof


def empty_prefix_cache(engine: Any) -> None:
    """Forget the keys and values of earlier prompts, which a push makes stale. vLLM refuses while it computes."""
    if not engine.reset_prefix_cache():
        raise RuntimeError("vLLM did not empty its prefix cache: some of its blocks are still in use")


@torch.no_grad()
def compare(engine: Any, model: Any, dtype: str, seed: int) -> Proof:
    """One sample's proof. P prompts of S tokens, T response tokens; `seed` draws the prompts."""
    from vllm import SamplingParams

    random = torch.Generator().manual_seed(seed)
    prompt_PS = torch.randint(model.config.get_text_config().vocab_size, (PROMPTS, PROMPT_TOKENS), generator=random)
    wanted = [
        SamplingParams(seed=place, max_tokens=RESPONSE_TOKENS, logprobs=0, detokenize=False, ignore_eos=True)
        for place in range(PROMPTS)
    ]
    empty_prefix_cache(engine)
    answers = engine.generate([{"prompt_token_ids": ids} for ids in prompt_PS.tolist()], wanted, use_tqdm=False)
    response_PT = torch.tensor([answer.outputs[0].token_ids for answer in answers])
    engine_PT = torch.tensor([token_logprobs(answer.outputs[0]) for answer in answers], dtype=torch.float64)

    training = model.training
    model.eval()
    own_PT = _logprobs(model, prompt_PS, response_PT)
    judged: Literal["mean", "median"] = "median"
    if model.dtype != torch.float32:
        tolerance = COARSE
    elif dtype == "float32":
        judged, tolerance = "mean", EXACT
    else:
        with computing_in("bfloat16", model.device.type):
            tolerance = ROUNDED * float(_gap(_logprobs(model, prompt_PS, response_PT), own_PT).median())
    model.train(training)
    gap_PT = _gap(engine_PT, own_PT)
    mean, median, largest = (float(value) for value in (gap_PT.mean(), gap_PT.median(), gap_PT.max()))
    return Proof(gap_PT.numel(), mean, median, largest, judged, tolerance)


def _gap(one_PT: Tensor, other_PT: Tensor) -> Tensor:
    """|one - other|; 0 where neither is a number: a dead model arrived as it is, and the run records it."""
    return (one_PT - other_PT).abs().masked_fill(one_PT.isnan() & other_PT.isnan(), 0.0)


def _logprobs(model: Any, prompt_PS: Tensor, response_PT: Tensor) -> Tensor:
    input_PS = torch.cat([prompt_PS, response_PT], dim=1).to(model.device)
    logits_PTV = model(input_ids=input_PS, use_cache=False, logits_to_keep=RESPONSE_TOKENS + 1).logits[:, :-1]
    logp_PTV = logits_PTV.double().log_softmax(dim=-1).cpu()
    own_PT: Tensor = logp_PTV.gather(2, response_PT[..., None])[..., 0]
    return own_PT


def token_logprobs(output: Any) -> list[float]:
    """The log-probs of the tokens of one of vLLM's outputs."""
    return [float(at[token].logprob) for token, at in zip(output.token_ids, output.logprobs, strict=True)]


def first_line(error: Exception) -> str:
    """What an error of vLLM's says, in one line."""
    if isinstance(error, ValidationError):  # whose first line only counts what was wrong
        return str(error.errors()[0]["msg"])
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _forget_expert_kernels(worker: Any) -> None:
    for module in worker.get_model().modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None
