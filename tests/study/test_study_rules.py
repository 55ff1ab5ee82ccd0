"""What no single key says: arms that would be the same run, splits that do not come out even, names that miss."""

from pathlib import Path

import pytest
from study_files import ARMS, SHARED, load, mistakes

from gspo_lab.matching.settings import undeclared

ONE = (SHARED + ARMS).replace("minibatches = 2", "minibatches = 1")


def arms(*tables: str) -> str:
    return "\n".join(f"[arm.{name}]\n{table}" for name, table in zip("abcd", tables, strict=False))


def test_two_arms_may_not_be_the_same_run_twice(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "gspo"', 'objective = "gspo"'))
    assert only == "arm.b: changes nothing that arm.a does not have too; the two would be the same run twice"
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "grpo"', "clip_low = 0.2"))
    assert only.startswith("arm.b: changes nothing"), "another way to say it is no other arm"
    by_hand = 'importance_sampling_level = "sequence"\nclip_low = 3e-4\nclip_high = 4e-4'
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "gspo"', by_hand))
    assert only.startswith("arm.b: changes nothing"), "a preset is no more than its values"


def test_with_one_minibatch_the_objectives_are_the_same(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, ONE)
    assert only == (
        "arm.grpo and arm.gspo differ only in objective.importance_sampling_level, objective.clip_low, "
        "objective.clip_high, and would be identical: with update.minibatches = 1 and epochs = 1 every ratio is 1; "
        "use minibatches >= 2"
    )
    assert load(tmp_path, ONE, overrides=["update.epochs=2"]).arms
    assert load(tmp_path, ONE, arms=["gspo"]).arms


@pytest.mark.parametrize(
    "table",
    [
        'objective = "gspo"',
        'objective = "gspo-token"',
        "clip_high = 0.1",
        "dual_clip = 3.0",
        'routing_replay = "old-policy"',
    ],
)
def test_what_acts_through_the_ratio_does_nothing_on_policy(tmp_path: Path, table: str) -> None:
    shared = ONE.partition("[arm")[0]
    (only,) = mistakes(tmp_path, shared + arms('objective = "grpo"', table))
    assert "would be identical" in only
    assert load(tmp_path, shared + arms('objective = "grpo"', table), overrides=["update.minibatches=2"]).arms


@pytest.mark.parametrize(
    "table",
    [
        'routing_replay = "rollout"',  # the sampler's experts are not the trainer's
        'aggregation = "token-mean"',
        'advantage = "leave-one-out"',
        "kl_coef = 0.1",
        'model = "tiny-qwen3-moe"',
        '[arm.b.update]\nold_logprobs = "sampler"',
        "[arm.b.update]\nlearning_rate = 1e-3",
        "[arm.b.update]\nminibatches = 2",
        "[arm.b.rollout]\ntemperature = 0.5",
    ],
)
def test_what_acts_without_the_ratio_makes_another_arm(tmp_path: Path, table: str) -> None:
    shared = ONE.partition("[arm")[0]
    assert list(load(tmp_path, shared + arms('objective = "grpo"', table)).arms) == ["a", "b"]


ENGINES = arms('engine = "native"', 'engine = {name = "trl", options = {processes = 2}}')


def test_arms_differ_in_their_engine_only_where_the_study_asks_whether_engines_agree(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, SHARED + ENGINES)
    assert only.startswith("arms differ in their engine (native, trl), which they may only where that is the study's")
    study = load(tmp_path, "compares_engines = true\n" + SHARED + ENGINES)
    assert {name: arm.declared for name, arm in study.arms.items()} == {"a": ("engine",), "b": ("engine",)}
    assert study.arms["b"].settings.engine.options == {"processes": 2}
    assert not undeclared(study.arms["a"], study.arms["b"])
    (only,) = mistakes(tmp_path, 'compares_engines = "yes"\n' + SHARED + ENGINES)
    assert only == "compares_engines = 'yes': true or false"


def test_the_sampler_s_old_log_probs_make_ratios_at_once(tmp_path: Path) -> None:
    assert load(tmp_path, ONE, overrides=["update.old_logprobs=sampler"]).arms


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("clip_target = 0.3", "clip_target does nothing with clip = 'fixed'"),
        ("mismatch_high = 3.0", "mismatch_high does nothing without mismatch_correction"),
        ("aggregation_constant = 64", "aggregation_constant does nothing without aggregation = 'constant'"),
    ],
)
def test_a_key_that_is_not_in_use_makes_no_other_arm(tmp_path: Path, table: str, reason: str) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "grpo"', table))
    assert reason in only
    used = {"clip_target": 'clip = "calibrated"', "aggregation_constant": 'aggregation = "constant"'}.get(
        table.partition(" ")[0], 'mismatch_correction = "tis"'
    )
    assert load(tmp_path, SHARED + arms(f'objective = "grpo"\n{used}', f"{table}\n{used}")).arms


CRITIC = "advantage = 'gae' and importance_sampling_level = 'sequence'"


@pytest.mark.parametrize(
    ("table", "preset", "reason"),
    [
        ("gae_lambda = 0.9", "grpo", "gae_lambda does nothing without advantage = 'gae'"),
        ("[arm.b.critic]\nvalue_clip = 0.2", "grpo", "critic.value_clip does nothing without advantage = 'gae'"),
        ('sequence_advantage = "sum"', "gspo", f"sequence_advantage does nothing without {CRITIC}"),
    ],
)
def test_a_critic_s_keys_make_another_arm_with_a_critic_alone(
    tmp_path: Path, table: str, preset: str, reason: str
) -> None:
    named = f'objective = "{preset}"\n'
    (only,) = mistakes(tmp_path, SHARED + arms(named, named + table))
    assert only.endswith(reason)
    study = load(tmp_path, SHARED + arms(named, named + table), overrides=["objective.advantage=gae"])
    assert list(study.arms) == ["a", "b"]
    if preset == "gspo":
        (only,) = mistakes(
            tmp_path,
            SHARED + arms(named, named + table),
            overrides=["objective.advantage=gae", "objective.importance_sampling_level=sequence-token"],
        )
        assert only.endswith(reason)


def test_what_a_critic_cannot_be_combined_with(tmp_path: Path) -> None:
    gae = "objective.advantage=gae"
    (only,) = mistakes(tmp_path, overrides=[gae, "update.lora_rank=4"])
    assert only.endswith("a critic is trained whole; use lora_rank = 0")
    (only,) = mistakes(tmp_path, overrides=[gae, "objective.clip=calibrated"])
    assert only.startswith("arm.grpo: objective.clip = 'calibrated' with advantage = 'gae' at level 'token'")
    for key, value in (("objective.gamma", 1.5), ("objective.gae_lambda", -0.1), ("critic.value_clip", 0)):
        assert key in mistakes(tmp_path, overrides=[gae, f"{key}={value}"])[0]


def test_a_pilot_knows_one_advantage_of_a_response(tmp_path: Path) -> None:
    """Turns with advantages +1 and -1 have the mean 0: a pilot would count the response as one without."""
    (only,) = mistakes(tmp_path, overrides=["objective.turn_credit=turn", "objective.clip=calibrated"])
    assert only.startswith("objective.clip = 'calibrated' with turn_credit = 'turn'")


def test_one_response_to_a_prompt_only_where_none_is_compared(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, overrides=["rollout.group_size=1"])
    assert only == (
        "rollout.group_size = 1 with advantage = 'group-mean-std', which compares the responses to a prompt: give 2 or "
        "more, or advantage = 'batch-mean-std' or 'gae'"
    )
    for how in ("gae", "batch-mean-std"):
        assert load(tmp_path, overrides=["rollout.group_size=1", f"objective.advantage={how}"]).arms


def test_a_rollout_batch_is_split_into_equal_parts(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, overrides=["update.minibatches=3"])
    assert only == "rollout.prompts_per_step = 8 cannot be split into update.minibatches = 3 equal parts"
    (only,) = mistakes(tmp_path, overrides=["arm.gspo.update.minibatches=3"])
    assert only.startswith("arm.gspo: rollout.prompts_per_step"), "what is one arm's mistake bears its name"


def test_the_nucleus_and_the_sampler_s_log_probs_exclude_each_other(tmp_path: Path) -> None:
    assert load(tmp_path, overrides=["rollout.top_p=0.9"]).arms
    (only,) = mistakes(tmp_path, overrides=["rollout.top_p=0.9", "update.old_logprobs=sampler"])
    assert "use top_p = 1 or old_logprobs = 'trainer'" in only


def test_a_correction_brings_the_range_that_it_was_published_with(tmp_path: Path) -> None:
    text = SHARED + arms(
        'mismatch_correction = "tis"', 'mismatch_correction = "icepop"\nmismatch_high = 4.0', 'objective = "gspo"'
    )
    found = [arm.settings.objective for arm in load(tmp_path, text).arms.values()]
    assert [(one.mismatch_low, one.mismatch_high) for one in found] == [(0.0, 2.0), (0.5, 4.0), (None, None)]
    assert "objective.mismatch_low" in load(tmp_path, text).arms["b"].declared
    (only,) = mistakes(tmp_path, SHARED + arms('mismatch_correction = "icepop"\nmismatch_high = 0.25'))
    assert only == "objective.mismatch_low = 0.5 must be smaller than mismatch_high = 0.25"
    (only,) = mistakes(tmp_path, SHARED + arms('mismatch_correction = "tsi"'))
    assert only.startswith("arm.a.mismatch_correction: ")


def test_the_sampler_s_old_log_probs_need_no_correction(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, overrides=["objective.mismatch_correction=tis", "update.old_logprobs=sampler"])
    assert "the ratio then holds the mismatch already" in only


def test_a_calibrated_range_needs_a_second_update(tmp_path: Path) -> None:
    shared = ONE.partition("[arm")[0]
    text = shared + arms('objective = "gspo"\nclip = "calibrated"')
    (only,) = mistakes(tmp_path, text)
    assert only.startswith("objective.clip = 'calibrated' needs update.minibatches >= 2")
    assert load(tmp_path, text, overrides=["update.epochs=2"]).arms


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('objective = "cispo"\ndual_clip = 3.0', "objective.dual_clip with policy_loss = 'cispo'"),
        (
            'objective = "bapo"\nclip_low = 0.05',
            "objective.bapo_clip_low = 0.1, bapo_clip_high = 2: bounds move up, from 1 - clip_low = 0.95 and",
        ),
        ('objective = "sapo"\nclip = "calibrated"', "objective.clip = 'calibrated' with policy_loss = 'sapo'"),
        ('objective = "grpo"\nclip_low = 1.0', "objective.clip_low: give a number below 1"),
    ],
)
def test_what_belongs_to_the_clip_is_refused_elsewhere(tmp_path: Path, table: str, said: str) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "gspo"', table))
    assert only.startswith(f"arm.b: {said}")
    assert load(tmp_path, SHARED + arms('objective = "gspo"', 'objective = "cispo"')).arms


@pytest.mark.parametrize("loss", ["sapo_tau_positive", "pspo_smoothing", "vespo_k_negative"])
def test_another_loss_s_key_makes_no_other_arm(tmp_path: Path, loss: str) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "gspo"', f'objective = "gspo"\n{loss} = 0.5'))
    assert only.endswith(f"{loss} does nothing without policy_loss = '{loss.split('_')[0]}'")


def test_bapo_s_keys_make_no_other_arm_of_a_fixed_range(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms('objective = "grpo"', 'objective = "grpo"\nbapo_share = 0.6'))
    assert only.endswith("bapo_share does nothing without policy_loss = 'bapo'")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            ('objective = "sapo"', 'objective = "sapo"\nclip_low = 0.1'),
            "clip_low does nothing with policy_loss = 'sapo'",
        ),
        (
            ('objective = "rloo"', 'objective = "rloo"\nimportance_sampling_level = "sequence"'),
            "importance_sampling_level does nothing with policy_loss = 'reinforce'",
        ),
    ],
)
def test_a_loss_without_range_or_level_makes_no_arm_of_them(tmp_path: Path, tables: tuple[str, str], said: str) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms(*tables))
    assert only.endswith(said)


def test_on_policy_most_losses_are_the_same(tmp_path: Path) -> None:
    once = SHARED.replace("minibatches = 2", "minibatches = 1")
    (only,) = mistakes(tmp_path, once + arms('objective = "grpo"', 'objective = "sapo"'))
    assert only.endswith("every ratio is 1; use minibatches >= 2")
    assert load(tmp_path, once + arms('objective = "grpo"', 'policy_loss = "pspo"')).arms


@pytest.mark.parametrize("table", ['objective = "gspo"', 'objective = "gmpo"'])
@pytest.mark.parametrize("key", ["advantage=gae", "turn_credit=turn", "mismatch_correction=tis"])
def test_where_tokens_pull_apart_a_sequence_s_ratio_is_another_arm_at_1_too(
    tmp_path: Path, key: str, table: str
) -> None:
    """Tokens with A = 1 and 0, all ratios 1: each pulls with its own, or both with their mean, one half."""
    once = SHARED.replace("minibatches = 2", "minibatches = 1")
    assert load(tmp_path, once + arms('objective = "grpo"', table), overrides=[f"objective.{key}"]).arms


@pytest.mark.parametrize("key", ["advantage=gae", "turn_credit=turn", "mismatch_correction=tis"])
def test_tokens_ratios_of_1_are_one_arm_whatever_their_advantages(tmp_path: Path, key: str) -> None:
    once = SHARED.replace("minibatches = 2", "minibatches = 1")
    for table in ('objective = "gspo-token"', 'objective = "sapo"'):
        (only,) = mistakes(tmp_path, once + arms('objective = "grpo"', table), overrides=[f"objective.{key}"])
        assert only.endswith("every ratio is 1; use minibatches >= 2")


def test_with_a_critic_the_level_averages_advantages_of_a_loss_without_ratio_too(tmp_path: Path) -> None:
    tables = ('objective = "rloo"', 'objective = "rloo"\nimportance_sampling_level = "sequence"')
    assert load(tmp_path, SHARED + arms(*tables), overrides=["objective.advantage=gae"]).arms


def test_vespo_takes_no_other_paper_s_correction(tmp_path: Path) -> None:
    (only,) = mistakes(
        tmp_path, SHARED + arms('objective = "grpo"', 'objective = "vespo"\nmismatch_correction = "tis"')
    )
    assert only.startswith("arm.b: objective.mismatch_correction = 'tis' with policy_loss = 'vespo'")


def test_a_constant_to_divide_by_is_a_length(tmp_path: Path) -> None:
    overrides = ["objective.aggregation=constant", "objective.aggregation_constant=1"]
    (only,) = mistakes(tmp_path, overrides=overrides)
    assert "give a length in tokens" in only


def test_benchmarks_are_told_apart_by_name(tmp_path: Path) -> None:
    twice = SHARED + '[[bench]]\nname = "sums"\n' + ARMS
    assert mistakes(tmp_path, twice) == ["bench: two benchmarks are named 'sums'"]
    (only,) = mistakes(tmp_path, (SHARED + ARMS).replace('"sums"', '"rollout"'))
    assert only.startswith("bench: 'rollout' is what training answers are recorded under")


def test_the_verdict_names_what_there_is(tmp_path: Path) -> None:
    found = mistakes(tmp_path, overrides=["verdict.primary=smus", "verdict.baseline=grp"])
    assert found == [
        "verdict.primary: no benchmark 'smus' (did you mean 'sums'?); this study has sums",
        "verdict.baseline: no arm 'grp' (did you mean 'grpo'?); this study has grpo, gspo",
    ]


@pytest.mark.parametrize("asked", ["'scoer'", "3", "[]", "[1]", "true"])
def test_what_can_answer_no_question(tmp_path: Path, asked: str) -> None:
    (only,) = mistakes(tmp_path, overrides=[f"verdict.question={asked}"])
    said = "verdict.question: must be 'score', 'stability' or a list of the names of its claims; got "
    assert only.startswith(said)


def test_claims_that_answer_the_question_are_declared(tmp_path: Path) -> None:
    wanted = 'verdict.question=["C04-clip-gab"]'
    assert mistakes(tmp_path, overrides=[wanted]) == [
        "verdict.question: no claim 'C04-clip-gab'; this study declares none, under [[claim]]"
    ]
    claimed = SHARED + ARMS + '\n[[claim]]\nname = "C04-clip-gap"\n'
    (only,) = mistakes(tmp_path, claimed, overrides=[wanted])
    assert only == (
        "verdict.question: no claim 'C04-clip-gab' (did you mean 'C04-clip-gap'?); this study has C04-clip-gap"
    )
    assert load(tmp_path, claimed, overrides=['verdict.question=["C04-clip-gap"]']).verdict.question == ["C04-clip-gap"]


def test_a_study_of_stability_takes_no_looks(tmp_path: Path) -> None:
    overrides = ["verdict.question='stability'"]
    assert load(tmp_path, overrides=overrides).verdict.question == "stability"
    found = mistakes(tmp_path, seeds=[0, 1, 2, 3, 4], overrides=[*overrides, "verdict.looks=[3, 5]"])
    assert found == [
        "verdict.looks: a look is at the score, and question = 'stability' is answered by all runs; leave it out"
    ]


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([5, 3], "each look comes after more seeds than the one before; write them in rising order"),
        ([3, 3], "each look comes after more seeds than the one before; write them in rising order"),
        ([1, 5], "after 1 there is no interval; look after 3 seeds or more"),
        ([2, 5], "after 2 there is no interval; look after 3 seeds or more"),
        ([3, 8], "the last look is after 8 seeds, and the study has 5; give it 8"),
        ([8, 9], "the last look is after 9 seeds, and the study has 5; give it 9"),
        (list(range(3, 12)), "9 looks; declare 8 at most"),
    ],
)
def test_looks_that_cannot_be_taken(tmp_path: Path, looks: list[int], said: str) -> None:
    found = mistakes(tmp_path, seeds=[0, 1, 2, 3, 4], overrides=[f"verdict.looks={looks}"])
    assert found == [f"verdict.looks = {looks}: {said}"]


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (
            "rollout.staleness = 3",
            "rollout.staleness = 8",
            "with steps = 4 every rollout batch is drawn from the start",
        ),
        ("rollout.tokens_per_step = 40", "rollout.max_tokens = 40", None),
        ("rollout.max_tokens = 40", "rollout = {max_tokens = 40, tokens_per_step = 40}", "rollout.max_tokens or more"),
        ("rollout.staleness = 2", "rollout.staleness = 3", None),
        ("rollout.max_tokens = 40", "rollout = {max_tokens = 40, tokens_per_step = 39}", None),
        ("", "rollout.tokens_per_step = 64", None),
        ("", "rollout.overlong_penalty = 0.5", "overlong_penalty does nothing without overlong_buffer"),
        ("", "rollout.overlong_buffer = 4", None),
        ("kl_coef = 0.1", "kl_coef = 0.1\nupdate.skip_zero_advantage = false", "does nothing with kl_coef > 0"),
        ("", "rollout.dynamic_sampling = 1", None),
    ],
)
def test_rollouts_that_cannot_differ_make_no_other_arm(
    tmp_path: Path, one: str, other: str, reason: str | None
) -> None:
    text = SHARED + arms(f'objective = "grpo"\n{one}', f'objective = "grpo"\n{other}')
    if reason is None:
        assert load(tmp_path, text, overrides=["steps=4"]).arms
        return
    (only,) = mistakes(tmp_path, text, overrides=["steps=4"])
    assert reason in only


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rollout.dynamic_sampling=2", "rollout.tokens_per_step=4"], "a group that waits cannot be replaced"),
        (
            ["rollout.dynamic_sampling=2", "objective.advantage=gae"],
            "with advantage = 'gae', which compares no response",
        ),
        (["rollout.dynamic_sampling=2", "objective.advantage=batch-mean-std"], "would have a gradient; leave it out"),
        (
            ["rollout.dynamic_sampling=2", "objective.turn_credit=turn"],
            "turns may differ where responses earned the same",
        ),
        (
            ["rollout.overlong_buffer=2", "objective.turn_credit=turn"],
            "length costs a response's reward, and turns are",
        ),
        (["rollout.overlong_buffer=9", "rollout.max_tokens=8"], "overlong_buffer = 9 is more than the token limit"),
    ],
)
def test_groups_that_cannot_be_dropped_and_lengths_that_cannot_cost(
    tmp_path: Path, overrides: list[str], said: str
) -> None:
    (only,) = mistakes(tmp_path, overrides=overrides)
    assert said in only
    assert load(tmp_path, overrides=["rollout.dynamic_sampling=2", "rollout.overlong_buffer=8", "rollout.max_tokens=8"])
