"""What one worker's training needs of its device's memory, estimated from the model's shape and the run's settings.

The sum of what lasts and of the larger of two moments: sampling (the cache of keys and values) and updating
(gradients, and either activations or the optimizer's temporaries). Held against measurements: docs/reference/models.md.
"""

from dataclasses import dataclass

from gspo_lab.models.shapes import ModelShape
from gspo_lab.study.schema import Settings

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
HEAD_KEPT, HEAD_BLOCK = 2**27, {"cpu": 2e7, "gpu": 2e8}
"""Float32 logits that wait for the backward pass (engines/native/lm_head.py), and what one block of them takes."""
DRAW_BYTES = 12
"""Per sampled row and vocabulary entry: logits, log-probs and their noise."""
LARGE = 2**26
"""Trained parameters from which on the optimizer makes no copies, and all from which on a group's responses share
their prompt on a CPU (engines/native)."""
WORTH = 0.75
"""They do where that leaves at most this share of a pass's positions."""
CONTEXT = {"cpu": 0.4e9, "gpu": 0.8e9}
"""Python with its libraries in main memory; the CUDA context and libraries on a GPU."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one worker by what needs them; `total` is the estimated peak."""

    weights: float
    optimizer: float
    copies: float
    """The sampler's and the reference policy's copies of the weights."""
    gradients: float
    activations: float
    """Of one micro-batch, with the head's logits and the weights' casts to 16 bits."""
    optimizer_step: float
    """Temporaries of the optimizer's step."""
    sampling: float
    """Keys and values of the responses sampled at a time, and the draw."""
    context: float
    """Of the process itself."""

    @property
    def total(self) -> float:
        """Bytes at the highest point: what always stays, and the larger of updating and sampling."""
        updating = self.gradients + max(self.activations, self.optimizer_step)
        return self.context + self.weights + self.optimizer + self.copies + max(updating, self.sampling)

    def __str__(self) -> str:
        shown = {
            "weights": self.weights,
            "optimizer": self.optimizer,
            "copies of the weights": self.copies,
            "gradients": self.gradients,
            "activations": self.activations,
            "sampling": self.sampling,
        }
        return ", ".join(f"{name} {gigabytes(value)}" for name, value in shown.items() if value >= 5e7)


def gigabytes(value: float) -> str:
    """Bytes in gigabytes (1e9), for people."""
    return f"{value / 1e9:,.0f} GB" if value >= 1e11 else f"{value / 1e9:.3g} GB"


def estimate(
    shape: ModelShape,
    settings: Settings,
    *,
    prompt_tokens: int,
    response_tokens: int,
    answer_tokens: int = 0,
    on_gpu: bool = True,
) -> Memory:
    """The memory of one run whose longest prompts and responses have about this many tokens.

    `answer_tokens` is the length of a benchmark's longest answers, which are sampled and not trained on.
    """
    update, rollout = settings.update, settings.rollout
    place = "gpu" if on_gpu else "cpu"
    adapted = update.lora_rank > 0
    base = update.dtype if adapted else "float32"
    trained = shape.adapter_parameters(update.lora_rank) if adapted else shape.parameters
    weights = shape.parameters * BYTES[base] + (4.0 * trained if adapted else 0.0)
    shared = rollout.dtype == base and rollout.sampler == "transformers"
    copies = 0.0 if shared else float(shape.parameters * BYTES[rollout.dtype])
    if rollout.staleness:  # what is frozen beside adapters is shared; older weights than these lie in main memory
        copies += 4.0 * trained
    if settings.objective.kl_coef > 0 and not adapted:
        copies += 4.0 * shape.parameters
    eight_bit = update.optimizer == "adamw-8bit"
    length = prompt_tokens + response_tokens
    # A critic is another model of the size, trained in turns with the policy: its activations are not there at once.
    models = 2 if settings.objective.advantage == "gae" else 1
    # The largest mini-batch: whole groups, shared out as evenly as they go.
    groups = -(-rollout.prompts_per_step // min(update.minibatches, rollout.prompts_per_step))
    rows = groups * rollout.group_size
    positions = max(length, min(update.microbatch_tokens, rows * length))
    trained_tokens = positions * response_tokens / length
    if shape.masked and not on_gpu and shape.parameters >= LARGE and positions == rows * length:
        together = groups * (prompt_tokens + rollout.group_size * response_tokens)
        positions = together if together <= WORTH * positions else positions
    rows = min(rollout.at_a_time, rollout.prompts_per_step * rollout.group_size)
    logits = 4.0 * trained_tokens * shape.vocabulary
    head = HEAD_BLOCK[place] + (logits if logits <= HEAD_KEPT else 0.0)
    casts = 2.0 * shape.parameters if update.dtype != "float32" and not adapted else 0.0
    longest = max(response_tokens, answer_tokens)
    cache = 2 * shape.layers * shape.kv_width * BYTES[rollout.dtype]
    return Memory(
        weights=models * weights,
        optimizer=models * (2.1 if eight_bit else 8.0) * trained,
        copies=copies,
        gradients=4.0 * trained,
        activations=_activations(shape, settings) * positions + head + casts,
        optimizer_step=0.0 if eight_bit or trained >= LARGE else 4.0 * trained,
        sampling=rows * ((prompt_tokens + longest) * cache + float(DRAW_BYTES * shape.vocabulary)),
        context=CONTEXT[place],
    )


def _activations(shape: ModelShape, settings: Settings) -> float:
    """Bytes per position that the backward pass keeps."""
    layer = layer_activations(shape, settings.update.dtype)
    if settings.update.gradient_checkpointing:
        # Each layer's input, and one layer at a time in full.
        return 4.0 * shape.width * (shape.layers + 2) + layer
    return layer * shape.layers + 8.0 * shape.width


def layer_activations(shape: ModelShape, dtype: str) -> float:
    """Bytes per position that one layer keeps for its backward pass."""
    heads, keys = shape.query_width, shape.kv_width
    spread = shape.experts_per_token
    norms = heads + keys if shape.head_norms else 0
    if dtype == "float32":
        inner = 2 * spread * shape.width + 4 * spread * shape.inner if shape.experts else 4 * shape.inner
        return 4.0 * (6 * shape.width + 2 * heads + 2 * keys + 2 * norms + inner)
    # Under autocast the residual stream and the norms stay float32, and every matrix product casts its own input.
    inner = 2 * spread * shape.width + 8 * spread * shape.inner if shape.experts else 8 * shape.inner
    return 26.0 * shape.width + 7 * (heads + 2 * keys) + 6 * norms + inner
