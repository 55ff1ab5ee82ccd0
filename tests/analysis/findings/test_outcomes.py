from dataclasses import replace
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from laboratory import added_later, rendered, source
from synthetic_lab import TWO_ARMS, by_seed, make_lab, right

from gspo_lab.analysis.findings.decision import Decision, decision
from gspo_lab.analysis.findings.matched import starting_limits, starting_models, study_certificate
from gspo_lab.analysis.findings.paired_comparisons import scalars
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.readings import Reading, Reduce, Source, Steps, Window, read
from gspo_lab.analysis.readings.answers import answers_variance, benches, counted_wrong
from gspo_lab.analysis.readings.answers import tallies as tallies_of
from gspo_lab.analysis.readings.curves import reward_curves
from gspo_lab.analysis.readings.runs import finished_seeds
from gspo_lab.analysis.stats.paired import items_variance
from gspo_lab.common.errors import LabError
from gspo_lab.common.reason import sentences
from gspo_lab.common.text import last_evaluations
from gspo_lab.recording.records import AnswerRecord, Record, StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence, rebuild
from gspo_lab.report.templating import statements
from gspo_lab.report.views.answer import answer_view
from gspo_lab.report.views.limits import limitations
from gspo_lab.study import Run, Settings, Study, load_study
from gspo_lab.study.verdict_tables import VerdictTable
from gspo_lab.training.models.check import EMBEDDED

RIGHT = {0: 20, 4: 2, 8: 4, 12: 6}
"""Right answers of 20 by step: the start is the best of all and must not count."""


by_step = right(lambda run, step: RIGHT[step] / 20)


def first_outcome(database: Path) -> RunOutcome:
    with source(database) as studied:
        return outcomes(studied, "addition")[0]


def test_the_final_score_is_the_mean_of_the_last_evaluations_without_the_start(
    tmp_path: Path,
) -> None:
    grpo = first_outcome(make_lab(tmp_path, seeds=1, change=by_step))
    assert_fields(
        grpo,
        start=1.0,
        evaluations=3,
        final=pytest.approx((0.1 + 0.2 + 0.3) / 3),
        gain=pytest.approx(0.2 - 1.0),
    )


def test_without_a_declared_number_the_last_fifth_of_the_training_decides() -> None:
    steps = range(0, 61, 20)
    assert VerdictTable().deciding(steps) == [60]
    assert VerdictTable(last=3).deciding(steps) == [20, 40, 60]
    assert last_evaluations(steps[3:]) == "the last evaluation"
    named = "the mean of the last 3 evaluations, steps 20 to 60"
    assert last_evaluations(steps[1:]) == named


@pytest.mark.parametrize(
    ("broken", "last", "carried", "errors", "start", "best"),
    [(12, 0.2, 1, 20, 1.0, 1.0), (0, 0.3, 0, 0, None, 0.2)],
    ids=["the last one repeats the one before and is flagged", "a start takes no final score"],
)
def test_an_evaluation_that_could_not_be_graded(
    tmp_path: Path,
    broken: int,
    last: float,
    carried: int,
    errors: int,
    start: float | None,
    best: float,
) -> None:
    def change(run: Run, record: Record) -> Record | None:
        record = by_step(run, record)
        if isinstance(record, AnswerRecord) and record.step == broken:
            return replace(record, correct=None, error="the grader broke")
        return record

    grpo = first_outcome(make_lab(tmp_path, seeds=1, change=change))
    assert_fields(
        grpo,
        start=start,
        carried=carried,
        errors=errors,
        final=pytest.approx((0.1 + 0.2 + last) / 3),
        best=pytest.approx(best),
    )
    assert (grpo.gain is None) == (start is None)


def test_an_unfinished_run_has_no_final_score(tmp_path: Path) -> None:
    database = make_lab(
        tmp_path, seeds=1, change=by_step, until=lambda run: 9, end=lambda run: "stopped"
    )
    grpo = first_outcome(database)
    assert_fields(grpo, final=None, latest=pytest.approx(0.2))


@pytest.mark.parametrize("rewarded", [True, False])
def test_a_dead_model_has_collapsed_and_enters_no_verdict_unflagged(
    tmp_path: Path, rewarded: bool
) -> None:
    def change(run: Run, record: Record) -> Record:
        dead = run.seed == 1 and run.arm == "gspo"
        if dead and isinstance(record, UpdateRecord) and record.step >= 9:
            return replace(record, nonfinite=1)
        if dead and isinstance(record, StepRecord):
            return replace(record, reward_mean=1.0 if rewarded else None)
        return record

    with source(make_lab(tmp_path, change=change)) as found:
        decided = decision(found)
        shown = answer_view(found).details
    (dead,) = [one for one in decided.ended if one.nonfinite]
    assert dead.nonfinite == 3 * 4  # steps 9, 10, 11
    assert (dead.state, dead.stability.collapse, dead.stability.cause) == (
        "finished",
        9,
        "non-finite",
    )
    assert statements("flags", decided) == [
        "Collapsed and still counted: gspo seed 1.",
        "Updates that were not finite, skipped or of a dead model: gspo seed 1 (12).",
    ]
    assert set(statements("flags", decided)) < set(shown)


BY_REWARD = TWO_ARMS.replace("[arm.grpo]", '[verdict]\nprimary = "addition:reward"\n[arm.grpo]', 1)


def partial(run: Run, record: Record) -> Record:
    """After the start every answer earns a half (grpo) or three quarters (gspo).

    At the start it earns a quarter. No answer is correct.
    """
    if not isinstance(record, AnswerRecord):
        return record
    reward = 0.25 if record.step == 0 else {"grpo": 0.5, "gspo": 0.75}[run.arm]
    return replace(record, correct=0, reward=reward)


def test_the_mean_reward_decides_where_it_is_primary(tmp_path: Path) -> None:
    with source(make_lab(tmp_path, BY_REWARD, change=partial)) as found:
        assert found.declaration.primary == "addition:reward"
        assert benches(found) == [
            "addition:reward",
            "addition",
        ], "the primary one first; the share stays"
        finals = {
            (one.arm, one.seed): (one.start, one.final)
            for one in outcomes(found, "addition:reward")
        }
        assert finals == {
            (arm, seed): (0.25, end)
            for arm, end in {"grpo": 0.5, "gspo": 0.75}.items()
            for seed in range(3)
        }
        assert {one.final for one in outcomes(found, "addition")} == {0.0}
        verdict = decision(found).verdicts["gspo"]
        assert verdict.paired.estimate == pytest.approx(0.25)
        tallies = tallies_of(found, "addition:reward")
        assert set(tallies["correct"] / tallies["answers"]) == {0.25, 0.5, 0.75}


PASS = TWO_ARMS.replace(
    "[arm.grpo]", '[verdict]\nprimary = "addition:pass@2"\n[arm.grpo]', 1
).replace("problems = 20", "problems = 20\nsamples = 3")


def one_of_three(run: Run, record: Record) -> Record:
    """One of three answers to each problem is right; after the start gspo has two."""
    if not isinstance(record, AnswerRecord):
        return record
    right = 2 if run.arm == "gspo" and record.step > 0 else 1
    return replace(record, correct=int(record.sample < right))


def test_pass_at_k_decides_where_it_is_primary(tmp_path: Path) -> None:
    """pass@2 of 3 answers: with 1 right 1 - C(2,2) / C(3,2) = 2/3, with 2 right 1."""
    with source(make_lab(tmp_path, PASS, change=one_of_three)) as found:
        assert benches(found) == [
            "addition:pass@2",
            "addition",
        ], "the primary one first; the share stays"
        finals = {one.arm: (one.start, one.final) for one in outcomes(found, "addition:pass@2")}
        assert finals == {
            "grpo": pytest.approx((2 / 3, 2 / 3)),
            "gspo": pytest.approx((2 / 3, 1.0)),
        }
        assert decision(found).verdicts["gspo"].paired.estimate == pytest.approx(1 / 3)
        assert answers_variance(found, {"grpo": -1, "gspo": 1}, [0, 1, 2]) == pytest.approx(0.0)
        by_step = counted_wrong(found, "addition:pass@2", "toy/gspo/s0")
        assert by_step == pytest.approx({0: 2 / 3, 4: 1.0, 8: 1.0, 12: 1.0})


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        (
            BY_REWARD.replace("addition:reward", "adition:reward"),
            "verdict.primary: no benchmark 'adition:reward'",
        ),
        (
            PASS.replace("pass@2", "pass@4"),
            (
                "'addition:pass@4' needs 4 answers to a problem at every evaluation, and"
                " bench.addition.samples = 3"
            ),
        ),
    ],
)
def test_a_score_that_is_not_asked_cannot_decide(tmp_path: Path, toml: str, told: str) -> None:
    with pytest.raises(LabError) as refused:
        study(tmp_path, toml)
    assert told in str(refused.value.details)


EIGHT = 8


EQUAL = right(lambda run, step: EIGHT / 20, by_seed)
"""Every run gets 8 of 20 problems right: grpo the first ones, gspo those from its seed on."""


def decided(database: Path) -> Decision:
    with source(database) as studied:
        return decision(studied)


def test_ties_are_judged_by_what_the_answers_vary(tmp_path: Path) -> None:
    verdict = decided(make_lab(tmp_path, seeds=5, change=EQUAL)).verdicts["gspo"]
    # Problem by problem, seed s: s problems lost below, s won above the first eight.
    d_SI = [
        [float(seed <= i < seed + EIGHT) - float(i < EIGHT) for i in range(20)] for seed in range(5)
    ]
    assert_fields(
        verdict.paired,
        differences=(0.0,) * 5,
        sd=0.0,
        items_sd=pytest.approx((items_variance(d_SI) or 0.0) ** 0.5),
        # t(4) = 2.7764 times the answers' sd over sqrt 5, where version 0.1 had no interval.
        high=pytest.approx(2.7764 * (verdict.paired.items_sd or 0.0) / 5**0.5, rel=1e-4),
    )
    assert verdict.word == "inconclusive"


def test_added_seeds_do_not_decide(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=5)
    before = decided(database)
    added_later(database.parent, "toy", 3, 4)
    after = decided(database)
    assert (before.seeds, after.seeds) == ((0, 1, 2, 3, 4), (0, 1, 2))
    assert (
        after.verdicts["gspo"].paired.differences == before.verdicts["gspo"].paired.differences[:3]
    )
    assert sentences(after.described)[0].startswith(
        "Not counted: 2 pairs of other seeds (3, 4), gspo − grpo "
    )


STEPS = 5


def gap(run: Run, record: Record) -> Record:
    """Rewards 1, 2, none, 4, none by step: step 2 holds 2, step 4 holds 4."""
    if not isinstance(record, StepRecord):
        return record
    return replace(record, reward_mean=[1.0, 2.0, None, 4.0, None][record.step])


def test_a_gap_in_the_reward_is_one_number_for_report_and_claims(tmp_path: Path) -> None:
    with source(make_lab(tmp_path, seeds=1, steps=STEPS, every=STEPS, change=gap)) as found:
        steps, reward = reward_curves(found)["grpo", 0]
        assert (steps.tolist(), reward.tolist()) == ([0, 1, 2, 3, 4], [1, 2, 2, 4, 4])
        area = next(one for one in scalars(found) if one.name.startswith("training reward, area"))
        assert area.values["grpo", 0] == pytest.approx((1.5 + 2 + 3 + 4) / 4)
        by_claims = read(found, Reading("reward_mean", Window(Steps.ALL), Reduce.AREA))[
            "toy/grpo/s0"
        ]
        assert by_claims.value == area.values["grpo", 0]


def test_what_is_asked_twice_is_found_once(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path)) as evidence:
        found = Source(evidence, "toy", "there")
        assert decision(found) is decision(found)
        assert outcomes(found, "addition") is outcomes(found, "addition")
        assert decision(found).matched is study_certificate(found)
        assert (found.label, Source(evidence, "toy").label) == ("there", "toy")
        assert finished_seeds(found, ["grpo", "gspo"]) == [0, 1, 2]
        with lab_error(r"no study 'tou'.*did you mean 'toy'"):
            _ = Source(evidence, "tou").declaration


def test_a_copied_study_goes_by_its_folder_s_name(tmp_path: Path) -> None:
    database = make_lab(tmp_path)
    (database.parent / "toy").rename(database.parent / "copy")
    rebuild(database.parent)
    with source(database, "copy") as found:
        assert found.declaration.name == "copy"
        assert study_certificate(found).lock.state == "equal"
        assert decision(found).verdicts


SHARED = "All seeds share one start of tiny-qwen3: the interval"


def study(folder: Path, toml: str, seeds: int = 3) -> Study:
    path = folder / "toy.toml"
    path.write_text(toml.format(steps=4, seeds=seeds, every=4))
    return load_study(path)


@pytest.mark.parametrize(
    ("was", "now", "seeds", "words", "limit"),
    [
        ("", "", 3, " on this one starting model", SHARED),
        ("", "", 1, "", None),
        ("steps = {steps}", "steps = {steps}\nwarm_start.per_seed = true", 3, "", None),
        (
            'model = "tiny-qwen3"',
            'model = "Qwen/Qwen3-0.6B"',
            3,
            " starting from Qwen/Qwen3-0.6B",
            (
                "Every seed starts from Qwen/Qwen3-0.6B: what is judged is this checkpoint, which"
                " is the question"
            ),
        ),
        (
            '[arm.gspo]\nobjective = "gspo"',
            '[arm.gspo]\nobjective = "gspo"\nmodel = "tiny-qwen3-moe"',
            3,
            " on these starting models",
            "All seeds share one start of tiny-qwen3 and tiny-qwen3-moe",
        ),
    ],
)
def test_a_verdict_says_of_which_starts_it_is(
    tmp_path: Path, was: str, now: str, seeds: int, words: str, limit: str | None
) -> None:
    declared = study(tmp_path, TWO_ARMS.replace(was, now) if was else TWO_ARMS, seeds)
    limited = starting_models(declared)
    assert (f" {limited.text}" if limited else "") == words
    assert [
        line for line in limitations(declared) if line in starting_limits(declared)
    ] == starting_limits(declared)
    assert [line[: len(limit or "")] for line in starting_limits(declared)] == (
        [limit] if limit else []
    )


def test_a_clip_fraction_that_only_the_warm_up_hides_says_so(tmp_path: Path) -> None:
    """Update n has n / w of the rate.

    Of 12 steps with two updates, w = 25 leaves none at the full rate, w = 23 two.
    """
    for name, warm_up, notes in (("all", 25, 2), ("most", 23, 0)):
        toml = TWO_ARMS + f"[update]\nminibatches = 2\nwarmup_updates = {warm_up}\n"
        with Evidence.open(make_lab(tmp_path, toml, name=name)) as evidence:
            beside = statements("flags", decision(Source(evidence, name)))
            lines = [line for line in beside if "clip fraction" in line]
        assert len(lines) == notes, "one for each arm"
        for arm, line in zip(("grpo", "gspo"), lines, strict=False):
            assert (
                line == f"The clip fraction is not measured: {arm} has no update after the learning"
                " rate's warm-up: 12 of 12 steps warm up."
            )


def test_without_it_the_share_of_right_answers_decides(tmp_path: Path) -> None:
    with source(make_lab(tmp_path, change=partial)) as found:
        assert benches(found) == ["addition"]
        assert {one.final for one in outcomes(found, "addition")} == {0.0}


@pytest.mark.parametrize(
    ("gain", "said"), [(0.35, "gspo is better than grpo"), (0.0, "Whether gspo differs from grpo")]
)
def test_it_stands_in_the_sentence_of_terminal_and_card(
    tmp_path: Path, gain: float, said: str
) -> None:
    database = make_lab(tmp_path, gain=gain)
    with source(database) as studied:
        (sentence,) = statements("decision", decision(studied))
    assert sentence.startswith(said)
    assert " on this one starting model" in sentence
    report = rendered(database, "toy")
    assert f'<p class="headline">{sentence.rstrip(".")}: ' in report.html
    assert SHARED in report.html


def test_every_embedded_model_is_known_as_one(tmp_path: Path) -> None:
    settings: Settings = study(tmp_path, TWO_ARMS).arms["grpo"].settings
    assert all(settings.model_copy(update={"model": name}).embedded for name in EMBEDDED)
    assert not settings.model_copy(update={"model": "Qwen/Qwen3-0.6B"}).embedded
