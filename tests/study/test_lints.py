"""Each lint fires on what it is about, and is silent beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from gspo_lab.errors import LabError
from gspo_lab.study import Study, load_study
from gspo_lab.study.lints import Finding, Known, lints

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
LONG = Known(max_tokens={"grpo": 5000, "gspo": 5000})


def study(folder: Path, *changes: tuple[str, str]) -> Study:
    text = QUIET
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "toy.toml"
    path.write_text(text)
    return load_study(path)


def named(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.name) for finding in found]


def test_a_good_study_is_quiet(tmp_path: Path) -> None:
    assert lints(study(tmp_path), LONG) == []
    assert lints(study(tmp_path)) == [], "what is unknown fires nothing"


MOE = ('model = "tiny-qwen3"', 'model = "tiny-qwen3-moe"')
ROUTED = Known(moe={"tiny-qwen3-moe": True})


def arm(which: str, lines: str) -> tuple[str, str]:
    return (f'objective = "{which}"', f'objective = "{which}"\n{lines}')


@pytest.mark.parametrize(
    ("changes", "known", "line"),
    [
        ([arm("gspo", "clip_low = 0.2\nclip_high = 0.2")], LONG, "warn: eps-too-wide: range of 0.2 hardly"),
        ([arm("grpo", "clip_low = 3e-4\nclip_high = 4e-4")], LONG, "warn: eps-too-narrow: token ratio with a range"),
        (
            # .02 / sqrt(16) = .005; .00035 / .005 = .07 sd: .4721
            [],
            Known(max_tokens={"gspo": 16}),
            "warn: eps-too-narrow: about 0.47 of the active tokens",
        ),
        ([arm("grpo", 'aggregation = "token-mean"')], LONG, "error: aggregation-label: not the paper's GRPO"),
        ([arm("gspo", 'aggregation = "constant"')], LONG, "error: aggregation-label: is not GSPO"),
        (
            # 512 / 1024
            [("[arm.grpo]", "[arm.dr-grpo]"), ('objective = "grpo"', 'objective = "dr-grpo"')],
            Known(max_tokens={"dr-grpo": 512, "gspo": 5000}),
            "warn: aggregation-constant: arm.dr-grpo: aggregation_constant = 1024, and an answer has at most "
            "512 tokens: its gradient has 0.5 of",
        ),
        ([arm("gspo", "kl_coef = 0.04")], LONG, "warn: kl-not-zero: kl_coef = 0.04"),
        ([MOE], ROUTED, "warn: replay-unspecified: no arm says routing_replay"),
        ([MOE, arm("grpo", 'routing_replay = "old-policy"')], ROUTED, "warn: replay-unspecified: only with replay"),
        (
            [arm("grpo", 'routing_replay = "old-policy"')],
            Known(moe={"tiny-qwen3": False}),
            "error: replay-on-dense: a dense model",
        ),
        (
            [("[update]", '[rollout]\ndtype = "bfloat16"\n[update]')],
            LONG,
            "warn: mismatch-uncorrected: sampled in bfloat16, trained in float32",
        ),
        (
            [("[update]", "[rollout]\nstaleness = 2\ntokens_per_step = 8\n[update]")],
            LONG,
            "warn: lag-uncorrected: arm.gspo: rollout.staleness and rollout.tokens_per_step with "
            "old_logprobs = 'trainer' and no mismatch",
        ),
        (
            [arm("gspo", "mismatch_high = 2.0")],
            LONG,
            "warn: setting-unread: arm.gspo: mismatch_high = 2.0 does nothing without "
            "mismatch_correction: leave it out",
        ),
        (
            [("[update]", "[objective]\nmismatch_low = 0.5\n[update]")],
            LONG,
            "warn: setting-unread: mismatch_low = 0.5 does nothing without mismatch_correction",
        ),
        (
            [("[update]", "[critic]\nlearning_rate = 1e-3\n[update]")],
            LONG,
            "warn: setting-unread: critic.learning_rate = 0.001 does nothing without advantage = 'gae'",
        ),
        (
            [arm("grpo", "rollout.overlong_penalty = 0.5")],
            LONG,
            "warn: setting-unread: arm.grpo: rollout.overlong_penalty = 0.5 does nothing without overlong_buffer",
        ),
        (
            [arm("gspo", "rollout.dynamic_sampling = 2")],
            LONG,
            "error: filter-one-arm: rollout.dynamic_sampling (grpo: 0, gspo: 2)",
        ),
        ([arm("gspo", "dual_clip = 3.0")], LONG, "error: dual-clip-one-arm: (grpo: unset, gspo: 3.0)"),
        ([arm("gspo", 'advantage = "group-mean"')], LONG, "error: std-one-arm: gspo: group-mean)"),
        ([arm("gspo", 'mismatch_correction = "tis"')], LONG, "error: correction-one-arm: (grpo: none, gspo: tis)"),
        ([("seeds = 5", "seeds = 2")], LONG, "warn: too-few-seeds: 2 seeds: no interval"),
        ([("seeds = 5", "seeds = 3")], LONG, "warn: too-few-seeds: 3.26 sd"),
        (
            [("[update]", "[sweep]\nupdate.learning_rate = [1e-4, 1e-3]\n[update]")],
            LONG,
            "warn: sweep-one-start: all seeds share one starting model",
        ),
        ([("problems = 400", "problems = 99"), ("samples = 8", "samples = 7")], LONG, "warn: tiny-benchmark: 99"),
        (
            # 64 x 1 answers to 5 seeds in each of 3 deciding evaluations are 960: 1.96 sqrt(.5 / 960) = .0447
            [("problems = 400", "problems = 64"), ("samples = 8", "samples = 1")],
            LONG,
            "warn: margin-below-noise: 960 answers per arm alone leaves ±0.045",
        ),
        (
            # Greedy answers are one a problem, however often it is asked: 320, 1.96 sqrt(.5 / 320) = .0775
            [("problems = 400", "problems = 64"), ("samples = 8", "samples = 1\ntemperature = 0.0")],
            LONG,
            "warn: margin-below-noise: 320 answers per arm alone leaves ±0.077",
        ),
        (
            [('[verdict]\nprimary = "addition"\n', '[[bench]]\nname = "again"\nproblems = 400\n')],
            LONG,
            "warn: no-primary: addition, the first of 2 benchmarks, decides",
        ),
        ([("warmup_updates = 8", "warmup_updates = 0"), ("steps = 100", "steps = 99")], LONG, "warn: no-warmup: 99"),
        (
            [
                ("[verdict]", '[[claim]]\nname = "C14-more-efficient"\n[verdict]'),
                ("samples = 8", "samples = 8\nevery = 12"),
            ],
            LONG,
            "warn: coarse-eval: evaluated 9 times",
        ),
    ],
)
def test_a_lint_fires(tmp_path: Path, changes: list[tuple[str, str]], known: Known, line: str) -> None:
    level, name, part = line.split(": ", 2)
    found = [finding for finding in lints(study(tmp_path, *changes), known) if finding.name == name]
    assert {finding.level for finding in found} == {level}
    assert part in " ".join(finding.message for finding in found)
    assert all(finding.source for finding in found)
    assert str(found[0]).startswith(f"{level}: {name}: ")


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ([arm("gspo", "clip_low = 0.01\nclip_high = 0.02")], LONG),
        ([arm("gspo", 'clip = "calibrated"')], Known(max_tokens={"gspo": 16})),
        ([("[arm.grpo]", "[arm.dapo]"), arm("grpo", 'aggregation = "token-mean"')], LONG),
        (
            [
                ("[arm.grpo]", "[arm.dr-grpo]"),
                (
                    'objective = "grpo"',
                    'objective = "dr-grpo"\nadvantage = "group-mean-std"\naggregation_constant = 5000',
                ),
            ],
            Known(max_tokens={"dr-grpo": 5000, "gspo": 5000}),
        ),
        ([("[arm.grpo]", "[arm.grpo-token-mean]"), arm("grpo", 'aggregation = "token-mean"')], LONG),
        ([("[arm.gspo]", "[arm.luspo]"), arm("gspo", 'aggregation = "seq-mean-token-sum"')], LONG),
        ([MOE, arm("grpo", 'routing_replay = "none"')], ROUTED),
        ([MOE, arm("gspo", 'routing_replay = "old-policy"')], ROUTED),
        ([("[update]", '[update]\nold_logprobs = "sampler"')], LONG),
        (
            [
                MOE,
                ("[update]", '[rollout]\ndtype = "bfloat16"\n[update]'),
                arm("grpo", 'routing_replay = "rollout"'),
                arm(
                    "gspo", 'routing_replay = "rollout"\n[arm.none]\nobjective = "grpo"\nrollout = {dtype = "float32"}'
                ),
            ],
            ROUTED,
        ),
        ([("[update]", '[rollout]\ndtype = "bfloat16"\n[objective]\nmismatch_correction = "icepop"\n[update]')], LONG),
        ([("[update]", '[rollout]\ndtype = "bfloat16"\n[update]\nold_logprobs = "sampler"')], LONG),
        ([("[update]", '[objective]\nmismatch_correction = "icepop"\nmismatch_high = 2.0\n[update]')], LONG),
        # one arm reads what all share; a preset brings its values along, read or not
        ([("[update]", "[objective]\ngamma = 0.9\n[update]"), arm("gspo", '[arm.ppo]\nobjective = "ppo"')], LONG),
        ([arm("gspo", '[arm.sapo]\nobjective = "sapo"')], LONG),
        # two arms per rule: the setting does not go with the rule
        (
            [
                arm("grpo", '[arm.grpo-dual]\nobjective = "grpo"\ndual_clip = 3.0'),
                arm("gspo", "dual_clip = 3.0"),
            ],
            LONG,
        ),
        # another paper's presets are what they are, and their ranges are not GRPO's or GSPO's
        ([arm("gspo", '[arm.rloo]\nobjective = "rloo"\n[arm.minirl]\nobjective = "minirl"')], LONG),
        ([arm("gspo", '[arm.dppo]\nobjective = "dppo-kl"\n[arm.gmpo]\nobjective = "gmpo"')], LONG),
        # 99 x 10 x 5 = 4,950 answers: ±.0197
        ([("[update]", "[warm_start]\nper_seed = true\n[sweep]\nupdate.learning_rate = [1e-4, 1e-3]\n[update]")], LONG),
        ([("problems = 400", "problems = 99"), ("samples = 8", "samples = 10")], LONG),
        ([("warmup_updates = 8", "warmup_updates = 0")], LONG),
        (
            [
                ("[verdict]", '[[claim]]\nname = "C14-more-efficient"\n[verdict]'),
                ("samples = 8", "samples = 8\nevery = 10"),
            ],
            LONG,
        ),
    ],
)
def test_a_lint_is_silent_beside_its_case(tmp_path: Path, changes: list[tuple[str, str]], known: Known) -> None:
    assert named(lints(study(tmp_path, *changes), known)) == []


def test_no_benchmark_is_no_verdict(tmp_path: Path) -> None:
    bench = '[[bench]]\nname = "addition"\nproblems = 400\nsamples = 8\n[verdict]\nprimary = "addition"\n'
    assert named(lints(study(tmp_path, (bench, "")), LONG)) == [("warn", "no-primary")]


def test_a_difference_that_nobody_declared_is_an_error(tmp_path: Path) -> None:
    whole = study(tmp_path)
    other = whole.arms["gspo"].settings.model_copy(update={"device": "cpu"})
    whole.arms["gspo"] = replace(whole.arms["gspo"], settings=other)
    (found,) = lints(whole, LONG)
    assert named([found]) == [("error", "undeclared-difference")]
    assert "arm.gspo differs from arm.grpo in device" in found.message


def test_errors_come_first(tmp_path: Path) -> None:
    found = lints(study(tmp_path, ("seeds = 5", "seeds = 2"), arm("gspo", "kl_coef = 0.1\ndual_clip = 3.0")), LONG)
    assert [finding.level for finding in found] == ["error", "warn", "warn"]


def test_a_waived_error_is_a_warning_with_its_reason(tmp_path: Path) -> None:
    waived = study(
        tmp_path, arm("gspo", "dual_clip = 3.0"), ("[update]", "[waive]\ndual-clip-one-arm = 'asked so'\n[update]")
    )
    (found,) = lints(waived, LONG)
    assert (found.level, found.name) == ("warn", "dual-clip-one-arm")
    assert found.message.endswith("; waived: asked so")
    assert waived.locked()["waive"] == {"dual-clip-one-arm": "asked so"}, "locked with the study"


def test_former_keys_of_slurm_are_options(tmp_path: Path) -> None:
    old = '[launch.slurm]\npartition = "gpu"\naccount = "lab"\noptions = ["--nice"]\n[update]'
    former, plain = study(tmp_path, ("[update]", old)), study(tmp_path)
    (finding,) = lints(former, LONG)
    assert str(finding).startswith("warn: key-moved: launch.slurm.account is now one of launch.slurm.options")
    assert former.launch.options["slurm"]["options"] == ["--nice", "--account=lab"]
    assert former.locked() == plain.locked(), "no part of what a study declares"


def test_a_removed_error_may_still_be_waived(tmp_path: Path) -> None:
    former = study(tmp_path, ("[update]", "[waive]\nrollout-logp-as-old = 'measured'\n[update]"))
    (finding,) = lints(former, LONG)
    assert str(finding).startswith("warn: waive-unused: waive.rollout-logp-as-old: this check was removed")
    assert former.locked()["waive"] == {"rollout-logp-as-old": "measured"}, "the study's digest stays"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "dual-clip-on-arm = 'why'",
            "waive.dual-clip-on-arm: no error of that name (did you mean 'dual-clip-one-arm'?)",
        ),
        ("tiny-benchmark = 'why'", "waive.tiny-benchmark: no error of that name"),
        ("std-one-arm = ' '", "waive.std-one-arm: give the reason as text"),
        ("std-one-arm = true", "waive.std-one-arm: give the reason as text"),
    ],
)
def test_a_waiver_names_an_error_and_a_reason(tmp_path: Path, lines: str, told: str) -> None:
    with pytest.raises(LabError) as refused:
        study(tmp_path, ("[update]", f"[waive]\n{lines}\n[update]"))
    assert told in refused.value.details[0]
