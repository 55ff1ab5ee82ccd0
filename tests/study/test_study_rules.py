"""Rules that no single key states.

Arms that would be the same run, splits that do not come out even, names that miss.
"""

from pathlib import Path

import pytest
from study_files import ARMS, SHARED, load, mistakes

from gspo_lab.analysis.matching.run_pair import undeclared


def preset(name: str, *lines: str) -> str:
    return "\n".join([f'objective = "{name}"', *lines])


def arms(*tables: str) -> str:
    return "\n".join(f"[arm.{name}]\n{table}" for name, table in zip("abcd", tables, strict=False))


GRPO = preset("grpo")
GSPO = preset("gspo")
RLOO = preset("rloo")
ONCE = "update.minibatches=1"
GAE = "objective.advantage=gae"
TURN = "objective.turn_credit=turn"
TIS = "objective.mismatch_correction=tis"
TWICE = "arm.b: changes nothing that arm.a does not have too; the two would be the same run twice"
AT_1 = "with update.minibatches = 1 and epochs = 1 every ratio is 1; use minibatches >= 2"
NO_CRITIC = "does nothing without advantage = 'gae'"
BY_HAND = 'importance_sampling_level = "sequence"\nclip_low = 3e-4\nclip_high = 4e-4'
SUMMED = preset("gspo", 'sequence_advantage = "sum"')
BY_SEQUENCE = preset("rloo", 'importance_sampling_level = "sequence"')
CALIBRATED = 'clip = "calibrated"'
CONSTANT = 'aggregation = "constant"'
CORRECTED = 'mismatch_correction = "tis"'
LEVEL = "does nothing without advantage = 'gae' and importance_sampling_level = 'sequence'"


@pytest.mark.parametrize(
    ("a", "b", "overrides", "said"),
    [
        (GSPO, GSPO, [], TWICE),
        (GRPO, "clip_low = 0.2", [], TWICE),  # another way to say it is no other arm
        (GSPO, BY_HAND, [], TWICE),  # a preset is no more than its values
        # What acts through the ratio does nothing on policy.
        *(
            (GRPO, GRPO + f"\n{line}", [ONCE], AT_1)
            for line in ("clip_high = 0.1", "dual_clip = 3.0")
        ),
        *((GRPO, preset(name), [ONCE], AT_1) for name in ("gspo", "gspo-token", "sapo")),
        (GRPO, 'routing_replay = "old-policy"', [ONCE], AT_1),
        *(
            (GRPO, preset(name), [ONCE, key], AT_1)
            for name in ("gspo-token", "sapo")
            for key in (GAE, TURN, TIS)
        ),
        # Keys that are not in use.
        (GRPO, "clip_target = 0.3", [], "clip_target does nothing with clip = 'fixed'"),
        (GRPO, "mismatch_high = 3.0", [], "mismatch_high does nothing without mismatch_correction"),
        (
            GRPO,
            "aggregation_constant = 64",
            [],
            "constant does nothing without aggregation = 'constant'",
        ),
        (GRPO, preset("grpo", "gae_lambda = 0.9"), [], f"gae_lambda {NO_CRITIC}"),
        (GRPO, "[arm.b.critic]\nvalue_clip = 0.2", [], f"critic.value_clip {NO_CRITIC}"),
        (GSPO, SUMMED, [], f"sequence_advantage {LEVEL}"),
        (
            GSPO,
            SUMMED,
            [GAE, "objective.importance_sampling_level=sequence-token"],
            f"sequence_advantage {LEVEL}",
        ),
        *(
            (
                GSPO,
                preset("gspo", f"{loss}_{key} = 0.5"),
                [],
                f"{key} does nothing without policy_loss = '{loss}'",
            )
            for loss, key in (
                ("sapo", "tau_positive"),
                ("pspo", "smoothing"),
                ("vespo", "k_negative"),
            )
        ),
        (
            GRPO,
            preset("grpo", "bapo_share = 0.6"),
            [],
            "bapo_share does nothing without policy_loss = 'bapo'",
        ),
        (
            preset("sapo"),
            preset("sapo", "clip_low = 0.1"),
            [],
            "clip_low does nothing with policy_loss = 'sapo'",
        ),
        (
            RLOO,
            BY_SEQUENCE,
            [],
            "importance_sampling_level does nothing with policy_loss = 'reinforce'",
        ),
        # Rollouts that cannot differ.
        (
            "rollout.staleness = 3",
            "rollout.staleness = 8",
            ["steps=4"],
            "with steps = 4 every rollout batch is drawn",
        ),
        (
            "rollout.max_tokens = 40",
            "rollout = {max_tokens = 40, tokens_per_step = 40}",
            [],
            "max_tokens or more",
        ),
        (
            GRPO,
            "rollout.overlong_penalty = 0.5",
            [],
            "overlong_penalty does nothing without overlong_buffer",
        ),
        (
            GRPO,
            preset("grpo", 'kl_estimate = "unbiased"'),
            [],
            "kl_estimate does nothing with kl_coef = 0",
        ),
        (
            GRPO,
            "rollout.batch_invariant = true",
            [],
            "batch_invariant does nothing with sampler = 'transformers'",
        ),
        (
            "kl_coef = 0.1",
            "kl_coef = 0.1\nupdate.skip_zero_advantage = false",
            [],
            "does nothing with kl_coef > 0",
        ),
    ],
)
def test_arms_that_would_be_the_same_run_are_refused(
    tmp_path: Path, a: str, b: str, overrides: list[str], said: str
) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms(a, b), overrides=overrides)
    assert only.endswith(said) or said in only
    if said == AT_1:
        assert load(
            tmp_path, SHARED + arms(a, b), overrides=[*overrides, "update.minibatches=2"]
        ).arms


@pytest.mark.parametrize(
    ("a", "b", "overrides"),
    [
        # What acts without the ratio makes another arm on policy too.
        (GRPO, 'routing_replay = "rollout"', [ONCE]),  # the sampler's experts are not the trainer's
        (GRPO, 'aggregation = "token-mean"', [ONCE]),
        (GRPO, 'advantage = "leave-one-out"', [ONCE]),
        (GRPO, "kl_coef = 0.1", [ONCE]),
        (GRPO, 'model = "tiny-qwen3-moe"', [ONCE]),
        (GRPO, '[arm.b.update]\nold_logprobs = "sampler"', [ONCE]),
        (GRPO, "[arm.b.update]\nlearning_rate = 1e-3", [ONCE]),
        (GRPO, "[arm.b.update]\nminibatches = 2", [ONCE]),
        (GRPO, "[arm.b.rollout]\ntemperature = 0.5", [ONCE]),
        (GRPO, GSPO, [ONCE, "update.epochs=2"]),
        (GRPO, GSPO, [ONCE, "update.old_logprobs=sampler"]),  # ratios at once
        (GRPO, 'policy_loss = "pspo"', [ONCE]),
        # Tokens with A = 1 and 0, all ratios 1: each pulls with its own, or both with their mean,
        # one half.
        *(
            (GRPO, preset(name), [ONCE, key])
            for name in ("gspo", "gmpo")
            for key in (GAE, TURN, TIS)
        ),
        # Keys in use.
        (CALIBRATED, f"clip_target = 0.3\n{CALIBRATED}", []),
        (CORRECTED, f"mismatch_high = 3.0\n{CORRECTED}", []),
        (CONSTANT, f"aggregation_constant = 64\n{CONSTANT}", []),
        (GRPO, preset("grpo", "gae_lambda = 0.9"), [GAE]),
        (GRPO, "[arm.b.critic]\nvalue_clip = 0.2", [GAE]),
        (GSPO, SUMMED, [GAE]),
        (RLOO, BY_SEQUENCE, [GAE]),  # the level averages a critic's advantages
        (GSPO, preset("cispo"), []),
        ("rollout.tokens_per_step = 40", "rollout.max_tokens = 40", []),
        ("rollout.staleness = 2", "rollout.staleness = 3", ["steps=4"]),
        ("rollout.max_tokens = 40", "rollout = {max_tokens = 40, tokens_per_step = 39}", []),
        *(
            (GRPO, f"rollout.{line}", [])
            for line in ("tokens_per_step = 64", "overlong_buffer = 4", "dynamic_sampling = 1")
        ),
    ],
)
def test_arms_that_differ_are_two(tmp_path: Path, a: str, b: str, overrides: list[str]) -> None:
    assert list(load(tmp_path, SHARED + arms(a, b), overrides=overrides).arms) == ["a", "b"]


def test_with_one_minibatch_the_objectives_are_the_same(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, overrides=[ONCE])
    keys = "objective.importance_sampling_level, objective.clip_low, objective.clip_high"
    assert only == f"arm.grpo and arm.gspo differ only in {keys}, and would be identical: {AT_1}"
    assert load(tmp_path, overrides=[ONCE], arms=["gspo"]).arms


def test_arms_differ_in_their_engine_only_where_the_study_asks_whether_engines_agree(
    tmp_path: Path,
) -> None:
    engines = arms('engine = "native"', 'engine = {name = "trl", options = {processes = 2}}')
    (only,) = mistakes(tmp_path, SHARED + engines)
    assert only.startswith(
        "arms differ in their engine (native, trl), which they may only where that is the study's"
    )
    study = load(tmp_path, "compares_engines = true\n" + SHARED + engines)
    assert {name: arm.declared for name, arm in study.arms.items()} == {
        "a": ("engine",),
        "b": ("engine",),
    }
    assert study.arms["b"].settings.engine.options == {"processes": 2}
    assert not undeclared(study.arms["a"], study.arms["b"])
    (only,) = mistakes(tmp_path, 'compares_engines = "yes"\n' + SHARED + engines)
    assert only == "compares_engines = 'yes': true or false"


DROPPED = "rollout.dynamic_sampling=2"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["update.minibatches=3"],
            "prompts_per_step = 8 cannot be split into update.minibatches = 3 equal parts",
        ),
        (
            ["arm.gspo.update.minibatches=3"],
            "arm.gspo: rollout.prompts_per_step",
        ),  # one arm's bears its name
        (
            ["rollout.sampler=vllm", "rollout.dtype=bfloat16", "rollout.float32_head=true"],
            "use rollout.sampler = 'transformers'",
        ),
        (
            ["rollout.top_p=0.9", "update.old_logprobs=sampler"],
            "use top_p = 1 or old_logprobs = 'trainer'",
        ),
        (
            ["rollout.top_p=0.9", "objective.off_policy_mask=0.5"],
            "use top_p = 1, or leave off_policy_mask out",
        ),
        ([TIS, "update.old_logprobs=sampler"], "the ratio then holds the mismatch already"),
        (
            ["objective.aggregation=constant", "objective.aggregation_constant=1"],
            "give a length in tokens",
        ),
        (
            [ONCE, "arm.gspo.kl_coef=0.1", "objective.clip=calibrated"],
            "objective.clip = 'calibrated' needs update.minibatches >= 2",
        ),
        # A pilot knows one advantage of a response: turns with +1 and -1 would count as one
        # without.
        (
            [TURN, "objective.clip=calibrated"],
            "objective.clip = 'calibrated' with turn_credit = 'turn'",
        ),
        (
            [GAE, "objective.clip=calibrated"],
            "arm.grpo: objective.clip = 'calibrated' with advantage = 'gae' at level",
        ),
        ([GAE, "update.lora_rank=4"], "a critic is trained whole; use lora_rank = 0"),
        *(
            ([GAE, f"{key}"], key.split("=")[0])
            for key in ("objective.gamma=1.5", "objective.gae_lambda=-0.1")
        ),
        ([GAE, "critic.value_clip=0"], "critic.value_clip"),
        (
            ["rollout.group_size=1"],
            (
                "rollout.group_size = 1 with advantage = 'group-mean-std', which compares the"
                " responses to a prompt: give 2 or more, or advantage = 'batch-mean-std' or 'gae'"
            ),
        ),
        ([DROPPED, "rollout.tokens_per_step=4"], "a group that waits cannot be replaced"),
        ([DROPPED, GAE], "with advantage = 'gae', which compares no response"),
        ([DROPPED, "objective.advantage=batch-mean-std"], "would have a gradient; leave it out"),
        ([DROPPED, TURN], "turns may differ where responses earned the same"),
        (
            ["rollout.overlong_buffer=2", TURN],
            "turns are compared by what each earned; leave it out",
        ),
        (
            ["rollout.overlong_buffer=9", "rollout.max_tokens=8"],
            "overlong_buffer = 9 is more than the token limit",
        ),
        *(
            (
                [f"verdict.question={one}"],
                "must be 'score', 'stability' or a list of the names of its claims; got ",
            )
            for one in ("'scoer'", "3", "[]", "[1]", "true")
        ),
        (
            ['verdict.question=["C04-clip-gab"]'],
            "no claim 'C04-clip-gab'; this study declares none, under [[claim]]",
        ),
        (
            ["verdict.primary=smus"],
            "verdict.primary: no benchmark 'smus' (did you mean 'sums'?); this study has sums",
        ),
        (
            ["verdict.baseline=grp"],
            "verdict.baseline: no arm 'grp' (did you mean 'grpo'?); this study has grpo, gspo",
        ),
        *(
            (["seeds=[0, 1, 2, 3, 4]", f"verdict.looks={looks}"], f"verdict.looks = {looks}: {why}")
            for looks, why in (
                (
                    [5, 3],
                    (
                        "each look comes after more seeds than the one before; write them in rising"
                        " order"
                    ),
                ),
                (
                    [3, 3],
                    (
                        "each look comes after more seeds than the one before; write them in rising"
                        " order"
                    ),
                ),
                ([1, 5], "after 1 there is no interval; look after 3 seeds or more"),
                ([2, 5], "after 2 there is no interval; look after 3 seeds or more"),
                ([3, 8], "the last look is after 8 seeds, and the study has 5; give it 8"),
                ([8, 9], "the last look is after 9 seeds, and the study has 5; give it 9"),
                (list(range(3, 12)), "9 looks; declare 8 at most"),
            )
        ),
        (
            ["seeds=[0, 1, 2, 3, 4]", "verdict.question='stability'", "verdict.looks=[3, 5]"],
            (
                "verdict.looks: a look is at the score, and question = 'stability' is answered by"
                " all runs; leave it out"
            ),
        ),
    ],
)
def test_settings_that_make_no_sense_together_are_one_line(
    tmp_path: Path, overrides: list[str], said: str
) -> None:
    (only,) = mistakes(tmp_path, overrides=overrides)
    assert said in only


@pytest.mark.parametrize(
    "overrides",
    [
        ["rollout.top_p=0.9"],
        *(
            ["rollout.group_size=1", f"objective.advantage={how}"]
            for how in ("gae", "batch-mean-std")
        ),
        [DROPPED, "rollout.overlong_buffer=8", "rollout.max_tokens=8"],
        [ONCE, "update.epochs=2", "objective.clip=calibrated"],
        ["verdict.question='stability'"],
    ],
)
def test_settings_beside_them_are_accepted(tmp_path: Path, overrides: list[str]) -> None:
    assert load(tmp_path, overrides=overrides).arms


def test_a_correction_brings_the_range_that_it_was_published_with(tmp_path: Path) -> None:
    text = SHARED + arms(CORRECTED, 'mismatch_correction = "icepop"\nmismatch_high = 4.0', GSPO)
    found = [arm.settings.objective for arm in load(tmp_path, text).arms.values()]
    assert [(one.mismatch_low, one.mismatch_high) for one in found] == [
        (0.0, 2.0),
        (0.5, 4.0),
        (None, None),
    ]
    assert "objective.mismatch_low" in load(tmp_path, text).arms["b"].declared
    (only,) = mistakes(
        tmp_path, SHARED + arms('mismatch_correction = "icepop"\nmismatch_high = 0.25')
    )
    assert only == "objective.mismatch_low = 0.5 must be smaller than mismatch_high = 0.25"
    (only,) = mistakes(tmp_path, SHARED + arms('mismatch_correction = "tsi"'))
    assert only.startswith("arm.a.mismatch_correction: ")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (preset("cispo", "dual_clip = 3.0"), "dual_clip with policy_loss = 'cispo'"),
        (
            preset("bapo", "clip_low = 0.05"),
            "bapo_clip_low = 0.1, bapo_clip_high = 2: bounds move up, from 1 - ",
        ),
        (preset("sapo", CALIBRATED), "clip = 'calibrated' with policy_loss = 'sapo'"),
        (preset("grpo", "clip_low = 1.0"), "clip_low: give a number below 1"),
        (preset("vespo", CORRECTED), "mismatch_correction = 'tis' with policy_loss = 'vespo'"),
    ],
)
def test_what_belongs_to_another_loss_is_refused(tmp_path: Path, table: str, said: str) -> None:
    (only,) = mistakes(tmp_path, SHARED + arms(GSPO, table))
    assert only.startswith(f"arm.b: objective.{said}")


def test_benchmarks_are_told_apart_by_name(tmp_path: Path) -> None:
    twice = SHARED + '[[bench]]\nname = "sums"\n' + ARMS
    assert mistakes(tmp_path, twice) == ["bench: two benchmarks are named 'sums'"]
    (only,) = mistakes(tmp_path, (SHARED + ARMS).replace('"sums"', '"rollout"'))
    assert only.startswith("bench: 'rollout' is what training answers are recorded under")


def test_claims_that_answer_the_question_are_declared(tmp_path: Path) -> None:
    claimed = SHARED + ARMS + '\n[[claim]]\nname = "C04-clip-gap"\n'
    (only,) = mistakes(tmp_path, claimed, overrides=['verdict.question=["C04-clip-gab"]'])
    assert only.endswith(
        "'C04-clip-gab' (did you mean 'C04-clip-gap'?); this study has C04-clip-gap"
    )
    assert load(
        tmp_path, claimed, overrides=['verdict.question=["C04-clip-gap"]']
    ).verdict.question == ["C04-clip-gap"]
