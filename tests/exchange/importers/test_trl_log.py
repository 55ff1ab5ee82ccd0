"""TRL's own trainer trains, and its log is imported.

Its clip fractions stand beside the lab's of the same batch.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from logs import bring, opened, report

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.store.records import read_updates

pytest.importorskip("trl", reason="TRL is not installed: nox -s trl")
pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]

STEPS = 6
BAND = (2e-3, 3e-3)
LEVELS = {"grpo": "token", "gspo": "sequence"}
CLIPS = (
    "clip_fraction_tokens",
    "clip_fraction_responses",
    "clip_fraction_tokens_low",
    "clip_fraction_tokens_high",
)


@dataclass
class Trained:
    """A folder that TRL left, and by update what the lab measures on TRL's own batch."""

    folder: Path
    ours: list[JsonObject] = field(default_factory=list)


def train(arm: str, folder: Path) -> Trained:
    """Four prompts and answers of unequal lengths in two mini-batches, each seen twice.

    Any text can win the reward.
    """
    from datasets import Dataset
    from transformers import set_seed
    from trl import GRPOConfig, GRPOTrainer

    from gspo_lab.recording.journal import to_dict
    from gspo_lab.training.models.builtin_models import build, byte_tokenizer
    from gspo_lab.training.objectives import PRESETS, Batch, Recorder, surrogate

    trained = Trained(folder)
    level: Any = LEVELS[arm]
    settings = PRESETS[arm].replace(
        importance_sampling_level=level, clip_low=BAND[0], clip_high=BAND[1]
    )

    class Seen(GRPOTrainer):  # type: ignore[misc]
        def _get_per_token_logps_and_entropies(self, *how: Any, **more: Any) -> Any:
            out = super()._get_per_token_logps_and_entropies(*how, **more)
            self.logp_BT = out[0].detach()
            return out

        def _compute_loss(self, model: Any, inputs: JsonObject) -> Any:
            loss = super()._compute_loss(model, inputs)
            mask_BT = inputs["completion_mask"].bool()
            logp_BT = self.logp_BT
            adv_BT = inputs["advantages"][:, None].expand_as(logp_BT)
            old_BT = inputs.get("old_per_token_logps", logp_BT).masked_fill(~mask_BT, 0.0)
            batch = Batch(mask_BT, adv_BT, old_BT, len(mask_BT), int(mask_BT.sum()))
            out = surrogate(logp_BT.masked_fill(~mask_BT, 0.0), batch, settings)
            tensors = {"log_ratio_BT": out.log_ratio_BT, "mask_BT": mask_BT, "adv_BT": adv_BT}
            record = Recorder(settings, {}).update(
                step=0,
                minibatch=0,
                **tensors,
                metrics=out.metrics,
                evaluated_B=mask_BT.any(dim=1),
            )
            trained.ours.append(to_dict(record))
            return loss

    set_seed(0)
    config = GRPOConfig(
        output_dir=str(folder),
        importance_sampling_level=level,
        epsilon=BAND[0],
        epsilon_high=BAND[1],
        loss_type="grpo",
        num_generations=4,
        per_device_train_batch_size=8,
        steps_per_generation=2,
        num_iterations=2,
        gradient_accumulation_steps=1,
        max_steps=STEPS,
        learning_rate=3e-3,
        logging_steps=1,
        max_completion_length=64,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Seen(
        model=build("tiny-qwen3", 0),
        args=config,
        reward_funcs=[
            lambda completions, **_: [float(sum(text.encode()) % 3 == 0) for text in completions]
        ],
        train_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+12=", "33+3=", "4="]}),
        processing_class=byte_tokenizer(),
    )
    trainer.train()
    trainer.save_state()
    return trained


def test_clip_fractions_agree_where_they_are_one_and_are_refused_where_not(tmp_path: Path) -> None:
    both = {arm: train(arm, tmp_path / arm) for arm in LEVELS}
    for arm, one in both.items():
        assert len(one.ours) == STEPS
        said = bring(
            tmp_path,
            "trl",
            one.folder,
            "--study",
            "x",
            "--arm",
            arm,
            "--seed",
            0,
            "--set",
            f"objective={arm}",
        )
        assert said.code == 0, said.err
    with opened(tmp_path) as evidence:
        frame = read_updates(evidence, "x", CLIPS)
    theirs = {arm: frame[frame["arm"] == arm] for arm in LEVELS}

    def ours(arm: str, name: str) -> list[float]:
        return [update[name] for update in both[arm].ours]

    # GRPO: TRL's is the share of tokens, with its two sides; of responses it says nothing.
    for name in CLIPS:
        if name == "clip_fraction_responses":
            assert theirs["grpo"][name].isna().all()
        else:
            assert theirs["grpo"][name].tolist() == pytest.approx(ours("grpo", name), abs=1e-6), (
                name
            )
    assert max(ours("grpo", "clip_fraction_tokens")) > 0.1
    # GSPO: TRL's is the share of responses, which is none of tokens: no column of tokens is filled
    # from it.
    assert theirs["gspo"]["clip_fraction_responses"].tolist() == pytest.approx(
        ours("gspo", "clip_fraction_responses"), abs=1e-6
    )
    assert ours("gspo", "clip_fraction_responses") != pytest.approx(
        ours("gspo", "clip_fraction_tokens"), abs=1e-3
    )
    assert all(theirs["gspo"][name].isna().all() for name in CLIPS if "tokens" in name)
    [line] = [
        line
        for line in report(tmp_path, "x")["logged"]["not_compared"]
        if line.startswith("clip fraction:")
    ]
    assert "not compared" in line
