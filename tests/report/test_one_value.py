"""One label, one number: places that once disagreed read one value.

In the folder below every choice that can change a number does: the learning rate warms up over two steps, in which
everything clips; updates have unequal token counts; seed 3 was added after the first step; gspo-replay's seed 2 was
stopped; grpo's seed 1 died.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from laboratory import added_later
from synthetic_lab import FOUR_ARMS, make_lab

from gspo_lab.claims.data import ClaimData
from gspo_lab.conduct.summary import arm_results
from gspo_lab.errors import LabError
from gspo_lab.findings import Findings
from gspo_lab.lab import Study
from gspo_lab.readings import FINISHED, RECORDED, Reading, Steps, Weight, Window, deciding, read, runs, summarise
from gspo_lab.readings.graded import noise
from gspo_lab.readings.named import CLIP, CLIP_EVERYWHERE, DEVICE_SECONDS, REWARD
from gspo_lab.records import Record, StepRecord, UpdateRecord
from gspo_lab.report.arms import arms_table
from gspo_lab.report.chart import Chart
from gspo_lab.report.markup import number, percent
from gspo_lab.report.section import Section
from gspo_lab.report.sections.clipping import clipping
from gspo_lab.report.sections.experts import experts
from gspo_lab.report.sections.scores import scores
from gspo_lab.report.together import together
from gspo_lab.store import Evidence
from gspo_lab.study import Run, load_study
from gspo_lab.study import Study as StudyFile

ALL = Window(Steps.ALL, CLIP.window.minibatch)
STEPS, STOPPED = 20, ("gspo-replay", 2)


def uneven(run: Run, record: Record) -> Record:
    """More tokens and more clipping in some updates than in others, and in the warm-up most of all."""
    if isinstance(record, StepRecord):
        return replace(record, device_seconds_total=(run.seed + 1.0) * (record.step + 1))
    if not isinstance(record, UpdateRecord):
        return record
    clipped = 0.9 if record.step < 2 else (record.clip_fraction_tokens or 0.0) * (0.5 + record.step / STEPS)
    change = 0.8 if record.step < 2 else record.expert_change
    dead = int((run.arm, run.seed) == ("grpo", 1) and record.step >= 12)
    tokens = 100 * (1 + (record.step + run.seed) % 5) * (1 + record.minibatch)
    return replace(
        record,
        clip_fraction_tokens=clipped,
        expert_change=change,
        response_tokens=tokens,
        active_tokens=tokens // 2,
        nonfinite=dead,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("one-value")
    make_lab(
        home,
        "record = {{detail_every = 2}}\n" + FOUR_ARMS,
        seeds=4,
        steps=STEPS,
        every=4,
        change=uneven,
        until=lambda run: 10 if (run.arm, run.seed) == STOPPED else STEPS,
        end=lambda run: "stopped" if (run.arm, run.seed) == STOPPED else "finished",
    )
    added_later(home / "runs", "toy", 3)
    return home


@pytest.fixture
def found(folder: Path) -> Iterator[Findings]:
    with Evidence.open(folder / "runs" / "lab.db") as evidence:
        yield Findings(evidence, "toy")


def chart(section: Section | None, name: str) -> Chart:
    assert section is not None
    drawn = [part for part in section.body if isinstance(part, Chart)]
    return next(one for one in drawn if one.id == name)


def test_the_folder_tells_every_choice_apart(found: Findings) -> None:
    """Else the tests below would pass whatever is read."""
    sets = [RECORDED, FINISHED, deciding(found.declaration)]
    assert len({tuple((run.arm, run.seed) for run in runs(found, seeds)) for seeds in sets}) == 3
    for arm in ("grpo", "gspo"):
        windows = [CLIP, CLIP_EVERYWHERE, Reading(CLIP.metric, Window(Steps.ALL)), replace(CLIP, weight=Weight.ROWS)]
        assert len({summarise(found, reading, arm, seeds).mean for reading in windows for seeds in sets[::2]}) == 8


def test_table_and_figure_of_clipping_on_later_minibatches_agree(found: Findings) -> None:
    """The table called "mini-batches ≥ 1" left the warm-up out, the figure of the same name had it in."""
    section = clipping(found)
    assert section is not None
    for series in chart(experts(found), "m-replay-clip").means:
        replay = "-replay" if series.label != "without replay" else ""
        for arm, height in zip(series.x, series.y, strict=True):
            assert height == section.data["arms"][f"{arm}{replay}"]["clip_fraction_tokens_later"]


def test_expert_change_by_minibatch_and_in_claims_has_one_window(found: Findings) -> None:
    bars = next(one for one in chart(experts(found), "m-expert-minibatch").means if one.label == "grpo")
    assert bars.y[1] is not None
    assert bars.y[1] < 0.1, "the warm-up's 0.8 is in no bar"


def test_the_answers_table_the_terminal_and_the_scores_are_of_one_set_of_seeds(found: Findings, folder: Path) -> None:
    """They were of five: seed 3 was added, seed 2 of gspo-replay has not finished."""
    seeds = found.decision.runs
    assert seeds.label() == "finished runs of seeds 0 to 2"
    section, both = scores(found), together([found])
    assert section is not None
    shown = {result.arm: result for result in arm_results(found, load_study(folder / "studies" / "toy.toml"))}
    for arm in found.arms:
        counted = [run for run in found.outcomes("addition") if run.arm == arm and seeds.has(run)]
        assert [run.seed for run in counted] == ([0, 1] if arm == STOPPED[0] else [0, 1, 2])
        score = shown[arm].score
        assert score == sum(run.final or 0.0 for run in counted) / len(counted)
        assert score == section.data["benches"]["addition"][arm]["final"] == both.data["scores"][arm]["toy"]
        assert shown[arm].clipped == summarise(found, CLIP, arm, seeds).mean
        assert shown[arm].reward == summarise(found, REWARD, arm, seeds).mean


def test_the_answers_table_names_its_seeds_and_shows_their_numbers(found: Findings) -> None:
    from gspo_lab.claims import answer

    table = str(arms_table(found, answer(found)))
    assert "Numbers of an arm: finished runs of seeds 0 to 2." in table.replace("\u00a0", " ")
    seeds = found.decision.runs
    assert f">{percent(summarise(found, CLIP, 'gspo', seeds).mean, 2)}<" in table
    assert summarise(found, DEVICE_SECONDS, "gspo", seeds).mean == pytest.approx(2 * STEPS), "seeds 0 to 2: 1, 2, 3"
    assert f">{number(2.0 * STEPS)} s," in table


def test_claims_clip_as_the_report_does(found: Findings) -> None:
    assert ClaimData(found).value(CLIP_EVERYWHERE, "gspo", 0) == read(found, CLIP_EVERYWHERE)["toy/gspo/s0"]


def test_python_gives_the_reports_numbers_under_their_keys(found: Findings) -> None:
    study = Study(found)
    frame = study.reading("clip_fraction_tokens", minibatch="later", seeds="decided")
    section = clipping(found)
    assert section is not None
    assert frame.attrs["reading"] == section.data["readings"]["clip_fraction_tokens_later"] == CLIP.key
    assert frame.attrs["seeds"] == found.decision.runs.label()
    values = read(found, CLIP)
    for row in frame.to_dict("records"):
        assert row["value"] == values[f"toy/{row['arm']}/s{row['seed']}"].value
    with pytest.raises(LabError, match=r"steps='setled' \(did you mean 'settled'\?\): it is one of all, settled"):
        study.reading("clip_fraction_tokens", steps="setled")


def test_a_score_has_one_interval_wherever_it_is_compared(found: Findings) -> None:
    """The verdict counted the answers' variance; "other numbers" and "interval, these problems" did not."""
    for compared in found.compared:
        if compared.scalar.bench is None:
            continue
        asked = next(one for one in found.asked if one.bench == compared.scalar.bench)
        blocks = found.answered(asked, ("grpo", compared.arm), found.decision.seeds)
        part = noise(blocks["grpo"], blocks[compared.arm], compared.arm, found.declaration.verdict.alpha)
        assert part is not None
        assert part.over_seeds.items_sd == pytest.approx(compared.paired.items_sd)
        if found.declaration.verdict.last == 1:
            assert (part.over_seeds.low, part.over_seeds.high) == pytest.approx(
                (compared.paired.low, compared.paired.high)
            )


@pytest.mark.parametrize("mutation", [{"weight": Weight.ROWS}, {"window": CLIP_EVERYWHERE.window}, {"window": ALL}])
def test_a_changed_rule_is_seen_on_the_page_the_terminal_and_in_python(
    found: Findings, folder: Path, mutation: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weight swapped, mini-batch 0 let in, warm-up let in: every surface shows another number."""
    study = load_study(folder / "studies" / "toy.toml")
    before = surfaces(found, study)
    changed = replace(CLIP, **mutation)
    for module in ("gspo_lab.conduct.summary", "gspo_lab.report.arms"):
        monkeypatch.setattr(f"{module}.CLIP", changed)
    after = surfaces(found, study)
    assert [a != b for a, b in zip(before, after, strict=True)] == [True] * len(before)


def surfaces(found: Findings, study: StudyFile) -> list[str]:
    """GSPO's clipped share in the answer's table and in the terminal."""
    from gspo_lab.claims import answer

    table = str(arms_table(found, answer(found))).partition("gspo</th>")[2]
    cell = table.partition('data-head="clipped">')[2].partition("<")[0]
    return [cell, *(str(result.clipped) for result in arm_results(found, study) if result.arm == "gspo")]
