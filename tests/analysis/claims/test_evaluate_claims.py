"""Needs, words, Holm's rule and claims written in place."""

import statistics
from pathlib import Path
from typing import Any, get_args

import pytest
from assertions import assert_fields
from claim_lab import PAIR, Fields, Numbers, evidence, gives, result, results, why
from laboratory import source

from gspo_lab.analysis.claims import LIBRARY, UNTESTED, answer, judge
from gspo_lab.analysis.claims.estimates import Region, condition, exact, over_seeds, weigh
from gspo_lab.analysis.claims.expectations import LAST_EVALUATIONS, STATISTICS
from gspo_lab.analysis.claims.roles import find_roles
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.runs import not_counted
from gspo_lab.common.plain_data import Integers, JsonObject, OptionalText
from gspo_lab.common.reason import Reason, sentences
from gspo_lab.recording.store import DATABASE
from gspo_lab.study import Run
from gspo_lab.study.claim_validation import claim_names
from gspo_lab.study.verdict_tables import Statistic


def test_the_library_is_what_studies_may_name() -> None:
    assert {*LIBRARY, *UNTESTED} == {*claim_names()}
    assert {*STATISTICS, LAST_EVALUATIONS} >= set(get_args(Statistic))


def test_a_claim_that_nothing_here_tests_says_what_it_lacks(tmp_path: Path) -> None:
    """Studies that named a claim before it left the library still open.

    Its test does not belong to the family.
    """
    found = results(
        tmp_path, update_clips(), claims=["C24-less-variance", "C04-clip-gap"], library=False
    )
    assert found["C24-less-variance"].word == "not testable here"
    assert "needs backward passes over halves of one frozen batch" in why(
        found["C24-less-variance"]
    )
    assert found["C04-clip-gap"].p_adjusted == found["C04-clip-gap"].p


def update_clips(grpo: float = 0.001) -> Numbers:
    """C04's ratios 50, 100, 200 (p = .0289), and mean losses whose difference has p = .2254."""

    def update(run: Run, step: int, minibatch: int) -> Fields:
        own = {0: 0.05, 1: 0.1, 2: 0.2}[run.seed] if run.arm == "gspo" else grpo
        loss = {0: 0.0, 1: 1.0, 2: 2.0}[run.seed] if run.arm == "gspo" else 0.0
        return {"clip_fraction_tokens": own, "loss": loss}

    return gives(update=update)


LOSS = """
[[claim]]
name = "loss-rises"
metric = "loss"
statistic = "mean over updates"
comparison = "difference"
above = 0.0
"""


def test_holms_rule_over_the_declared_claims_changes_a_word(tmp_path: Path) -> None:
    alone = result(tmp_path / "alone", update_clips(), "C04-clip-gap")
    assert_fields(alone, word="supported", declared=True, p_adjusted=alone.p)
    both = results(tmp_path / "two", update_clips(), claims=["C04-clip-gap"], tables=LOSS)
    found = both["C04-clip-gap"]
    assert found.p == alone.p == pytest.approx(0.0289, abs=1e-4)
    assert_fields(found, p_adjusted=pytest.approx(2 * 0.0289, abs=2e-4), word="inconclusive")
    assert "the interval alone would be supported" in why(found)
    # differences 0, 1, 2: mean 1, t = sqrt 3, p = 1 - sqrt(3 / 5) = .2254
    assert both["loss-rises"].p == pytest.approx(1 - (3 / 5) ** 0.5)
    # A declared test counts even if the data do not allow it.
    dense = results(
        tmp_path / "dense",
        update_clips(),
        claims=["C04-clip-gap", "C09-expert-change"],
        library=False,
    )
    assert dense["C09-expert-change"].word == "not testable here"
    assert dense["C04-clip-gap"].p_adjusted == pytest.approx(2 * 0.0289, abs=2e-4)


@pytest.mark.parametrize(
    ("added", "looks", "word"),
    [((3, 4), "", "supported"), ((), "looks = [3]", "supported"), ((), "", "inconclusive")],
)
def test_only_the_seeds_that_may_decide_are_read(
    tmp_path: Path, added: Integers, looks: str, word: str
) -> None:
    """C04's ratios are 50, 100, 200 on the first three seeds, and 1 on two more.

    The runs of those two are saturated.
    """

    def update(run: Run, step: int, minibatch: int) -> Fields:
        own = {0: 0.05, 1: 0.1, 2: 0.2}.get(run.seed, 0.001) if run.arm == "gspo" else 0.001
        return {"clip_fraction_tokens": own, "clip_fraction_active_tokens": 2.0 * (run.seed > 2)}

    verdict = f'question = ["C04-clip-gap"]\n{looks}'
    every = results(
        tmp_path,
        gives(update=update),
        claims=["C04-clip-gap"],
        added=added,
        seeds=5,
        verdict=verdict,
    )
    gap = every["C04-clip-gap"]
    counts = word == "inconclusive"
    assert (gap.word, gap.parts[0].n) == (word, 5 if counts else 3)
    assert ("is saturated" in why(gap)) == counts
    assert {part.n for one in every.values() for part in one.parts if part.low is not None} == {
        gap.parts[0].n
    }
    if not counts:
        assert (gap.p, gap.parts[0].estimate) == (
            pytest.approx(0.0289, abs=1e-4),
            pytest.approx(100),
        )
    with source(tmp_path / "runs" / DATABASE) as found:
        said = answer(found)
    assert_fields(said, word=word, colour="grey" if counts else "green")
    assert sentences(not_counted(found)) == (
        [] if counts else ["Not counted: 4 runs of other seeds (3, 4)."]
    )


def test_what_is_not_declared_is_description_and_identities_are_no_tests_of_the_family(
    tmp_path: Path,
) -> None:
    found = results(tmp_path, update_clips(), claims=["C01-first-minibatch", "C04-clip-gap"])
    assert [name for name, one in found.items() if one.declared] == [
        "C01-first-minibatch",
        "C04-clip-gap",
    ]
    assert len(found) == len(LIBRARY)
    assert found["C06-grows-with-mb"].p_adjusted is None
    assert found["C04-clip-gap"].p_adjusted == found["C04-clip-gap"].p
    assert found["C01-first-minibatch"].word == "contradicted", (
        "mini-batch 0 clips in these numbers"
    )


def test_unstable_runs_stand_beside_a_claim(tmp_path: Path) -> None:
    """No rule keeps alpha where one arm's runs are unstable: the counts stand beside the word."""

    def right(run: Run, step: int) -> int:
        return 2 if (run.arm, run.seed) == ("gspo", 1) and step else 8

    numbers = update_clips()
    numbers.right = right  # type: ignore[method-assign]
    found = result(tmp_path, numbers, "C04-clip-gap")
    assert found.unstable == {"grpo": (0, 3), "gspo": (1, 3)}
    assert "unstable runs: grpo 0 of 3, gspo 1 of 3" in why(found)


@pytest.mark.parametrize(
    ("claim", "settings", "arms", "numbers", "said"),
    [
        (
            "C04-clip-gap",
            {"seeds": 2},
            PAIR,
            Numbers(),
            "2 seeds finished in every arm it needs; 3 are needed",
        ),
        (
            "C04-clip-gap",
            {},
            PAIR,
            gives(finished=lambda run: (run.arm, run.seed) != ("gspo", 1)),
            "2 seeds finished in every arm",
        ),
        (
            "C04-clip-gap",
            {"minibatches": 1},
            PAIR + "update = {learning_rate = 1e-3}\n",
            Numbers(),
            "grpo makes 1 updates per rollout batch; 2 are needed",
        ),
        (
            "C06-grows-with-mb",
            {"minibatches": 2},
            PAIR,
            Numbers(),
            "grpo makes 2 updates per rollout batch; 4",
        ),
        (
            "C06-grows-with-mb",
            {},
            (
                '[arm.grpo]\nobjective = "grpo"\nupdate = {old_logprobs ='
                ' "sampler"}\n[arm.gspo]\nobjective = "gspo"\n'
            ),
            Numbers(),
            "grpo takes the sampler's log-probs",
        ),
        (
            "C01-first-minibatch",
            {},
            (
                '[arm.grpo]\nobjective = "grpo"\naggregation = "token-mean"\n[arm.gspo]\nobjective'
                ' = "gspo"\n'
            ),
            Numbers(),
            "grpo aggregates by token-mean",
        ),
        (
            "C01-first-minibatch",
            {},
            PAIR + "dual_clip = 3.0\n",
            Numbers(),
            "gspo has a dual clip at 3",
        ),
        (
            "C04-clip-gap",
            {},
            '[arm.gspo]\nobjective = "gspo"\n',
            Numbers(),
            "no arm plays grpo (token-level ratio",
        ),
        (
            "C03-equal-weights",
            {},
            PAIR,
            Numbers(),
            "response_detail was not recorded in gspo, seed 0",
        ),
        ("C05-gap-robust", {}, PAIR, Numbers(), "band_counts was not recorded in grpo, seed 0"),
        ("C04-clip-gap", {}, PAIR, Numbers(), "neither arm clipped a token at seed 0"),
        (
            "C04-clip-gap",
            {},
            PAIR.replace("[arm.gspo]", "update = {warmup_updates = 99}\n[arm.gspo]"),
            Numbers(),
            "grpo has no update after the learning rate's warm-up: 25 of 2 steps warm up",
        ),
    ],
)
def test_an_unmet_need_is_named_with_what_was_measured(
    tmp_path: Path, claim: str, settings: JsonObject, arms: str, numbers: Numbers, said: str
) -> None:
    found = result(tmp_path, numbers, claim, arms=arms, **settings)
    assert found.word == "not testable here"
    assert said in why(found)


def test_arms_that_are_no_pairs_are_compared_by_no_claim(tmp_path: Path) -> None:
    numbers = update_clips()
    numbers.facts = lambda run: {"weights": run.arm}  # type: ignore[method-assign]
    found = result(tmp_path, numbers, "C04-clip-gap", accept=False)
    assert found.word == "not testable here"
    assert why(found).startswith(
        "grpo and gspo are not matched: undeclared difference in weights: weights (seeds 0 to 2)"
    )


def test_the_study_may_name_the_arms_of_a_claim(tmp_path: Path) -> None:
    arms = PAIR + '[arm.wide]\nobjective = "gspo"\nclip_low = 0.1\nclip_high = 0.1\n'
    tables = '[[claim]]\nname = "C04-clip-gap"\narms = {gspo = "wide"}\n'
    found = results(tmp_path, update_clips(), arms=arms, tables=tables)["C04-clip-gap"]
    assert found.roles == {"grpo": "grpo", "gspo": "wide"}
    assert found.parts[0].estimate == pytest.approx(1), (
        "only the arm called gspo clips more in these numbers"
    )
    assert found.parts[0].reason == Reason("no-interval", "identical scores")
    assert found.word == "inconclusive"


IN_PLACE = """
[[claim]]
name = "of-mine"
arms = {{of = "gspo", against = "grpo"}}
metric = "{metric}"
statistic = "{statistic}"
comparison = "{comparison}"
{bound}
"""


def curve(run: Run, step: int) -> Fields:
    own = 0.01 * run.seed if run.arm == "gspo" else 0.0
    return {"entropy": (1.0 + own) * (10 - step) + (2.0 if run.arm == "gspo" else 0.0)}


def later(run: Run, step: int, minibatch: int) -> Fields:
    return {"grad_norm": (2.0 + 0.01 * run.seed if run.arm == "gspo" else 1.0) * (1 + minibatch)}


@pytest.mark.parametrize(
    ("metric", "statistic", "comparison", "bound", "estimate", "word"),
    [
        # entropy 10, 9, ..., 1 by step; gspo 2 above, and 0, 1, 2 % of the height more by seed
        ("entropy", "mean over steps", "difference", "above = 1.0", 2 + 0.01 * 5.5, "supported"),
        (
            "entropy",
            "mean over the last fifth",
            "difference",
            "below = 1.0",
            2 + 0.01 * 1.5,
            "contradicted",
        ),
        ("entropy", "largest", "difference", "inside = [1.5, 2.5]", 2 + 0.01 * 10, "supported"),
        (
            "entropy",
            "area under the curve",
            "difference",
            "inside = [0.0, 1.0]",
            2 + 0.01 * 5.5,
            "contradicted",
        ),
        # grad_norm 1, 2, 3, 4 by mini-batch; gspo twice as much, and 0, .5, 1 % more: geometric
        # mean of the seeds
        (
            "grad_norm",
            "mean over updates",
            "ratio",
            "above = 1.5",
            (2 * 2.01 * 2.02) ** (1 / 3),
            "supported",
        ),
        (
            "grad_norm",
            "mean over updates with minibatch >= 1",
            "difference",
            "above = 2.9",
            3 * 1.01,
            "supported",
        ),
        (
            "grad_norm",
            "mean over updates with minibatch = 0",
            "difference",
            "above = 0.9",
            1.01,
            "supported",
        ),
        (
            "addition",
            "mean over the last evaluations",
            "difference",
            "above = 0.05",
            0.1,
            "inconclusive",
        ),
    ],
)
def test_a_claim_written_in_place(
    tmp_path: Path,
    metric: str,
    statistic: str,
    comparison: str,
    bound: str,
    estimate: float,
    word: str,
) -> None:
    table = IN_PLACE.format(metric=metric, statistic=statistic, comparison=comparison, bound=bound)
    numbers = gives(
        update=later, step=curve, right=lambda run, step: 5 + (run.seed if run.arm == "gspo" else 0)
    )
    found = results(tmp_path, numbers, tables=table, library=False, steps=10)["of-mine"]
    assert found.parts[0].estimate == pytest.approx(estimate)
    assert found.word == word


def test_a_curve_begins_where_it_was_first_measured(tmp_path: Path) -> None:
    """A step whose groups all have one reward measures no entropy.

    A run without any measured entropy has no curve.
    """
    table = IN_PLACE.format(
        metric="entropy",
        statistic="area under the curve",
        comparison="difference",
        bound="above = 1.0",
    )

    def gaps(run: Run, step: int) -> Fields:
        # gspo 3, 3, 3 (step 1 carried to 2); grpo from step 1 on 1, 1, 2 and 2: area 1.5 over steps
        # 1 to 3
        value = (3.0, 3.0, None, 3.0)[step] if run.arm == "gspo" else (None, 1.0, None, 2.0)[step]
        return {"entropy": value}

    found = results(tmp_path, gives(step=gaps), tables=table, library=False, steps=4)["of-mine"]
    assert found.parts[0].estimate == pytest.approx(3 - (1 + 1.5) / 2)
    never = results(
        tmp_path / "never",
        gives(step=lambda run, step: {"entropy": None}),
        tables=table,
        library=False,
    )["of-mine"]
    assert never.word == "not testable here"


def test_a_ratio_of_nothing_is_not_testable(tmp_path: Path) -> None:
    table = IN_PLACE.format(
        metric="clipped_tokens",
        statistic="mean over updates",
        comparison="ratio",
        bound="above = 1.0",
    )
    found = results(tmp_path, Numbers(), tables=table, library=False)["of-mine"]
    assert found.word == "not testable here"
    assert "a ratio needs values above 0; at seed 0 gspo has 0 and grpo has 0" in why(found)


def test_an_interval_decides_by_where_the_whole_of_it_lies() -> None:
    # mean 1, sd 1: half-width 2.4841
    wide = {0: 0.0, 1: 1.0, 2: 2.0}
    part = over_seeds("d", wide, Region(above=0), alpha=0.05)
    assert [part.low, part.high] == pytest.approx([1 - 2.48414, 1 + 2.48414], abs=1e-4)
    assert_fields(part, side="supported", resolved=False)
    assert over_seeds("d", wide, Region(above=-2), alpha=0.05).resolved
    inside = over_seeds("d", wide, Region(-2, 4), alpha=0.05)
    # against -2: t = 3 sqrt 3; against 4: the same. Both must be beyond their bound, so the larger
    # p counts
    assert inside.p == pytest.approx(1 - 27**0.5 / 29**0.5)
    assert inside.resolved
    # equivalence within a margin goes before support
    tiny = {0: 0.001, 1: 0.0011, 2: 0.0012}
    part = over_seeds(
        "d", tiny, Region(above=0), [Region(below=0), Region(-0.02, 0.02)], alpha=0.05
    )
    assert part.low > 0
    assert part.side == "contradicted"


def test_support_needs_every_part_and_contradiction_one() -> None:
    yes = over_seeds("a", {0: 1.0, 1: 1.1, 2: 1.2}, Region(above=0), [Region(below=0)], alpha=0.05)
    no = over_seeds(
        "b", {0: -1.0, 1: -1.1, 2: -1.3}, Region(above=0), [Region(below=0)], alpha=0.05
    )
    assert weigh((yes, yes)) == ("supported", yes.p)
    assert weigh((yes, no)) == ("contradicted", 2 * no.p)
    assert weigh((yes, exact("c", {"s0": 1.0}, 0.0))) == ("contradicted", None)
    assert weigh((yes, exact("c", {"s0": 0.0}, 0.0))) == ("supported", yes.p)
    assert weigh(
        (yes, condition("k", False, n=3, estimate=0.0, reason=Reason("collapses", "")))
    ) == (
        None,
        None,
    )
    assert weigh(
        (yes, condition("k", True, n=3, estimate=0.0, reason=Reason("collapses", "")))
    ) == (
        "supported",
        yes.p,
    )


def test_no_interval_no_word() -> None:
    same = over_seeds("d", {0: 2.0, 1: 2.0, 2: 2.0}, Region(above=0), alpha=0.05)
    assert_fields(same, low=None, side=None, estimate=2.0)
    assert same.reason is not None
    two = over_seeds("d", {0: 2.0, 1: 2.1}, Region(above=0), alpha=0.05)
    assert_fields(two, low=None, side=None)


def test_a_claim_on_final_scores_has_the_verdict_s_interval(tmp_path: Path) -> None:
    table = """[[claim]]
name = "scores"
statistic = "mean over the last evaluations"
metric = "addition"
comparison = "difference"
arms = { of = "gspo", against = "grpo" }
above = 0.0
"""
    # Of 10 problems 5, against 10, 10 and 9: ten answers alone vary more than these seeds do.
    numbers = gives(
        right=lambda run, step: 5 if run.arm == "grpo" or not step else 10 - (run.seed == 2)
    )
    with evidence(tmp_path, numbers, tables=table, verdict="alpha = 0.1") as opened:
        found = Source(opened, "toy")
        (part,) = judge(found)[0].parts
        paired = decision(found).verdicts["gspo"].paired
    assert_fields(part, estimate=paired.estimate, low=paired.low, high=paired.high, p=paired.p)
    assert paired.items_sd > statistics.stdev([0.5, 0.5, 0.4])
    assert part.alpha == 0.1


def arm(name: str, rollout: str = "") -> str:
    return f'[arm.{name}]\nobjective = "{name.partition("-")[0]}"\nrollout = {{{rollout}}}\n'


@pytest.mark.parametrize(
    ("arms", "grpo", "gspo"),
    [
        (
            arm("grpo-2", "staleness = 2")
            + arm("gspo-2", "staleness = 2")
            + arm("grpo")
            + arm("gspo"),
            "grpo",
            "gspo",
        ),
        (
            arm("grpo-4", "tokens_per_step = 4")
            + arm("gspo")
            + arm("grpo-8", "tokens_per_step = 8"),
            "grpo-8",
            None,
        ),
        (
            arm("grpo") + arm("gspo-ds", "dynamic_sampling = 4, overlong_buffer = 8") + arm("gspo"),
            "grpo",
            "gspo",
        ),
        (arm("grpo") + arm("gspo-over", "overlong_buffer = 8"), "grpo", None),
        (
            arm("grpo-2", "staleness = 2") + arm("gspo") + arm("gspo-2", "staleness = 2"),
            "grpo-2",
            "gspo-2",
        ),
    ],
)
def test_rules_are_compared_at_the_least_and_at_one_staleness(
    tmp_path: Path, arms: str, grpo: str, gspo: OptionalText
) -> None:
    with evidence(tmp_path, Numbers(), arms=arms, seeds=1) as opened:
        roles = find_roles(Source(opened, "toy"), {})
    assert (roles["grpo"], roles.get("gspo")) == (grpo, gspo)


@pytest.mark.parametrize(
    "region", ['"ratio"\ninside = [0.8, 1.25]', '"difference"\ninside = [-1.0, 1.0]']
)
def test_arms_that_are_the_same_to_rounding_support_no_claim(tmp_path: Path, region: str) -> None:
    """The second arm's norms differ by 3e-8, as float32 rounds.

    A ratio that is 1 by identity is not evidence.
    """
    claim = (
        '[[claim]]\nname = "same"\nmetric = "grad_norm"\nstatistic = "mean over'
        f' updates"\ncomparison = {region}\n'
    )

    def judged(name: str, apart: float, spread: float) -> Any:
        def update(run: Run, step: int, minibatch: int) -> Fields:
            other = run.arm == "gspo"
            return {
                "grad_norm": 0.1 * (1 + run.seed) * (1 + apart * other + spread * run.seed * other)
            }

        return results(tmp_path / name, gives(update=update), tables=claim, library=False)["same"]

    same = judged("same", 3e-8, 1e-8)
    assert (same.word, same.parts[0].interval) == ("inconclusive", None)
    assert "identical scores" in why(same)
    assert judged("near", 1e-3, 1e-4).word == "supported"
