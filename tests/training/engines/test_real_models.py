"""Models of every family that a study may name, from a folder.

They are trained whole or by adapters, saved, and evaluated again.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from calling import lab_error
from lottery import MakeRun, components, train
from transformers import AutoModelForCausalLM, AutoTokenizer

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run
from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides, bench_of
from gspo_lab.tasks.evaluation.evaluated_models import run_subjects
from gspo_lab.tasks.evaluation.evaluation_run import evaluate_subject
from gspo_lab.training.models.builtin_models import EOS_ID, PAD_ID, VOCABULARY, byte_tokenizer
from gspo_lab.training.models.load import load_model, weights_digest
from gspo_lab.training.models.lora import adapters_off, is_adapted, merged_state, plain_state

SMALL: JsonObject = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD_ID,
    "bos_token_id": None,
    "eos_token_id": EOS_ID,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
FAMILIES: dict[str, JsonObject] = {
    "Qwen3": {"head_dim": 8, "tie_word_embeddings": True},
    "Llama": {"tie_word_embeddings": False},
    "Qwen3Moe": {
        "head_dim": 8,
        "moe_intermediate_size": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    "Olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
every_family = pytest.mark.parametrize("family", FAMILIES)
LORA = ("update.lora_rank=4", "update.lora_alpha=8", "update.learning_rate=0.02")


@pytest.fixture
def saved(tmp_path: Path, family: str) -> Path:
    return save(tmp_path / family, family)


def save(folder: Path, family: str) -> Path:
    """A random model of the family with the byte tokenizer, as save_pretrained leaves it."""
    torch.manual_seed(5)
    config = getattr(tf, f"{family}Config")(**SMALL, **FAMILIES[family])
    getattr(tf, f"{family}ForCausalLM")(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        return model(ids.to(model.device)).logits.float()


def finish(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run.to_json()))


@every_family
def test_a_model_folder_is_trained_saved_and_asked_again(
    family: str, saved: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(
        "gspo", f"model={saved}", "update.gradient_checkpointing=true", "rollout.dtype=bfloat16"
    )
    finish(run, tmp_path / "run")
    memory = train(run, tmp_path / "run")
    assert all(update.nonfinite == 0 for update in memory.updates)
    assert any(update.grad_norm for update in memory.updates)
    routed = family in ("Qwen3Moe", "Olmoe", "Mixtral")
    assert any(update.router_entropy is not None for update in memory.updates) is routed
    final = tmp_path / "run/checkpoints/final"
    initial, _ = load_model(str(saved), dtype="float32", device="cpu")
    reloaded, info = AutoModelForCausalLM.from_pretrained(final, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (logits(reloaded) - logits(initial)).abs().max() > 1e-4
    assert AutoTokenizer.from_pretrained(final).encode("a") == [97]
    if routed:
        assert reloaded.config._experts_implementation == "grouped_mm"
    task = run.settings.task
    bench = bench_of(
        task.name, task.options, Path(run.base), BenchmarkOverrides(samples=1, problems=2)
    )
    requested = [
        evaluate_subject(subject, bench, lambda _: None)
        for subject in run_subjects(RunFolder(tmp_path / "run"))
    ]
    assert [item.new for item in requested] == [2, 2]


@every_family
def test_adapters_train_alone_and_end_up_in_the_weights(
    family: str, saved: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo", f"model={saved}", *LORA)
    finish(run, tmp_path / "run")
    memory = train(run, tmp_path / "run")
    facts = memory.statuses[0].facts
    assert 0 < facts["trained_parameters"] < facts["parameters"] / 2
    assert "peft" in facts["packages"]
    original, _ = load_model(str(saved), dtype="float32", device="cpu")
    assert facts["weights"] == weights_digest(original), (
        "what the adapters stand beside is the model that was named"
    )
    resume = torch.load(tmp_path / "run/checkpoints/resume.pt", weights_only=True)
    assert all(".lora_" in name for name in resume["trained"]["policy"]["model"]), (
        "frozen weights are not saved again and again"
    )
    final = AutoModelForCausalLM.from_pretrained(tmp_path / "run/checkpoints/final")
    moved = {
        name
        for name, value in final.state_dict().items()
        if not torch.equal(value, original.state_dict()[name])
    }
    assert moved
    assert all("_proj" in name and "experts" not in name for name in moved)


def test_adapters_begin_as_nothing_and_can_be_switched_off(make_run: MakeRun) -> None:
    setting = components(make_run("gspo", "model=tiny-qwen3", *LORA))
    model = setting.policy.model
    start = logits(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.2)
    adapted = logits(model)
    assert (adapted - start).abs().max() > 0.1
    with adapters_off(model):
        assert torch.equal(logits(model), start)
    assert torch.equal(logits(model), adapted)
    plain = type(model)(model.config).eval()
    plain.load_state_dict(merged_state(model))
    assert torch.allclose(logits(plain), adapted, atol=1e-4)
    plain.load_state_dict(plain_state(model))
    assert torch.allclose(logits(plain), start, atol=1e-6)
    assert is_adapted(model)
    assert not is_adapted(plain)


def test_the_kl_term_s_reference_is_the_model_without_adapters(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("grpo", "model=tiny-qwen3", *LORA, "objective.kl_coef=0.1", "update.epochs=2")
    setting = components(run)
    assert setting.reference is setting.policy, "no second copy of the weights"
    memory = train(run, tmp_path / "run")
    assert memory.updates[0].kl == pytest.approx(0.0, abs=1e-9)
    assert memory.updates[-1].kl > 1e-6


def test_a_frozen_base_in_bfloat16_serves_sampler_and_trainer_alike(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(
        "gspo", "model=tiny-qwen3-moe", *LORA, "update.dtype=bfloat16", "rollout.dtype=bfloat16"
    )
    setting = components(run)
    assert not setting.sampler.separate
    kinds = {
        (parameter.requires_grad, parameter.dtype)
        for parameter in setting.policy.model.parameters()
    }
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    memory = train(run, tmp_path / "run")
    assert {(update.nonfinite, update.router_grad_norm) for update in memory.updates} == {
        (0, None)
    }, "frozen routers"
    assert memory.steps[0].mismatch_abs_max < 0.5


def test_eight_bit_moments_are_refused_on_a_cpu(make_run: MakeRun) -> None:
    run = make_run("gspo", "update.optimizer=adamw-8bit", "device=cpu")
    with lab_error(r"pip install 'gspo-lab\[8bit\]'|works on a GPU only"):
        components(run)


def test_thinking_is_written_into_the_template_that_the_checkpoint_keeps(
    make_run: MakeRun, tmp_path: Path
) -> None:
    folder = save(tmp_path / "thinks", "Qwen3")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if"
        " add_generation_prompt %}[bot]{% if enable_thinking is defined and not enable_thinking"
        " %}<think></think>{% endif %}{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    run = make_run("gspo", f"model={folder}", "rollout.thinking=false", "steps=1")
    memory = train(run, tmp_path / "run")
    retained = AutoTokenizer.from_pretrained(tmp_path / "run/checkpoints/final")
    requested = retained.apply_chat_template(
        [{"role": "user", "content": "1"}], add_generation_prompt=True, tokenize=False
    )
    assert requested == "[user]1[bot]<think></think>"
    assert memory.statuses[0].facts["pad_is_eos"] is False
    plain = components(
        replace(run, settings=run.settings.model_copy(update={"model": str(folder)}))
    )
    assert plain.tokenizer.chat_template.count("set enable_thinking") == 1
    with lab_error("has no chat template; leave the key out"):
        components(make_run("gspo", "rollout.thinking=true"))
