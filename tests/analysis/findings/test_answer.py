"""The answer to the declared question: which word, in which colour, and what to type next."""

from dataclasses import replace
from pathlib import Path

import pytest
from assertions import assert_fields
from laboratory import added_later, rendered, source
from synthetic_lab import FOUR_ARMS, TWO_ARMS, Change, by_seed, make_lab, right

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.decision import decision, with_baseline
from gspo_lab.analysis.findings.stability import stability_verdicts
from gspo_lab.analysis.stats.proportions import fisher_p
from gspo_lab.analysis.stats.stability import StabilityVerdict
from gspo_lab.recording.records import Record, StepRecord, UpdateRecord
from gspo_lab.report.templating import statement
from gspo_lab.study import Run

STABILITY = TWO_ARMS + '[verdict]\nquestion = "stability"\n'


def collapsing(*arms: str) -> Change:
    """Runs of these arms die at step 6; all others rise by .1 an evaluation.

    From step 6 on they answer nothing correctly.
    """

    def share(run: Run, step: int) -> float:
        return 0.0 if run.arm in arms and step > 6 else 0.3 + 0.025 * step + 0.05 * (run.seed % 2)

    def change(run: Run, record: Record) -> Record | None:
        if isinstance(record, UpdateRecord) and run.arm in arms and record.step >= 6:
            return replace(record, nonfinite=1)
        if isinstance(record, StepRecord):
            return replace(record, reward_mean=0.3 + 0.02 * record.step)
        return right(share, by_seed)(run, record)

    return change


def answered(database: Path) -> StudyAnswer:
    with source(database) as studied:
        return answer(studied)


def stood(database: Path) -> dict[str, StabilityVerdict]:
    with source(database) as studied:
        return stability_verdicts(studied)


def rising(gap: float) -> Change:
    """gspo ends `gap` above grpo, 1 problem of 20 more or less from seed to seed."""
    return right(
        lambda run, step: (
            0.3
            + (0.02 * step + (gap if run.arm == "gspo" else 0) if step else 0)
            + 0.05 * (run.seed % 2)
        ),
        by_seed,
    )


def test_better_is_green_and_says_by_how_much(tmp_path: Path) -> None:
    found = answered(make_lab(tmp_path, seeds=5, change=rising(0.25)))
    assert_fields(found, word="gspo better", colour="green")
    said = statement("answer", found)
    assert said.startswith("gspo is better than grpo by more than the margin")
    assert ": +0.25" in said
    assert said.endswith("), 5 seeds.")
    assert " of its best gain). Margin ±0.02. " in statement("grounds", found)
    assert (
        "By scores alone, none of 10 runs was unstable (95 % interval of the rate: 0 to"
        in statement("grounds", found)
    )
    assert found.command == "gspo-lab replicate toy"


def test_not_resolved_is_grey_and_asks_for_the_seeds_that_would_do(tmp_path: Path) -> None:
    """A study that does not name its question asks for the score.

    If the runs are imported, the answer asks to import more.
    """
    with source(make_lab(tmp_path, gain=0.0)) as studied:
        found = answer(studied)
        imported = studied
        assert imported.declaration.verdict.question == "score"
        imported.__dict__["declaration"] = replace(imported.declaration, recorded=("steps",))
        assert answer(imported).command == "import more seeds (5 or more)"
    assert_fields(found, word="inconclusive", colour="grey")
    assert found.command.startswith(
        ("gspo-lab plan studies/toy.toml", "gspo-lab run studies/toy.toml --seeds ")
    )


def test_one_bound_of_what_was_not_seen_stands_beside_equivalent(tmp_path: Path) -> None:
    toml = TWO_ARMS + "[verdict]\nmargin = 0.3\n"
    found = answered(make_lab(tmp_path, toml, seeds=5, change=rising(0.0)))
    assert_fields(found, word="equivalent within the margin", colour="green")
    assert "can still have a rate of up to 52 %" in statement("answer", found)
    assert statement("grounds", found).endswith(
        "Margin ±0.3. By scores alone, none of 10 runs was unstable. Regime: the clipped share of"
        " the gradient is not measured."
    )
    asked = toml + 'question = "stability"\n'
    found = answered(make_lab(tmp_path / "stability", asked, seeds=5, change=rising(0.0)))
    # Equal scores would have been green: they answer another question. Clopper-Pearson of 0 of 10:
    # 1 - .025^(1/10).
    assert_fields(found, word="no unstable runs", colour="grey")
    ground = statement("grounds", found)
    assert "unstable (95 % interval of the rate: 0 to 31 %)" in ground
    assert "equivalent within the margin" in ground
    assert ground.count("%") == 2
    assert found.command.endswith("--set update.learning_rate=0.0002 --name toy-further")


def test_one_seed_is_grey(tmp_path: Path) -> None:
    found = answered(make_lab(tmp_path, seeds=1))
    assert_fields(
        found,
        word="one seed",
        colour="grey",
        command="gspo-lab run studies/toy.toml --seeds 5 --name toy-5-seeds",
    )
    found = answered(make_lab(tmp_path / "listed", TWO_ARMS.replace("{seeds}", "[7]")))
    assert found.command == "gspo-lab run studies/toy.toml --seeds 5 --name toy-5-seeds"


def test_running_and_missing(tmp_path: Path) -> None:
    missing = answered(
        make_lab(tmp_path, end=lambda run: "failed" if run.seed == 2 else "finished")
    )
    assert_fields(missing, word="no verdict", colour="red", command="gspo-lab run studies/toy.toml")
    assert statement("answer", missing) == "Not answered: 2 runs are missing."
    assert statement("grounds", missing) == "grpo seed 2 failed, gspo seed 2 failed."


def test_all_collapsed_is_red_whatever_decides(tmp_path: Path) -> None:
    for place, study in (("score", TWO_ARMS), ("stability", STABILITY)):
        found = answered(
            make_lab(tmp_path / place, study, seeds=3, change=collapsing("grpo", "gspo"))
        )
        assert_fields(found, word="all collapsed", colour="red")
        assert statement("answer", found).startswith("All 6 runs collapsed")
        assert statement("grounds", found) == "Cause: numbers that are not finite, at step 6."
        assert (
            found.command
            == "gspo-lab run studies/toy.toml --set update.learning_rate=2.5e-05 --name toy-calmer"
        ), "a quarter of the study's"


def test_the_arm_whose_runs_stand_is_more_stable(tmp_path: Path) -> None:
    database = make_lab(tmp_path, STABILITY, seeds=5, change=collapsing("grpo"))
    found = answered(database)
    own = stood(database)["gspo"]
    assert_fields(found, word="more stable", colour="green")
    assert statement("answer", found).startswith(
        "gspo is more stable than grpo on this one starting model: the drop of gspo "
    )
    assert "Unstable, of 5: grpo 5, gspo 0." in statement("grounds", found)
    assert own.p == fisher_p((5, 5), (0, 5))
    # grpo's best is its start, .3 on even seeds and .35 on odd ones, its last three are
    # (.4, 0, 0) and (.45, 0, 0); gspo ends at its best. Without a gain half of the best score is
    # what could be lost.
    even = 0.3 - 0.4 / 3
    odd = 0.35 - 0.45 / 3
    assert own.points.estimate == pytest.approx((3 * even + 2 * odd) / 5)
    assert own.estimate == pytest.approx((3 * even / 0.15 + 2 * odd / 0.175) / 5)
    # gspo's gain is .25, so the mean stake is (.25 + .16) / 2 and the margin .02 of it.
    assert statement("grounds", found).endswith(
        "Drop from best, relative to the gain: grpo 112 %, gspo 0 % (margin ±10 %); in points of"
        " score: 0.180, 0.000. Regime: the clipped share of the gradient is not measured."
    )


def test_arms_that_stand_beside_one_that_falls_are_as_stable(tmp_path: Path) -> None:
    """grpo shows that runs can fall here; grpo-replay and gspo do not, and lose alike."""
    study = (
        FOUR_ARMS
        + '[verdict]\nquestion = "stability"\nbaseline = "grpo-replay"\nmargin = 0.2\nlast = 1\n'
    )
    database = make_lab(tmp_path, study, seeds=5, change=collapsing("grpo"))
    assert {arm: one.word for arm, one in stood(database).items()} == {
        "grpo": "less stable",
        "gspo": "equally stable",
        "gspo-replay": "equally stable",
    }
    found = answered(database)
    assert_fields(found, word="arm by arm", colour="green")
    told = statement("answer", found)
    assert told.startswith(
        "gspo and grpo-replay are equally stable on this one starting model: the drop of gspo from "
    )
    assert told.endswith(
        "Other arms against grpo-replay: grpo less stable; gspo-replay equally stable."
    )


def test_claims_answer_by_their_words(tmp_path: Path) -> None:
    declared = '[[claim]]\nname = "C04-clip-gap"\n[[claim]]\nname = "C12-grpo-needs-replay"\n'
    asked = f'[verdict]\nquestion = ["C04-clip-gap"]\n{declared}'
    found = answered(make_lab(tmp_path, TWO_ARMS + asked, seeds=3))
    said = statement("answer", found)
    assert said.startswith("C04-clip-gap is ")
    assert "C12" not in said
    replay = asked.replace('["C04-clip-gap"]', '["C12-grpo-needs-replay"]')
    found = answered(make_lab(tmp_path / "replay", FOUR_ARMS + replay, seeds=3))
    assert found.colour == "grey"
    assert found.word in ("no unstable runs", "not testable here")


def test_fisher_s_exact_p_by_hand() -> None:
    # 0 of 3 against 3 of 3: 2 of the 20 tables with these totals are as unlikely.
    assert fisher_p((0, 3), (3, 3)) == pytest.approx(2 / 20)
    # 1 of 4 against 3 of 4: tables of 0..4 have 1, 16, 36, 16, 1 of 70 ways; all but the middle one
    # are no likelier.
    assert fisher_p((1, 4), (3, 4)) == pytest.approx(34 / 70)
    assert fisher_p((0, 5), (5, 5)) == pytest.approx(2 / 252)
    assert fisher_p((0, 0), (2, 5)) == 1.0


def test_another_baseline_is_judged_on_the_seeds_that_decided(tmp_path: Path) -> None:
    """Against grpo three seeds resolve both arms.

    gspo and third differ by chance alone. No run is missing.
    """
    toml = (
        TWO_ARMS + '[arm.third]\nobjective = "gspo"\nclip_low = 1e-3\n[verdict]\nlooks = [3, 5]\n'
    )
    luck = (0.0, 0.05, -0.05, 0.05, -0.05)
    ends = {"grpo": 0.2, "gspo": 0.7, "third": 0.7}
    change = right(
        lambda run, step: ends[run.arm] + luck[run.seed] * (run.arm == "third") if step else 0.2,
        by_seed,
    )
    with source(make_lab(tmp_path, toml, seeds=5, change=change)) as found:
        assert decision(found).seeds == (0, 1, 2)
        other = with_baseline(found, "gspo")
        assert decision(other).seeds == (0, 1, 2)
        assert not any(decision(other).missing.values())


def test_runs_of_other_seeds_keep_no_answer_back(tmp_path: Path) -> None:
    """Three declared seeds are finished and resolve nothing.

    A fourth seed that was added is under way.
    """
    database = make_lab(
        tmp_path, seeds=4, gain=0.0, end=lambda run: None if run.seed == 3 else "finished"
    )
    with source(database) as found:
        found.__dict__["declaration"] = replace(found.declaration, seeds=(0, 1, 2, 3), added=(3,))
        said = answer(found)
    assert said.word == "inconclusive"
    assert "runs are finished" not in statement("grounds", said)


def test_stability_is_of_the_declared_seeds(tmp_path: Path) -> None:
    """Every run of GSPO collapses on three added seeds, and none on the five declared ones."""
    falls = collapsing("gspo")
    database = make_lab(
        tmp_path,
        STABILITY,
        seeds=8,
        change=lambda run, one: (falls if run.seed > 4 else collapsing())(run, one),
    )
    every = answered(database)
    added_later(database.parent, "toy", 5, 6, 7)
    declared = answered(database)
    assert "Unstable, of 8: grpo 0, gspo 3." in statement("grounds", every)
    assert declared.word == "no unstable runs"
    assert statement("grounds", declared).startswith(
        "By scores alone, none of 10 runs was unstable"
    )


SWEPT = TWO_ARMS.replace(
    "[[bench]]", "[sweep]\nupdate.learning_rate = [1e-4, 3e-4, 1e-3, 3e-3]\n[[bench]]"
)


def dying(**stands: float) -> Change:
    """An arm's runs die from the dose on that it does not stand."""

    def change(run: Run, record: Record) -> Record:
        arm, _, dose = run.arm.partition("@")
        if isinstance(record, UpdateRecord) and record.step >= 6 and float(dose) > stands[arm]:
            return replace(record, nonfinite=1)
        return record

    return change


@pytest.mark.parametrize(
    ("grpo", "gspo", "word"),
    [(2e-4, 2e-3, "more stable"), (2e-3, 2e-4, "less stable"), (1.0, 1.0, "no unstable runs")],
)
def test_a_sweep_is_answered_by_what_its_arms_stand(
    tmp_path: Path, grpo: float, gspo: float, word: str
) -> None:
    """Where none dies the edge was not reached."""
    said = answered(
        make_lab(tmp_path, SWEPT, seeds=4, steps=20, every=20, change=dying(grpo=grpo, gspo=gspo))
    )
    assert said.word == word
    assert statement("grounds", said).endswith("4 values of update.learning_rate were swept.")


def test_a_sweep_of_which_one_arm_is_told_apart_is_resolved_in_part(tmp_path: Path) -> None:
    """grpo and its twin are stable up to 2e-4, gspo up to 2e-3.

    Doses 1e-4 and 1e-3 lie below, 3e-4 and 3e-3 above.
    """
    three = SWEPT + '[arm.twin]\nobjective = "grpo"\nkl_coef = 0.1\n'
    change = dying(grpo=2e-4, twin=2e-4, gspo=2e-3)
    said = answered(make_lab(tmp_path, three, seeds=4, steps=20, every=20, change=change))
    assert_fields(said, word="resolved in part", colour="blue")
    assert "): inconclusive" in statement("answer", said)


def test_one_arm_alone_is_no_comparison(tmp_path: Path) -> None:
    said = answered(make_lab(tmp_path, TWO_ARMS[: TWO_ARMS.index("[arm.gspo]")]))
    assert_fields(said, word="no verdict", command="gspo-lab plan studies/toy.toml")


BASELINE = '[verdict]\nbaseline = "grpo"\n'


@pytest.mark.parametrize(
    ("toml", "arms"),
    [
        (TWO_ARMS + BASELINE, ["gspo"]),
        (TWO_ARMS + BASELINE + 'question = "stability"\n', ["gspo"]),
        (FOUR_ARMS + BASELINE, ["gspo", "gspo-replay"]),
        (FOUR_ARMS + BASELINE + 'order = ["grpo-replay", "gspo", "gspo-replay"]\n', ["gspo"]),
    ],
)
def test_without_the_baseline_s_runs_nothing_is_compared(
    tmp_path: Path, toml: str, arms: list[str]
) -> None:
    """`run --arms` may leave the baseline out: the report says so, and proposes all arms."""
    database = make_lab(tmp_path, toml, arms=arms)
    said = answered(database)
    assert_fields(said, word="no verdict", command="gspo-lab run studies/toy.toml")
    shown = rendered(database)
    assert "grpo, the declared baseline, is not among the arms of these runs" in shown.markdown
    assert "the declared baseline, is not among the arms" in shown.html


def slow_learner(run: Run, step: int) -> float:
    """grpo rises to .8 and falls to .35, on its last seed to .6.

    gspo rises to .5 and ends at .45, a little below.
    """
    if not step:
        return 0.2
    high, low = (0.5, 0.45) if run.arm == "gspo" else (0.8, 0.6 if run.seed == 4 else 0.35)
    return low if step > 6 else high


def test_a_slow_learner_is_not_more_stable_for_having_little_to_lose(tmp_path: Path) -> None:
    """It drops .05 where grpo drops .2 and .45.

    It ends above or far below by seed, so it may be worse by the margin.
    """
    worse = make_lab(
        tmp_path, STABILITY + "last = 1\n", seeds=5, change=right(slow_learner, by_seed)
    )
    own = stood(worse)["gspo"]
    assert own.drop.better == "gspo"
    assert_fields(
        own,
        word="inconclusive",
        because=(
            "gspo drops less from its best, but its final score may be worse by more than the"
            " margin"
        ),
    )


def test_three_seeds_cannot_tell_all_from_none_by_counts(tmp_path: Path) -> None:
    own = stood(make_lab(tmp_path, STABILITY, seeds=3, change=collapsing("grpo")))["gspo"]
    assert own.p == pytest.approx(0.1)
    assert own.drop.better == "gspo", "how far they fell can"


def test_every_arm_against_the_baseline_stands_in_one_sentence(tmp_path: Path) -> None:
    """Of four arms: which is better by how much, and what is open, in one line."""
    said = statement("answer", answered(make_lab(tmp_path, FOUR_ARMS, seeds=5)))
    assert said.startswith(("Against grpo", "Whether "))
    assert all(arm in said for arm in ("grpo-replay", "gspo", "gspo-replay"))
