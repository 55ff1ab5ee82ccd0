"""The native engine on real models.

What it records, that it repeats itself, what dies in it, and losses of others.
"""

import math
import shutil
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from lottery import Killed, MakeRun, Memory, Trained, components, final, recorded, train
from safetensors.torch import load_file
from small_models import small_start

import gspo_lab.training.objectives.losses.cispo as builtin
from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.paths import CHECKPOINTS, JOURNAL, RESUME, RUN
from gspo_lab.common.plain_data import OptionalFloat, Strings
from gspo_lab.recording.journal import scan
from gspo_lab.recording.records import UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running import worker
from gspo_lab.running.plan.preflight import check
from gspo_lab.study import load_study
from gspo_lab.training.engines.native import checkpoint
from gspo_lab.training.engines.native.loop import Loop
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler


def flipped(update: UpdateRecord, rule: str = "gspo") -> OptionalFloat:
    """The column of a ratio rule, which mypy does not know."""
    actual: OptionalFloat = getattr(update, f"flip_fraction_tokens_{rule}")
    return actual


@pytest.mark.parametrize(
    ("arm", "overrides"),
    cases(__file__, "twins"),
)
def test_twins_are_bit_equal_and_minibatch_0_is_on_policy(
    arm: str, overrides: list[str], make_run: MakeRun, trained: Trained, tmp_path: Path
) -> None:
    a = trained(arm, *overrides)
    b = train(make_run(arm, *overrides), tmp_path)
    assert recorded(a) == recorded(b)
    assert len(a.steps) == 2
    assert [(u.step, u.minibatch) for u in a.updates] == [
        (s, m) for s in range(2) for m in range(4)
    ]
    for update in a.updates:
        moved = update.log_ratio_max_abs
        if not update.evaluated_responses:
            assert (moved, update.loss, update.active_tokens) == (None, 0.0, 0)
        elif update.minibatch == 0:
            assert (moved, update.clip_fraction_tokens) == (0.0, 0.0)
        else:
            assert moved > 0.0
    assert sum(update.evaluated_responses or 0 for update in a.updates) >= 16
    assert any(update.clip_fraction_tokens for update in a.updates)
    assert all(update.nonfinite == 0 for update in a.updates)


def test_another_seed_is_another_run_and_arms_share_the_first_rollout(trained: Trained) -> None:
    grpo = trained("grpo", "update.learning_rate=1e-2")
    gspo = trained("gspo", "update.learning_rate=1e-2")
    other = trained("grpo", seed=1)
    assert (
        grpo.steps[0].rollout_digest
        == gspo.steps[0].rollout_digest
        != other.steps[0].rollout_digest
    )
    assert grpo.steps[0].logprob_digest == gspo.steps[0].logprob_digest
    assert (
        grpo.steps[1].prompt_digest == gspo.steps[1].prompt_digest != other.steps[1].prompt_digest
    )
    assert grpo.steps[1].rollout_digest != gspo.steps[1].rollout_digest
    uncoupled = trained("gspo", "rollout.coupled=false")
    assert uncoupled.steps[0].rollout_digest != gspo.steps[0].rollout_digest


def test_a_kill_at_the_very_end_loses_nothing(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between any two of the last acts of a run.

    They are the final model, the last status, and the deletion of what the run would resume from.
    """

    def killed(*_: object) -> None:
        raise Killed

    def work(folder: Path, dies_at: tuple[object, str] | None = None) -> None:
        with monkeypatch.context() as patched:
            if dies_at is None:
                assert worker.train(RunFolder(folder), worker.StopSignal(None)) == 0
                return
            patched.setattr(*dies_at, killed)
            with pytest.raises(Killed):
                worker.train(RunFolder(folder), worker.StopSignal(None))

    run = make_run("gspo", "steps=3", "update.checkpoint_every=2")
    calm = tmp_path / "calm"
    harried = tmp_path / "harried"
    for folder in (calm, harried):
        write_json(
            folder / RUN, run.to_json() | {"warm_start": str(small_start(run.settings.model))}
        )
    work(calm)
    assert not (calm / CHECKPOINTS / RESUME).exists()

    def stands() -> tuple[str | None, bool]:
        """The state of the run, and whether it can resume."""
        return RunFolder(harried).status().state, (harried / CHECKPOINTS / RESUME).exists()

    work(harried, (checkpoint, "save_model"))
    assert stands() == ("interrupted", True)
    work(harried, (worker.JournalSink, "write_progress"))
    assert stands() == ("interrupted", True)
    assert (harried / "checkpoints/final").is_dir()
    work(harried, (RunFolder, "drop_resume"))
    assert stands() == ("finished", True)
    initial = (harried / JOURNAL).read_bytes()
    work(harried)
    assert not (harried / CHECKPOINTS / RESUME).exists()
    assert (harried / JOURNAL).read_bytes() == initial

    recorded = [scan(folder / JOURNAL).items for folder in (calm, harried)]
    updates = [
        {
            (r["step"], r["minibatch"]): (r["loss"], r["grad_norm"])
            for r in lines
            if r["kind"] == "update"
        }
        for lines in recorded
    ]
    assert updates[0] == updates[1]
    assert len(updates[0]) == 3 * 4
    assert final(calm) == final(harried)


def test_records_hold_what_happened(trained: Trained) -> None:
    memory = trained("gspo")
    step = memory.steps[0]
    rollouts = [a for a in memory.answers if a.bench == "rollout" and a.step == 0]
    assert (step.prompts, step.responses, len(rollouts)) == (4, 16, 16)
    assert_fields(
        step,
        reward_mean=pytest.approx(sum(a.reward for a in rollouts) / 16),
        tokens_sampled_total=sum(a.tokens for a in rollouts),
        truncated_responses=sum(a.truncated for a in rollouts) / 16,
    )
    assert (
        sum(u.response_tokens for u in memory.updates if u.step == 0) == step.tokens_sampled_total
    )
    by_prompt: dict[str, list[float]] = {}
    for a in rollouts:
        by_prompt.setdefault(a.problem, []).append(a.advantage)
    assert all(sum(advantages) == pytest.approx(0, abs=1e-5) for advantages in by_prompt.values())
    assert step.mismatch_abs_max < 1e-4
    assert 0 < step.entropy < 6
    assert step.entropy_quantiles == sorted(step.entropy_quantiles)
    assert step.entropy_quantiles[0] <= step.entropy <= step.entropy_quantiles[-1]
    benchmarks = [a for a in memory.answers if a.bench == "lottery"]
    assert [a.step for a in benchmarks] == [0] * 5 + [2] * 5
    moved = next(
        update
        for update in memory.updates
        if update.clipped_tokens and update.evaluated_responses == 4
    )
    assert 0 < moved.clip_fraction_gradient <= 1
    assert 0 < moved.relative_update_norm < 0.1
    assert sum(moved.response_detail["length"]) == moved.response_tokens
    assert sum(moved.response_detail["clipped_tokens"]) == moved.clipped_tokens
    # A dense model has no experts to measure, and says so by saying nothing.
    assert memory.updates[0].expert_change is None
    assert step.replay_bytes is None


@pytest.mark.parametrize("model", ["tiny-qwen3", "tiny-qwen3-moe"])
def test_sampler_logprobs_as_old_ones_need_no_old_policy_pass(model: str, trained: Trained) -> None:
    """Mini-batch 0's own forward pass is the old policy's.

    What is measured against the sampler covers its rows.
    """
    overrides = (
        "update.old_logprobs=sampler",
        "update.skip_zero_advantage=false",
        f"model={model}",
    )
    memory = trained("gspo", *overrides)
    earlier = memory.updates[0]
    step = memory.steps[0]
    assert 0 < earlier.log_ratio_max_abs < 1e-4
    assert step.mismatch_abs_max == pytest.approx(earlier.log_ratio_max_abs)
    assert (step.evaluated_responses, earlier.evaluated_responses) == (4, 4)
    assert step.entropy is not None
    assert flipped(earlier) is not None
    assert flipped(memory.updates[1]) is None
    if model == "tiny-qwen3-moe":
        assert earlier.expert_change == 0.0
        assert memory.updates[1].expert_change is None
        assert memory.updates[1].router_entropy is not None
        assert 0 <= memory.updates[1].dead_experts < 1


def test_mismatch_is_what_the_two_programs_say_of_the_same_tokens(trained: Trained) -> None:
    settings = ("rollout.dtype=bfloat16", "update.skip_zero_advantage=false")
    trainer = trained("gspo", *settings)
    sampler = trained("gspo", *settings, "update.old_logprobs=sampler")
    assert_fields(
        trainer.steps[0], rollout_digest=sampler.steps[0].rollout_digest, evaluated_responses=16
    )
    assert trainer.steps[0].mismatch_abs_max > 1e-4, "the sampler's arithmetic is coarser"
    # The same first mini-batch: with the trainer's log-probs nothing has moved, with the sampler's
    # it moved by d.
    a = trainer.updates[0]
    b = sampler.updates[0]
    assert (a.log_ratio_max_abs, a.clip_fraction_tokens) == (0.0, 0.0)
    assert b.log_ratio_std_responses == pytest.approx(
        sampler.steps[0].mismatch_std_responses, rel=1e-5
    )
    assert b.clip_fraction_tokens > 0
    assert flipped(a) == flipped(b) == b.clip_fraction_tokens
    assert b.clip_fraction_tokens_high + b.clip_fraction_tokens_low == pytest.approx(
        b.clip_fraction_tokens
    )


@pytest.mark.parametrize("correction", ["tis", "icepop", "sequence-mask", "geometric-mask"])
def test_a_correction_acts_on_the_update_and_is_recorded(correction: str, trained: Trained) -> None:
    overrides = (
        "rollout.dtype=bfloat16",
        "objective.mismatch_low=0.999",
        "objective.mismatch_high=1.0005",
    )
    memory = trained("grpo", *overrides, f"objective.mismatch_correction={correction}")
    plain = trained("grpo", "rollout.dtype=bfloat16")
    assert plain.updates[0].correction_masked_tokens is None
    active = [update for update in memory.updates if update.active_tokens]
    assert all(update.correction_weight_mean is not None for update in active)
    masked = [update.correction_masked_tokens for update in active]
    assert (max(masked) > 0) is (correction != "tis")
    assert any(
        a.grad_norm != b.grad_norm
        for a, b in zip(memory.updates[:4], plain.updates[:4], strict=True)
        if a.active_tokens
    )
    assert all((update.effective_fraction_tokens or 0) <= 1 for update in memory.updates)


def test_the_off_policy_mask_acts_and_is_recorded(trained: Trained) -> None:
    """A limit so near 0 masks responses with A < 0 that have become less likely.

    A far limit masks none and changes no bit.
    """
    near = trained("grpo", "objective.off_policy_mask=1e-6").updates
    far = trained("grpo", "objective.off_policy_mask=1e6").updates
    plain = trained("grpo").updates
    assert max(update.correction_masked_tokens or 0 for update in near) > 0
    assert {update.correction_masked_tokens for update in far if update.active_tokens} == {0.0}
    assert [update.grad_norm for update in far] == [update.grad_norm for update in plain]
    assert {update.correction_masked_tokens for update in plain} == {None}


def test_an_entropy_coefficient_trains_all_responses_and_moves_the_policy(trained: Trained) -> None:
    plain = trained("grpo", "steps=4")
    bonus = trained("grpo", "steps=4", "objective.entropy_coef=1.0")
    assert {step.evaluated_responses for step in bonus.steps} == {16}
    assert all(update.evaluated_responses == 4 for update in bonus.updates)
    assert bonus.updates[0].loss < plain.updates[0].loss - 1
    assert bonus.steps[-1].entropy > plain.steps[-1].entropy


def test_kl_term_and_epochs(trained: Trained) -> None:
    for estimate in ("k3", "unbiased"):
        overrides = (
            "objective.kl_coef=0.1",
            f"objective.kl_estimate={estimate}",
            "update.epochs=2",
        )
        memory = trained("grpo", *overrides)
        assert [u.minibatch for u in memory.updates if u.step == 0] == list(range(8))
        assert memory.updates[0].kl == pytest.approx(0.0, abs=1e-9)
        assert memory.updates[-1].kl > 1e-6


def test_the_kl_to_the_start_is_recorded_with_and_without_a_kl_term(trained: Trained) -> None:
    whole = "update.skip_zero_advantage=false"
    plain = trained("grpo", whole)
    term = trained("grpo", whole, "objective.kl_coef=1e-12")
    # Before the first update on a batch the policy is the old one.
    first = next(u for u in term.updates if u.step == 1)
    for memory in (plain, term):
        recorded = [step.kl_to_start for step in memory.steps]
        assert recorded == pytest.approx([0.0, first.kl], rel=1e-4, abs=1e-9)
    silent = trained("grpo", whole, "record.kl_to_start=false")
    assert silent.steps[1].kl_to_start is None
    assert silent.updates[-1].loss == plain.updates[-1].loss


def test_expert_change_is_measured_with_and_without_replay(trained: Trained) -> None:
    for replay in ("none", "old-policy", "rollout"):
        # With every response evaluated, so that no mini-batch of this short run is left without a
        # measurement.
        overrides = (
            "model=tiny-qwen3-moe",
            f"routing_replay={replay}",
            "update.skip_zero_advantage=false",
        )
        memory = trained("gspo", *overrides)
        changes = [u.expert_change for u in memory.updates if u.step == 0]
        assert changes[0] == 0.0
        assert all(change > 0 for change in changes[1:])
        for column in ("expert_change", "router_entropy", "expert_load_cv", "dead_experts"):
            for update in memory.updates:
                layers = getattr(update, f"{column}_layers")
                assert sum(layers) / 2 == pytest.approx(getattr(update, column), abs=1e-6)
        for update in memory.updates:
            layers = update.router_grad_norm_layers
            assert math.hypot(*layers) == pytest.approx(update.router_grad_norm)
        assert all((u.router_grad_norm > 0) is (u.grad_norm > 0) for u in memory.updates)
        assert any(u.router_grad_norm for u in memory.updates)
        assert (memory.steps[0].replay_bytes > 0) is (replay != "none")


def test_a_failing_grader_trains_with_reward_0_until_it_fails_on_more_than_its_share(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """16 responses a step: it fails on 8 in step 0, on 9 in step 1."""
    run = make_run("gspo", "rollout.max_grader_errors=0.5")
    (tmp_path / "lottery.py").write_text(
        "asked = 0\n"
        "def grade(problem, answer):\n"
        "    global asked\n"
        "    asked += 1\n"
        "    if asked % 2 == 0 or asked == 17:\n"
        "        raise ValueError(f'no\\nat {asked}')\n"
        "    return 1.0\n"
    )
    run = replace(run, settings=run.settings.model_copy(update={"bench": []}))
    memory = Memory()
    with lab_error(
        r"failed on 9 of 16 responses of step 1, more than .* = 0\.5 allows; .*no"
    ) as refusal:
        Loop(run, components(run), memory, tmp_path / "run").run(lambda: False)
    assert "\n" not in str(refusal.value)
    assert [(step.grader_errors, step.reward_mean) for step in memory.steps] == [(8, 0.5)]
    failed = [answer for answer in memory.answers if answer.error]
    assert [(answer.reward, answer.correct) for answer in failed] == [(None, None)] * 8


def test_the_last_evaluation_is_asked_more_often(trained: Trained) -> None:
    decisive = ("bench.lottery.decisive_samples=8", "verdict.last=1", "bench.lottery.every=1")
    answers = [answer for answer in trained("gspo", *decisive).answers if answer.bench == "lottery"]
    assert Counter(answer.step for answer in answers) == {0: 5, 1: 5, 2: 5 * 8}
    start = {
        answer.problem: answer.text for answer in answers if answer.step == 2 and answer.sample == 0
    }
    plain = trained("gspo")
    assert start == {
        a.problem: a.text for a in plain.answers if a.bench == "lottery" and a.step == 2
    }, "asked alike"


def test_bfloat16_training_moves_float32_weights(trained: Trained) -> None:
    memory = trained("gspo", "update.dtype=bfloat16")
    assert all(update.nonfinite == 0 for update in memory.updates)
    # The sampler stays in float32, so the trainer's coarser arithmetic shows as mismatch.
    assert memory.steps[0].mismatch_abs_max > 1e-4
    weights = load_file(memory.folder / "checkpoints/final/model.safetensors")
    assert {str(value.dtype) for value in weights.values()} == {"torch.float32"}


@pytest.mark.parametrize(
    "overrides", [(), ("update.skip_zero_advantage=false",), ("model=tiny-qwen3-moe",)]
)
def test_a_weight_that_is_no_number_is_in_every_update(
    overrides: Strings, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo", *overrides)
    setting = components(run)
    with torch.no_grad():
        setting.policy.model.model.norm.weight[0] = torch.nan
    memory = train(run, tmp_path / "run", setting=setting)
    # All logits are NaN: every response is the same, and the grader likes it.
    assert [(step.reward_mean, step.zero_variance_groups) for step in memory.steps] == [
        (1.0, 1.0)
    ] * 2
    assert [update.nonfinite for update in memory.updates] == [1] * 8


def test_a_sampler_that_is_dead_by_itself_is_told(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("gspo", "rollout.dtype=bfloat16")
    setting = components(run)
    assert isinstance(setting.sampler, TransformersSampler)
    with torch.no_grad():
        setting.sampler._model.model.norm.weight[0] = (
            torch.nan
        )  # of its own copy, until the first refresh
    memory = train(run, tmp_path / "run", setting=setting)
    assert [(update.step, update.nonfinite) for update in memory.updates] == [(0, 1)] * 4 + [
        (1, 0)
    ] * 4


def test_a_run_whose_ratios_underflow_ends(trained: Trained) -> None:
    overrides = ("update.learning_rate=10", "update.skip_zero_advantage=false", "steps=1")
    on_policy, *moved = trained("gspo", *overrides).updates
    assert on_policy.ess_tokens == 1.0
    assert [update.ess_tokens for update in moved] == [None, None, None]
    assert all(
        update.log_ratio_max_abs is not None and update.log_ratio_max_abs > 1000 for update in moved
    )


def test_a_copy_of_cispo_s_file_trains_the_same(
    tmp_path: Path, make_run: MakeRun, trained: Trained
) -> None:
    shutil.copy(builtin.__file__, tmp_path / "mine.py")
    native = train(
        make_run("gspo", "steps=1", "objective.policy_loss=mine.py:LOSS"), tmp_path / "run"
    )
    of_lab = [
        record
        for record in recorded(trained("gspo", "steps=1", "objective.policy_loss=cispo"))
        if record["kind"] == "update"
    ]
    updates = [record for record in recorded(native) if record["kind"] == "update"]
    assert sum(row.get("gate_mean") is not None for row in of_lab) > 1
    assert all(row.get("clipped_tokens") is None for row in of_lab)
    assert updates == of_lab
    check(load_study(tmp_path / "study.toml", overrides=["objective.policy_loss=mine.py:LOSS"]))


MOE = ("model=tiny-qwen3-moe", "routing_replay=rollout")
PIECES = ("task.stop=['a', 'b']", "rollout.tokens_per_step=3")
"""Fewer ends, so that most responses take several steps of three tokens."""
CRITIC = ("objective.advantage=gae", "objective.gae_lambda=0.9", "update.epochs=2")


@pytest.mark.parametrize(
    ("arm", "steps", "settings"),
    [
        ("gspo", 3, ("update.checkpoint_every=10",)),
        ("gspo", 2, ("update.lora_rank=4", "update.lora_alpha=8", "rollout.dtype=bfloat16")),
        ("gspo", 2, ("update.dtype=float16", "rollout.dtype=float16")),
        ("gspo", 3, ("update.checkpoint_every=10", *CRITIC)),
        ("grpo", 4, ("rollout.dynamic_sampling=5", "rollout.overlong_buffer=6")),
        ("gspo", 4, ("rollout.staleness=2",)),
        ("gspo", 4, PIECES),
        ("gspo", 4, (*PIECES, "rollout.staleness=2", "rollout.dtype=bfloat16", *MOE)),
        ("gspo", 4, ("rollout.staleness=1", "update.lora_rank=2", "update.old_logprobs=sampler")),
    ],
)
def test_a_stopped_run_goes_on_bit_for_bit(
    arm: str, steps: int, settings: Strings, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(arm, f"steps={steps}", "bench.lottery.every=2", *settings)
    uninterrupted = train(run, tmp_path / "whole")
    half = max(1, steps // 2)
    calls = count()
    earlier = train(run, tmp_path / "parts", stop=lambda: next(calls) > half)
    assert len(earlier.steps) == half
    if run.settings.rollout.tokens_per_step:
        assert earlier.steps[-1].waiting_responses
        assert any(step.mixed_version_share for step in uninterrupted.steps)
    later = train(run, tmp_path / "parts")
    assert later.statuses[0].step == half
    assert recorded(earlier, later) == recorded(uninterrupted)
    assert final(tmp_path / "whole") == final(tmp_path / "parts")
    critics = [memory.statuses[0].facts.get("critic") for memory in (uninterrupted, earlier, later)]
    assert critics[0] == critics[1]
    assert (critics[1] != critics[2]) is (critics[0] is not None), (
        "what the critic has learnt is kept"
    )
