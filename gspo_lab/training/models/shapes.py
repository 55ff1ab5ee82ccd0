"""A model's size from its configuration alone, without torch, and what one worker's training needs
of memory.

Memory is the sum of what lasts and of the larger of two moments: sampling (the cache of keys and
values) and updating (gradients, and either activations or the optimizer's temporaries). Held
against measurements: docs/reference/models.md. Shapes: H hidden size, V vocabulary, L layers, E
experts, K experts per token.
"""

from dataclasses import asdict, dataclass
from importlib.util import find_spec

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, table_beside
from gspo_lab.study.schema import Settings
from gspo_lab.training.models.check import (
    EMBEDDED,
    EMBEDDED_WIDTH,
    EXPERT_COUNTS,
    hub_folder,
    model_folder,
    read_config,
)

MASKED = ("llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "olmoe", "mixtral")
"""Model types whose attention takes a mask of its own for every row and nothing else
(engines/native).
"""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder of the Llama kind; its layers are dense or mixtures of experts."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    """Width of a dense model's feed-forward layer, or of one expert."""
    vocabulary: int
    tied: bool
    experts: int = 0
    experts_per_token: int = 0
    head_norms: str = ""
    """Norms on queries and keys: "head" (one per head's size, Qwen3), "whole" (all heads at once,
    OLMoE), "" none.
    """
    masked: bool = False
    """Whether its attention takes any mask of the trainer's, so that a group's responses can share
    their prompt.
    """
    dense_layers: int = 0
    """A mixture's layers without experts."""
    dense_inner: int = 0
    """Width of the feed-forward layer in these."""
    shared_inner: int = 0
    """Width of the shared experts of a mixture's layer, together."""
    latent_attention: int = 0
    """Parameters of a layer's attention where keys and values are compressed (DeepSeek); else 0."""

    @property
    def query_width(self) -> int:
        """The width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of all key heads together, which is that of the value heads."""
        return self.kv_heads * self.head_dim

    @property
    def mixture_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def linear_widths(self) -> int:
        """The widths of the feed-forward layers outside of routed experts, over all layers."""
        if not self.experts:
            return self.layers * self.inner
        return self.dense_layers * self.dense_inner + self.mixture_layers * self.shared_inner

    @property
    def linear_parameters(self) -> int:
        """The parameters of the linear layers outside of experts, routers and head.

        Adapters are put beside these layers.
        """
        attention = self.latent_attention or 2 * self.width * (self.query_width + self.kv_width)
        return self.layers * attention + 3 * self.width * self.linear_widths

    @property
    def parameters(self) -> int:
        """All parameters; tied ones count once."""
        norms = {"head": 2 * self.head_dim, "whole": self.query_width + self.kv_width, "": 0}[
            self.head_norms
        ]
        routed = self.experts * (3 * self.width * self.inner + self.width)
        embeddings = self.vocabulary * self.width * (1 if self.tied else 2)
        return (
            self.linear_parameters
            + self.mixture_layers * routed
            + self.layers * (2 * self.width + norms)
            + self.width
            + embeddings
        )

    @property
    def active_parameters(self) -> int:
        """The parameters that one token is computed with.

        The embedding table counts once, as the head.
        """
        experts = self.mixture_layers * self.experts_per_token * 3 * self.width * self.inner
        return self.linear_parameters + experts + self.vocabulary * self.width

    def adapter_parameters(self, rank: int) -> int:
        """The parameters of adapters of this rank: rank x (inputs + outputs) per linear layer."""
        attention = 2 * (self.width + self.query_width) + 2 * (self.width + self.kv_width)
        feed_forward_layers = self.layers if not self.experts else self.dense_layers
        if self.shared_inner:
            feed_forward_layers += self.mixture_layers
        feed_forward = 3 * (feed_forward_layers * self.width + self.linear_widths)
        return rank * (self.layers * attention + feed_forward)


PUBLISHED: dict[str, ModelShape] = {
    name: ModelShape(**sizes)
    for name, sizes in table_beside(__file__, "published_models.toml").items()
}
"""From the config.json that each was published with, so that a study can be planned before anything
is downloaded.
"""

VARIANTS = ("-Base", "-Instruct-2507", "-Thinking-2507", "-Instruct", "-SFT")
"""Endings of Hub ids whose models have the shape of the one without."""


def model_shape(name: str) -> ModelShape | None:
    """The shape of a folder's, a downloaded or a published model; None where it is embedded or not
    known.

    LabError where its config.json cannot be read.
    """
    if name in EMBEDDED:
        return None
    if (folder := model_folder(name)) is not None:
        return shape_of(read_config(folder))
    for config in sorted(hub_folder(name).glob("snapshots/*/config.json")):
        return shape_of(read_config(config.parent))
    short = next((name.removesuffix(ending) for ending in VARIANTS if name.endswith(ending)), name)
    return PUBLISHED.get(name) or PUBLISHED.get(short)


def check_rank(name: str, rank: int) -> None:
    """LabError where adapters of this rank are as wide as the model itself; of an unknown model
    nothing is said.
    """
    if name in EMBEDDED:
        width = EMBEDDED_WIDTH
    elif (shape := model_shape(name)) is not None:
        width = shape.width
    else:
        return
    if rank > width:
        raise LabError(
            f"update.lora_rank = {rank}: the layers of '{name}' are {width} wide, and an adapter of"
            " a higher rank has more weights than what it stands beside; use 8 to 64, or 0 to"
            " train all weights"
        )


def shape_of(config: JsonMapping) -> ModelShape | None:
    """The shape that a config.json describes; None where it lacks what every decoder of this kind
    has.
    """
    config = {**config, **(config.get("text_config") or {})}
    try:
        width = int(config["hidden_size"])
        heads = int(config["num_attention_heads"])
        layers = int(config["num_hidden_layers"])
        experts = next((int(config[key]) for key in EXPERT_COUNTS if config.get(key)), 0)
        expert_width = config.get("moe_intermediate_size") if experts else None
        family = str(config.get("model_type", ""))
        return ModelShape(
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=_head_dim(config, width // heads),
            inner=int(expert_width or config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
            experts=experts,
            experts_per_token=int(config.get("num_experts_per_tok") or 0),
            masked=family in MASKED
            and set(config.get("layer_types") or ["full_attention"]) == {"full_attention"},
            head_norms=_head_norms(family),
            dense_layers=_dense_layers(config, layers) if experts else 0,
            dense_inner=int(config["intermediate_size"]) if experts else 0,
            shared_inner=_shared_inner(config) if experts else 0,
            latent_attention=_latent_attention(config, width, heads),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _head_dim(config: JsonMapping, usual: int) -> int:
    if config.get("kv_lora_rank"):  # DeepSeek's head_dim is that of the rotated part alone
        return int(config["qk_rope_head_dim"]) + int(config["qk_nope_head_dim"])
    return int(config.get("head_dim") or usual)


def _head_norms(family: str) -> str:
    if family.startswith("qwen3"):
        return "head"
    return "whole" if family.startswith("olmo") else ""


def _dense_layers(config: JsonMapping, layers: int) -> int:
    """How many layers of a mixture have no experts, by the keys of Qwen and of DeepSeek."""
    only_dense = config.get("mlp_only_layers") or ()
    first_sparse = int(config.get("first_k_dense_replace") or 0)
    step = int(config.get("decoder_sparse_step") or 1)
    frequency = int(config.get("moe_layer_freq") or 1)
    sparse = [
        layer
        for layer in range(first_sparse, layers)
        if layer not in only_dense and (layer + 1) % step == 0 and layer % frequency == 0
    ]
    return layers - len(sparse)


def _shared_inner(config: JsonMapping) -> int:
    """The width of the experts that every token uses, together."""
    width = config.get("shared_expert_intermediate_size") or config.get("shared_intermediate_size")
    if width:
        return int(width)
    return int(config.get("n_shared_experts") or 0) * int(config.get("moe_intermediate_size") or 0)


def _latent_attention(config: JsonMapping, width: int, heads: int) -> int:
    """Parameters of DeepSeek's attention in one layer; 0 in other families."""
    latent = int(config.get("kv_lora_rank") or 0)
    if not latent:
        return 0
    rotated = int(config["qk_rope_head_dim"])
    plain = int(config["qk_nope_head_dim"])
    value = int(config["v_head_dim"])
    query_latent = int(config.get("q_lora_rank") or 0)
    queries = heads * (rotated + plain)
    query = query_latent * (width + queries) if query_latent else width * queries
    keys_and_values = width * (latent + rotated) + latent * heads * (plain + value)
    return query + keys_and_values + heads * value * width


BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
HEAD_KEPT = 2**27
HEAD_BLOCK = {"cpu": 2e7, "gpu": 2e8}
"""Float32 logits that wait for the backward pass (engines/native/lm_head.py), and what one block of
them takes.
"""
DRAW_BYTES = 12
"""Per sampled row and vocabulary entry: logits, log-probs and their noise."""
LARGE = 2**26
"""Trained parameters from which on the optimizer makes no copies, and all from which on a group's
responses share their prompt on a CPU (engines/native)."""
WORTH = 0.75
"""They do where that leaves at most this share of a pass's positions."""
CUDA_CONTEXT = 0.8e9
"""The CUDA context and libraries in a GPU's memory, and in main memory with torch's CUDA build."""
CPU_PROCESS = 0.4e9
"""In main memory, what a worker imports with torch's build for CPUs."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one worker by what needs them; `total` is the estimated peak."""

    context: float
    """Memory of the process and its libraries, before it has a model."""
    weights: float
    optimizer: float
    copies: float
    """The sampler's and the reference policy's copies of the weights."""
    gradients: float
    activations: float
    """Memory of one micro-batch, with the head's logits and the weights' casts to 16 bits."""
    optimizer_step: float
    """Temporaries of the optimizer's step."""
    routes: float
    """The experts that were chosen at each position of a rollout batch (routing replay)."""
    sampling: float
    """Keys and values of the responses sampled at a time, and the draw."""

    @property
    def total(self) -> float:
        """Bytes at the highest point: what always stays, and the larger of updating and
        sampling.
        """
        updating = self.gradients + max(self.activations, self.optimizer_step)
        return (
            self.context
            + self.weights
            + self.optimizer
            + self.copies
            + self.routes
            + max(updating, self.sampling)
        )

    def __str__(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {gigabytes(size)}"
            for name, size in asdict(self).items()
            if size >= 5e7
        )


def gigabytes(value: float) -> str:
    """Bytes in gigabytes (1e9), for people."""
    return f"{value / 1e9:,.0f} GB" if value >= 1e11 else f"{value / 1e9:.3g} GB"


def keeps_start(settings: Settings) -> bool:
    """Whether a run keeps its starting policy: for a KL term, or to record the KL to it."""
    recorded = settings.record.kl_to_start
    if recorded is None:
        recorded = settings.model in EMBEDDED
    return recorded or settings.objective.kl_coef > 0


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

    `answer_tokens` is the length of a benchmark's longest answers, which are sampled and not
    trained on.
    """
    update = settings.update
    rollout = settings.rollout
    place = "gpu" if on_gpu else "cpu"
    adapted = update.lora_rank > 0
    base = update.dtype if adapted else "float32"
    trained = shape.adapter_parameters(update.lora_rank) if adapted else shape.parameters
    weights = shape.parameters * BYTES[base] + (4.0 * trained if adapted else 0.0)
    shared = rollout.dtype == base and rollout.sampler == "transformers"
    copies = 0.0 if shared else float(shape.parameters * BYTES[rollout.dtype])
    if (
        rollout.staleness
    ):  # what is frozen beside adapters is shared; older weights than these lie in main memory
        copies += 4.0 * trained
    if keeps_start(settings) and not adapted:
        copies += 4.0 * shape.parameters
    eight_bit = update.optimizer == "adamw-8bit"
    length = prompt_tokens + response_tokens
    # A critic is another model of the size, trained in turns with the policy: its activations are
    # not there at once.
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
        routes=_routes(shape, settings, length) if shape.experts else 0.0,
        sampling=rows * ((prompt_tokens + longest) * cache + float(DRAW_BYTES * shape.vocabulary)),
        context=CUDA_CONTEXT if on_gpu or find_spec("nvidia") else CPU_PROCESS,
    )


def _routes(shape: ModelShape, settings: Settings, length: int) -> float:
    """Bytes of the experts' numbers (16 bits) that a rollout batch keeps.

    The routers' own choice is always kept. Replay of the sampler's keeps that twice: per response,
    and padded to a batch.
    """
    rollout = settings.rollout
    copies = 3 if settings.routing_replay == "rollout" else 1
    positions = rollout.prompts_per_step * rollout.group_size * length
    return 2.0 * copies * positions * shape.mixture_layers * shape.experts_per_token


def _activations(shape: ModelShape, settings: Settings) -> float:
    """Bytes per position that the backward pass keeps."""
    dtype = settings.update.dtype
    mixture = layer_activations(shape, dtype)
    dense = layer_activations(shape, dtype, dense=True)
    if settings.update.gradient_checkpointing:
        # Each layer's input, and one layer at a time in full.
        return 4.0 * shape.width * (shape.layers + 2) + max(mixture, dense)
    sparse_layers = shape.mixture_layers
    layers = sparse_layers * mixture + (shape.layers - sparse_layers) * dense
    return layers + 8.0 * shape.width


def layer_activations(shape: ModelShape, dtype: str, *, dense: bool = False) -> float:
    """Bytes per position that one layer keeps for its backward pass: a mixture's layer with
    experts, or its `dense` one.
    """
    heads = shape.query_width
    keys = shape.kv_width
    norms = heads + keys if shape.head_norms else 0
    mixture = shape.experts > 0 and not dense
    spread = shape.experts_per_token if mixture else 0
    inner = shape.dense_inner if shape.experts else shape.inner
    if mixture:
        inner = shape.shared_inner
    routed = 2 * spread * shape.width
    if dtype == "float32":
        feed_forward = routed + 4 * spread * shape.inner + 4 * inner
        return 4.0 * (6 * shape.width + 2 * heads + 2 * keys + 2 * norms + feed_forward)
    # Under autocast the residual stream and the norms stay float32, and every matrix product casts
    # its own input.
    feed_forward = routed + 8 * spread * shape.inner + 8 * inner
    return 26.0 * shape.width + 7 * (heads + 2 * keys) + 6 * norms + feed_forward
