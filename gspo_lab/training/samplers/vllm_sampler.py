"""Sample with vLLM in the worker's process: one engine per run, whose weights follow the trainer's.

    first use ──> engine with random weights ──> push, check
    sample    ──> vLLM draws with its kernels; `Stopping` decides when a response ends
    rest      ──> frees caches and weights if the platform can
    refresh   ──> push, check

The engine's folder holds configuration and tokenizer only.
In one process weights are passed by reference, and no other process can outlive the worker.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.models.routing import Routers
from gspo_lab.training.samplers import NEEDS_GPU, NO_VLLM
from gspo_lab.training.samplers import vllm_weight_sync as weight_sync
from gspo_lab.training.samplers.base import Request, Rollout, Sampling, noise_key
from gspo_lab.training.samplers.stopping import Stopping

GPU_SHARE = 0.3
"""The share of a GPU's memory for the engine and its weights; the trainer gets the rest."""

AT_ONCE = 1024
"""Most responses that vLLM draws at once, its default maximum. It refuses to start with more
responses than tokens per batch."""

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
FIXED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
UNLESS_SET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the launcher assigns cores and threads
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; by default vLLM takes most of the machine's memory
}
"""vLLM's environment variables, which it reads when it is imported."""


class VllmSampler:
    """Samples at most `rows` responses at once with an engine in `dtype`, which is created at first
    use.
    """

    separate = True
    continues = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        dtype: str = "float32",
        rows: int = 512,
        batch_invariant: bool = False,
    ) -> None:
        if batch_invariant and model.device.type == "cpu":
            raise LabError(NEEDS_GPU)
        self._model = model
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._rows = rows
        self._batch_invariant = batch_invariant
        self._engine: Any = None
        self._way = ""
        self._sleeps = False
        self._stopping = Stopping.of(tokenizer, model)
        self._moe_layers = 0 if (routers := Routers.of(model)) is None else routers.layers
        self.returns_routes = self._moe_layers > 0 and model.device.type == "cuda"
        self.check: weight_sync.WeightSyncCheck | None = None
        """The check of the last push."""

    def sample(
        self, requests: Sequence[Request], sampling: Sampling, *, routes: bool = False
    ) -> list[Rollout]:
        """One rollout per request, in order; with `routes` the experts of each position."""
        engine = self._running()
        from vllm import SamplingParams

        limits = [
            min(sampling.max_tokens, request.max_tokens or sampling.max_tokens)
            for request in requests
        ]
        self._check_length(requests, limits)
        stopping = self._stopping(sampling.stop)
        common: JsonObject = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": 0,  # of the drawn token alone
            **stopping.for_vllm(),
        }
        # Cached prefixes would change the shapes of products, and so their last bits.
        weight_sync.empty_prefix_cache(engine)
        answers = engine.generate(
            [{"prompt_token_ids": list(request.fed_ids)} for request in requests],
            [
                SamplingParams(seed=_seed(request), max_tokens=limit, **common)
                for request, limit in zip(requests, limits, strict=True)
            ],
            use_tqdm=False,
        )
        return [
            self._rollout(request, answer.outputs[0], stopping, routes)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def refresh(self) -> None:
        """Push the trainer's weights into the engine, and check that they arrived."""
        if self._engine is None:
            return
        if self._sleeps:
            self._engine.wake_up()
        with _quiet():
            self.check = weight_sync.push(self._engine, self._model, self._dtype, self._way)

    def pause(self) -> None:
        """Free the GPU's memory until the next call."""
        if self._sleeps:
            self._engine.sleep(level=2)

    def facts(self) -> dict[str, str]:
        """vLLM's version, its way to get weights, and whether its draws are batch-invariant."""
        self._running()
        from vllm import __version__

        invariant = {BATCH_INVARIANT: "1"} if self._batch_invariant else {}
        return {"vllm": __version__, "push": self._way, **invariant}

    def _rollout(self, request: Request, output: Any, stopping: Stopping, routes: bool) -> Rollout:
        ids = list(output.token_ids)
        logprobs = weight_sync.token_logprobs(output)
        given_tokens = len(request.given_ids)
        response_ids = [*request.given_ids, *ids]
        if stopping.spanning and (end := stopping.end(response_ids, given_tokens)) is not None:
            response_ids = response_ids[:end]
            ids = ids[: end - given_tokens]
            logprobs = logprobs[: end - given_tokens]
        return Rollout(
            request=request,
            response_ids=ids,
            logprobs=logprobs,
            text=stopping.text(response_ids, given_tokens),
            truncated=output.finish_reason == "length"
            and not stopping.has_ended(response_ids, given_tokens),
            routes=self._routes(output, len(request.fed_ids) + len(ids) - 1) if routes else None,
        )

    def _routes(self, output: Any, positions: int) -> Any:
        routes_SLK = output.routed_experts
        if (
            routes_SLK is None
            or len(routes_SLK) < positions
            or routes_SLK.shape[1] != self._moe_layers
        ):
            returned = "none" if routes_SLK is None else f"an array of shape {routes_SLK.shape}"
            raise LabError(
                f"vLLM was asked for the experts of {positions} positions in {self._moe_layers}"
                f" layers and gave {returned}; use rollout.sampler = 'transformers'"
            )
        return np.asarray(routes_SLK[:positions], dtype=np.int16)

    def _running(self) -> Any:
        """The engine, created at the first call.

        LabError if vLLM is missing, broken or lacks the model.
        """
        if self._engine is None:
            with _quiet():
                engine = self._start()
                self._way, self.check = weight_sync.first_push(engine, self._model, self._dtype)
            self._engine = engine  # never sample from unchecked weights
        return self._engine

    def _start(self) -> Any:
        os.environ.update(FIXED)
        if self._batch_invariant:
            os.environ[BATCH_INVARIANT] = "1"
        for name, value in UNLESS_SET.items():
            os.environ.setdefault(name, value)
        try:
            from vllm import LLM
            from vllm.platforms import current_platform
        except ModuleNotFoundError as error:
            raise LabError(
                NO_VLLM if error.name == "vllm" else f"vLLM lacks the package {error.name}"
            ) from error
        except (
            Exception
        ) as error:  # torchvision of another build raises RuntimeError, others OSError
            raise LabError(
                f"vLLM cannot be imported ({weight_sync.error_line(error)}); see"
                " docs/reference/samplers.md"
            ) from error
        on_cpu = self._model.device.type == "cpu"
        self._sleeps = not on_cpu and current_platform.is_sleep_mode_available()
        with TemporaryDirectory(prefix="gspo-lab-vllm-") as folder:
            self._write_config(Path(folder))
            try:
                return LLM(
                    model=folder,
                    dtype=self._dtype,
                    load_format="dummy",
                    seed=0,
                    max_num_seqs=min(self._rows, AT_ONCE),
                    max_model_len=-1,  # as long as the model's own limit and the memory allow
                    logprobs_mode="processed_logprobs",
                    generation_config="vllm",
                    disable_log_stats=True,
                    enforce_eager=on_cpu,
                    # A prompt computed in parts has its first draw taken back, which a CPU's
                    # generator cannot do.
                    enable_chunked_prefill=not on_cpu,
                    gpu_memory_utilization=GPU_SHARE,
                    enable_sleep_mode=self._sleeps,
                    enable_return_routed_experts=self.returns_routes,
                )
            except Exception as error:  # pydantic, torch and vLLM each raise their own
                raise LabError(
                    f"vLLM cannot run the model ({weight_sync.error_line(error)}); try the"
                    " 'transformers' sampler"
                ) from error

    def _write_config(self, folder: Path) -> None:
        config = self._model.config
        config.architectures = [type(self._model).__name__]
        config.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)

    def _check_length(self, requests: Sequence[Request], limits: Sequence[int]) -> None:
        context = self._engine.llm_engine.model_config.max_model_len
        for request, limit in zip(requests, limits, strict=True):
            if len(request.fed_ids) + limit > context:
                raise LabError(
                    f"a prompt of {len(request.fed_ids)} tokens and max_tokens = {limit} are more"
                    f" than the {context} that vLLM has room for; lower max_tokens or give it more"
                    " memory (docs/reference/samplers.md)"
                )


def _seed(request: Request) -> int:
    """vLLM restarts a request's random numbers, so a continuation needs another seed than the first
    tokens.
    """
    return (
        noise_key(request.noise_key, len(request.given_ids))
        if request.given_ids
        else request.noise_key
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the deprecation warnings of vLLM's imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
