"""Sampling with vLLM, in the worker's own process: one engine for the whole run, whose weights follow the trainer's.

    first use ──> engine with made-up weights ──> push, proven      (its folder holds configuration and tokenizer only)
    sample    ──> vLLM draws with its own kernels; `Stopping` says when a response is over
    rest      ──> caches and weights are given up, where the platform can
    refresh   ──> push, proven

In this process weights are handed over by reference, and nothing is left behind however the worker ends.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gspo_lab.errors import LabError
from gspo_lab.models.routing import Routers
from gspo_lab.samplers.base import Request, Rollout, Sampling, noise_key
from gspo_lab.samplers.check import NEEDS_GPU, NO_VLLM
from gspo_lab.samplers.stopping import Stopping
from gspo_lab.samplers.vllm_push import Proof, empty_prefix_cache, first_line, first_push, push, token_logprobs

GPU_SHARE = 0.3
"""The share of a GPU's memory that the engine may take, its weights included: the rest is the trainer's."""

AT_ONCE = 1024
"""Responses that vLLM may draw at once, however many the study allows: as many as it takes itself at most. It refuses
to start with more of them than tokens that it computes at once."""

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
FIXED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
UNLESS_SET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores and threads are the launcher's to give
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; by itself vLLM takes most of the machine's memory
}
"""vLLM's environment variables, which it reads when it is imported."""


class VllmSampler:
    """Draws responses, at most `rows` at a time, with an engine in `dtype` that follows `model`; made at first use."""

    separate = True
    continues = True

    def __init__(
        self, model: Any, tokenizer: Any, dtype: str = "float32", rows: int = 512, batch_invariant: bool = False
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
        self.tells_routes = self._moe_layers > 0 and model.device.type == "cuda"
        self.proof: Proof | None = None
        """Of the last push."""

    def sample(self, requests: Sequence[Request], sampling: Sampling, *, routes: bool = False) -> list[Rollout]:
        """A rollout for each request, in their order; with `routes` the experts that each token went to."""
        engine = self._running()
        from vllm import SamplingParams

        limits = [min(sampling.max_tokens, request.max_tokens or sampling.max_tokens) for request in requests]
        self._check_length(requests, limits)
        stopping = self._stopping(sampling.stop)
        common: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": 0,  # of the drawn token alone
            **stopping.for_vllm(),
        }
        # What an earlier call left in the cache would change the shapes of the products, and so the last bits.
        empty_prefix_cache(engine)
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
        """Push the trainer's weights into the engine, and prove that they have arrived."""
        if self._engine is None:
            return
        if self._sleeps:
            self._engine.wake_up()
        with _quiet():
            self.proof = push(self._engine, self._model, self._dtype, self._way)

    def rest(self) -> None:
        """Give the GPU's memory back until the next call."""
        if self._sleeps:
            self._engine.sleep(level=2)

    def facts(self) -> dict[str, str]:
        """vLLM's version, the way in which it gets weights, and whether it draws each response by itself."""
        self._running()
        from vllm import __version__

        invariant = {BATCH_INVARIANT: "1"} if self._batch_invariant else {}
        return {"vllm": __version__, "push": self._way, **invariant}

    def _rollout(self, request: Request, output: Any, stopping: Stopping, routes: bool) -> Rollout:
        ids, logprobs, given = list(output.token_ids), token_logprobs(output), len(request.given_ids)
        whole = [*request.given_ids, *ids]
        if stopping.spanning and (end := stopping.end(whole, given)) is not None:
            whole, ids, logprobs = whole[:end], ids[: end - given], logprobs[: end - given]
        return Rollout(
            request=request,
            response_ids=ids,
            logprobs=logprobs,
            text=stopping.text(whole, given),
            truncated=output.finish_reason == "length" and not stopping.over(whole, given),
            routes=self._routes(output, len(request.fed_ids) + len(ids) - 1) if routes else None,
        )

    def _routes(self, output: Any, positions: int) -> Any:
        routes_SLK = output.routed_experts
        if routes_SLK is None or len(routes_SLK) < positions or routes_SLK.shape[1] != self._moe_layers:
            found = "none" if routes_SLK is None else f"an array of shape {routes_SLK.shape}"
            raise LabError(
                f"vLLM was asked for the experts of {positions} positions in {self._moe_layers} layers and gave "
                f"{found}; use rollout.sampler = 'transformers'"
            )
        return np.asarray(routes_SLK[:positions], dtype=np.int16)

    def _running(self) -> Any:
        """The engine, made at the first call. LabError where vLLM is absent, broken or does not know the model."""
        if self._engine is None:
            with _quiet():
                engine = self._start()
                self._way, self.proof = first_push(engine, self._model, self._dtype)
            self._engine = engine  # nothing is sampled from what was not proven
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
            raise LabError(NO_VLLM if error.name == "vllm" else f"vLLM lacks the package {error.name}") from error
        except Exception as error:  # torchvision of another build raises RuntimeError, others OSError
            raise LabError(
                f"vLLM cannot be imported ({first_line(error)}); docs/reference/samplers.md has the installation"
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
                    # A prompt computed in parts has its first draw taken back, which a CPU's generator cannot do.
                    enable_chunked_prefill=not on_cpu,
                    gpu_memory_utilization=GPU_SHARE,
                    enable_sleep_mode=self._sleeps,
                    enable_return_routed_experts=self.tells_routes,
                )
            except Exception as error:  # pydantic, torch and vLLM each raise their own
                raise LabError(
                    f"vLLM cannot run the model ({first_line(error)}); try the 'transformers' sampler"
                ) from error

    def _write_config(self, folder: Path) -> None:
        config = self._model.config
        config.architectures = [type(self._model).__name__]
        config.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)

    def _check_length(self, requests: Sequence[Request], limits: Sequence[int]) -> None:
        room = self._engine.llm_engine.model_config.max_model_len
        for request, limit in zip(requests, limits, strict=True):
            if len(request.fed_ids) + limit > room:
                raise LabError(
                    f"a prompt of {len(request.fed_ids)} tokens and max_tokens = {limit} are more than the {room} "
                    "that vLLM has room for; lower max_tokens or give it more memory (docs/reference/samplers.md)"
                )


def _seed(request: Request) -> int:
    """vLLM begins a request's random numbers anew: a continuation needs others than those of the first tokens."""
    return noise_key(request.noise_key, len(request.given_ids)) if request.given_ids else request.noise_key


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the deprecation warnings that vLLM's own imports raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
