"""Each lint fires on what it is about, and is silent beside it."""

from pathlib import Path

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.study import Study, load_study
from gspo_lab.study.lints import Finding, ModelFacts, lints

QUIET = """
question = "Nothing to warn of?"
model = "tiny-qwen3"
task = "addition"
seeds = 5
steps = 100
[update]
warmup_updates = 8
[[bench]]
name = "addition"
problems = 400
samples = 8
[verdict]
primary = "addition"
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""
LONG = ModelFacts(max_tokens={"grpo": 5000, "gspo": 5000})


def study(folder: Path, *overrides: str, text: str = QUIET) -> Study:
    path = folder / "toy.toml"
    path.write_text(text)
    return load_study(path, overrides=overrides)


def named(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.name) for finding in found]


def renamed(grpo: str, preset: str) -> str:
    """The study with another name and objective of its first arm."""
    return QUIET.replace("[arm.grpo]", f"[arm.{grpo}]").replace('"grpo"', f'"{preset}"')


def short(arm: str, tokens: int) -> ModelFacts:
    return ModelFacts(max_tokens={**LONG.max_tokens, arm: tokens})


MOE = "model=tiny-qwen3-moe"
ROUTED = ModelFacts(moe={"tiny-qwen3-moe": True})
BF16 = "rollout.dtype=bfloat16"
SWEEP = "sweep.update.learning_rate=[1e-4, 1e-3]"
C14 = "claim=[{name = 'C14-more-efficient'}]"


@pytest.mark.parametrize(
    ("line", "overrides"),
    [
        (
            "warn: eps-too-wide: range of 0.2 hardly",
            ["arm.gspo.clip_low=0.2", "arm.gspo.clip_high=0.2"],
        ),
        (
            "warn: eps-too-narrow: token ratio with a",
            ["arm.grpo.clip_low=3e-4", "arm.grpo.clip_high=4e-4"],
        ),
        ("error: aggregation-label: not the paper's GRPO", ["arm.grpo.aggregation=token-mean"]),
        ("error: aggregation-label: is not GSPO", ["arm.gspo.aggregation=constant"]),
        ("warn: kl-not-zero: kl_coef = 0.04", ["arm.gspo.kl_coef=0.04"]),
        ("warn: mismatch-uncorrected: sampled in bfloat16, trained in float32", [BF16]),
        (
            (
                "warn: lag-uncorrected: arm.gspo: rollout.staleness and rollout.tokens_per_step"
                " with old_logprobs = 'trainer' and no mismatch"
            ),
            ["rollout.staleness=2", "rollout.tokens_per_step=8"],
        ),
        (
            (
                "warn: setting-unread: arm.gspo: mismatch_high = 2.0 does nothing without"
                " mismatch_correction: leave"
            ),
            ["arm.gspo.mismatch_high=2.0"],
        ),
        (
            "warn: setting-unread: mismatch_low = 0.5 does nothing without mismatch_correction",
            ["objective.mismatch_low=0.5"],
        ),
        (
            (
                "warn: setting-unread: critic.learning_rate = 0.001 does nothing without advantage"
                " = 'gae'"
            ),
            ["critic.learning_rate=1e-3"],
        ),
        (
            (
                "warn: setting-unread: arm.grpo: rollout.overlong_penalty = 0.5 does nothing"
                " without overlong_buffer"
            ),
            ["arm.grpo.rollout.overlong_penalty=0.5"],
        ),
        (
            "error: filter-one-arm: dynamic_sampling (grpo: 0, gspo: 2)",
            ["arm.gspo.rollout.dynamic_sampling=2"],
        ),
        ("error: dual-clip-one-arm: (grpo: unset, gspo: 3.0)", ["arm.gspo.dual_clip=3.0"]),
        ("error: std-one-arm: gspo: group-mean)", ["arm.gspo.advantage=group-mean"]),
        (
            "error: correction-one-arm: (grpo: none, gspo: tis)",
            ["arm.gspo.mismatch_correction=tis"],
        ),
        (
            "error: mask-one-arm: off_policy_mask (grpo: unset, gspo: 0.5)",
            ["arm.gspo.off_policy_mask=0.5"],
        ),
        ("warn: too-few-seeds: 2 seeds: no interval", ["seeds=2"]),
        ("warn: too-few-seeds: 3.26 sd", ["seeds=3"]),
        ("warn: sweep-one-start: all seeds share one starting model", [SWEEP]),
        ("warn: tiny-benchmark: 99", ["bench.addition.problems=99", "bench.addition.samples=7"]),
        # 64 x 1 answers to 5 seeds in each of 2 deciding evaluations are 640: 1.96 sqrt(.5 / 640) =
        # .0548
        (
            "warn: margin-below-noise: 640 answers per arm alone leaves ±0.055",
            ["bench.addition.problems=64", "bench.addition.samples=1"],
        ),
        # Greedy answers are one a problem, however often it is asked: 320, 1.96 sqrt(.5 / 320) =
        # .0775
        (
            "warn: margin-below-noise: 320 answers per arm alone leaves ±0.077",
            [
                "bench.addition.problems=64",
                "bench.addition.samples=1",
                "bench.addition.temperature=0.0",
            ],
        ),
        ("warn: no-warmup: 99", ["update.warmup_updates=0", "steps=99"]),
        ("warn: coarse-eval: evaluated 9 times", [C14, "bench.addition.every=12"]),
    ],
)
def test_a_lint_fires(tmp_path: Path, line: str, overrides: list[str]) -> None:
    fires(lints(study(tmp_path, *overrides), LONG), line)


def fires(findings: list[Finding], line: str) -> None:
    level, name, part = line.split(": ", 2)
    found = [finding for finding in findings if finding.name == name]
    assert {finding.level for finding in found} == {level}
    assert part in " ".join(finding.message for finding in found)
    assert all(finding.source for finding in found)
    assert str(found[0]).startswith(f"{level}: {name}: ")


def test_lints_of_models_lengths_and_names_fire(tmp_path: Path) -> None:
    # .02 / sqrt(16) = .005; .00035 / .005 = .07 sd: .4721
    fires(
        lints(study(tmp_path), short("gspo", 16)),
        "warn: eps-too-narrow: about 0.47 of the active tokens",
    )
    # 512 / 1024
    fires(
        lints(study(tmp_path, text=renamed("dr-grpo", "dr-grpo")), short("dr-grpo", 512)),
        "warn: aggregation-constant: arm.dr-grpo: aggregation_constant = 1024, and an answer has at"
        " most 512 tokens: its gradient has 0.5 of",
    )
    fires(
        lints(study(tmp_path, MOE), ROUTED), "warn: replay-unspecified: no arm says routing_replay"
    )
    replayed = "arm.grpo.routing_replay=old-policy"
    fires(
        lints(study(tmp_path, MOE, replayed), ROUTED), "warn: replay-unspecified: only with replay"
    )
    dense = ModelFacts(moe={"tiny-qwen3": False})
    fires(lints(study(tmp_path, replayed), dense), "error: replay-on-dense: a dense model")
    bench = (
        '[[bench]]\nname = "addition"\nproblems = 400\nsamples = 8\n[verdict]\nprimary ='
        ' "addition"\n'
    )
    assert named(lints(study(tmp_path, text=QUIET.replace(bench, "")), LONG)) == [
        ("warn", "no-primary")
    ]
    text = QUIET.replace(
        '[verdict]\nprimary = "addition"\n', '[[bench]]\nname = "again"\nproblems = 400\n'
    )
    fires(
        lints(study(tmp_path, text=text), LONG),
        "warn: no-primary: addition, the first of 2 benchmarks, decides",
    )


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["arm.gspo.clip_low=0.01", "arm.gspo.clip_high=0.02"],
        ["update.old_logprobs=sampler"],
        [BF16, "objective.mismatch_correction=icepop"],
        [BF16, "update.old_logprobs=sampler"],
        ["objective.mismatch_correction=icepop", "objective.mismatch_high=2.0"],
        # 99 x 10 x 5 = 4,950 answers: ±.0197
        ["bench.addition.problems=99", "bench.addition.samples=10"],
        ["warm_start.per_seed=true", SWEEP],
        ["update.warmup_updates=0"],
        [C14, "bench.addition.every=10"],
    ],
)
def test_a_lint_is_silent_beside_its_case(tmp_path: Path, overrides: list[str]) -> None:
    assert named(lints(study(tmp_path, *overrides), LONG)) == []
    assert overrides or lints(study(tmp_path)) == [], "what is unknown fires nothing"


@pytest.mark.parametrize(
    ("more", "overrides"),
    [
        # one arm reads what all share; a preset brings its values along, read or not
        ('[arm.ppo]\nobjective = "ppo"', ["objective.gamma=0.9"]),
        ('[arm.sapo]\nobjective = "sapo"', []),
        # two arms per rule: the setting does not go with the rule
        ('dual_clip = 3.0\n[arm.grpo-dual]\nobjective = "grpo"\ndual_clip = 3.0', []),
        # another paper's presets are what they are, and their ranges are not GRPO's or GSPO's
        ('[arm.rloo]\nobjective = "rloo"\n[arm.minirl]\nobjective = "minirl"', []),
        ('[arm.dppo]\nobjective = "dppo-kl"\n[arm.gmpo]\nobjective = "gmpo"', []),
    ],
)
def test_other_arms_are_compared_as_what_they_are(
    tmp_path: Path, more: str, overrides: list[str]
) -> None:
    assert named(lints(study(tmp_path, *overrides, text=QUIET + more), LONG)) == []


def test_lints_of_models_lengths_and_names_are_silent_beside_their_cases(tmp_path: Path) -> None:
    token_mean = "aggregation=token-mean"
    bf16 = 'objective = "grpo"\nrollout = {dtype = "float32"}'
    quiet = [
        (study(tmp_path, "arm.gspo.clip=calibrated"), short("gspo", 16)),
        (study(tmp_path, f"arm.dapo.{token_mean}", text=renamed("dapo", "grpo")), LONG),
        (
            study(
                tmp_path,
                f"arm.grpo-token-mean.{token_mean}",
                text=renamed("grpo-token-mean", "grpo"),
            ),
            LONG,
        ),
        (
            study(
                tmp_path,
                "arm.dr-grpo.advantage=group-mean-std",
                "arm.dr-grpo.aggregation_constant=5000",
                text=renamed("dr-grpo", "dr-grpo"),
            ),
            short("dr-grpo", 5000),
        ),
        (
            study(
                tmp_path,
                "arm.luspo.aggregation=seq-mean-token-sum",
                text=QUIET.replace("arm.gspo", "arm.luspo"),
            ),
            LONG,
        ),
        (study(tmp_path, MOE, "arm.grpo.routing_replay=none"), ROUTED),
        (study(tmp_path, MOE, "arm.gspo.routing_replay=old-policy"), ROUTED),
        (
            study(
                tmp_path,
                *(MOE, BF16, "arm.grpo.routing_replay=rollout", "arm.gspo.routing_replay=rollout"),
                text=f"{QUIET}[arm.none]\n{bf16}",
            ),
            ROUTED,
        ),
    ]
    assert [named(lints(one, known)) for one, known in quiet] == [[]] * len(quiet)


def test_errors_come_first_and_a_waived_one_is_a_warning_with_its_reason(tmp_path: Path) -> None:
    found = lints(
        study(tmp_path, "seeds=2", "arm.gspo.kl_coef=0.1", "arm.gspo.dual_clip=3.0"), LONG
    )
    assert [finding.level for finding in found] == ["error", "warn", "warn"]
    waived = study(tmp_path, "arm.gspo.dual_clip=3.0", "waive.dual-clip-one-arm=asked so")
    (finding,) = lints(waived, LONG)
    assert (finding.level, finding.name) == ("warn", "dual-clip-one-arm")
    assert finding.message.endswith("; waived: asked so")
    assert waived.locked()["waive"] == {"dual-clip-one-arm": "asked so"}, "locked with the study"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "dual-clip-on-arm=why",
            "waive: no error 'dual-clip-on-arm' (did you mean 'dual-clip-one-arm'?)",
        ),
        ("tiny-benchmark=why", "waive: no error 'tiny-benchmark'"),
        ("std-one-arm=' '", "waive.std-one-arm: give the reason as text"),
        ("std-one-arm=true", "waive.std-one-arm: give the reason as text"),
    ],
)
def test_a_waiver_names_an_error_and_a_reason(tmp_path: Path, override: str, told: str) -> None:
    with pytest.raises(LabError) as refused:
        study(tmp_path, f"waive.{override}")
    assert told in refused.value.details[0]
