"""One label, one number: places that once disagreed read one value.

In the folder below every choice that can change a number does: the learning rate warms up over two
steps, in which everything clips; updates have unequal token counts; seed 3 was added after the
first step; gspo-replay's seed 2 was stopped; grpo's seed 1 died.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from calling import lab_error
from laboratory import added_later, source
from synthetic_lab import FOUR_ARMS, make_lab
from typer.testing import CliRunner

from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.paired_comparisons import compared as compared_of
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.readings import (
    FINISHED,
    RECORDED,
    Reading,
    Source,
    Steps,
    Weight,
    Window,
    by_step,
    decided,
    deciding,
    pooled,
    read,
    runs,
    summarise,
)
from gspo_lab.analysis.readings.answers import answered, evaluated_benchmarks, noise
from gspo_lab.analysis.readings.reading import CLIP, CLIP_EVERYWHERE, DEVICE_SECONDS
from gspo_lab.cli import app
from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.exchange.exporters import read_run_rows
from gspo_lab.recording.records import Record, StepRecord, UpdateRecord
from gspo_lab.report import render
from gspo_lab.report.chart import Chart
from gspo_lab.report.lab import Study
from gspo_lab.report.page import section_html
from gspo_lab.report.templating import format_number, percent
from gspo_lab.report.views.answer import answer_view
from gspo_lab.report.views.comparison import study_comparison
from gspo_lab.report.views.scores import scores_view
from gspo_lab.report.views.updates import COLUMNS, clipping_view, experts_view
from gspo_lab.report.views.view import View, figures_of
from gspo_lab.study import Run

ALL = Window(Steps.ALL, CLIP.window.minibatch)
STEPS = 20
STOPPED = ("gspo-replay", 2)


def uneven(run: Run, record: Record) -> Record:
    """Some updates have more tokens and more clipping than others.

    Those of the warm-up have most of all.
    """
    if isinstance(record, StepRecord):
        return replace(record, device_seconds_total=(run.seed + 1.0) * (record.step + 1))
    if not isinstance(record, UpdateRecord):
        return record
    clipped = (
        0.9
        if record.step < 2
        else (record.clip_fraction_tokens or 0.0) * (0.5 + record.step / STEPS)
    )
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
def found(folder: Path) -> Iterator[Source]:
    with source(folder / "runs" / "lab.db") as studied:
        yield studied


def chart(section: View | None, name: str) -> Chart:
    return figures_of(section)[name]


def test_the_folder_tells_every_choice_apart(found: Source) -> None:
    """Else the tests below would pass whatever is read."""
    sets = [RECORDED, FINISHED, deciding(found.declaration)]
    assert len({tuple((run.arm, run.seed) for run in runs(found, seeds)) for seeds in sets}) == 3
    for arm in ("grpo", "gspo"):
        windows = [
            CLIP,
            CLIP_EVERYWHERE,
            Reading(CLIP.metric, Window(Steps.ALL)),
            replace(CLIP, weight=Weight.ROWS),
        ]
        assert (
            len(
                {
                    summarise(found, reading, arm, seeds).mean
                    for reading in windows
                    for seeds in sets[::2]
                }
            )
            == 8
        )


def test_table_and_figure_of_clipping_on_later_minibatches_agree(found: Source) -> None:
    """Table and figure "mini-batches ≥ 1" agree on the warm-up.

    Once the table left it out and the figure had it in.
    """
    section = clipping_view(found)
    expert = experts_view(found)
    assert (
        ClaimData(found).value(CLIP_EVERYWHERE, "gspo", 0)
        == read(found, CLIP_EVERYWHERE)["toy/gspo/s0"]
    )
    bars = next(one for one in chart(expert, "m-expert-minibatch").means if one.label == "grpo")
    assert bars.y[1] < 0.1, "the warm-up's 0.8 is in no bar"
    for series in chart(expert, "m-replay-clip").means:
        replay = "-replay" if series.label != "without replay" else ""
        for arm, height in zip(series.x, series.y, strict=True):
            assert height == section.arms[f"{arm}{replay}"]["clip_fraction_tokens_later"]


def test_the_answers_table_the_terminal_and_the_scores_are_of_one_set_of_seeds(
    found: Source,
) -> None:
    """They were of five: seed 3 was added, seed 2 of gspo-replay has not finished."""
    seeds = decision(found).runs
    assert seeds.label() == "finished runs of seeds 0 to 2"
    section = scores_view(found)
    both = study_comparison([found])
    shown = answer_view(found).arms
    for arm in found.arms:
        counted = [run for run in outcomes(found, "addition") if run.arm == arm and seeds.has(run)]
        assert [run.seed for run in counted] == ([0, 1] if arm == STOPPED[0] else [0, 1, 2])
        score = shown[arm].final
        assert score == sum(run.final or 0.0 for run in counted) / len(counted)
        assert score == section.benches["addition"].arms[arm].final == both.scores[arm]["toy"]
        assert shown[arm].clipped == summarise(found, CLIP, arm, seeds).mean


def test_the_answers_table_names_its_seeds_and_shows_their_numbers(found: Source) -> None:
    table = section_html(answer_view(found)).replace("\u00a0", " ")
    assert "Numbers of an arm: finished runs of seeds 0 to 2." in table
    seeds = decision(found).runs
    clipped = summarise(found, CLIP, "gspo", seeds).mean
    assert f">{percent(clipped, 2)}, ".replace("\u00a0", " ") in table
    assert summarise(found, DEVICE_SECONDS, "gspo", seeds).mean == pytest.approx(2 * STEPS), (
        "seeds 0 to 2: 1, 2, 3"
    )
    assert f">{format_number(2.0 * STEPS)} s," in table


def test_python_gives_the_reports_numbers_under_their_keys(found: Source) -> None:
    study = Study(found)
    frame = study.reading("clip_fraction_tokens", minibatch="later", seeds="decided")
    section = clipping_view(found)
    assert frame.attrs["reading"] == section.readings["clip_fraction_tokens_later"] == CLIP.key
    assert frame.attrs["seeds"] == decision(found).runs.label()
    values = read(found, CLIP)
    for row in frame.to_dict("records"):
        assert row["value"] == values[f"toy/{row['arm']}/s{row['seed']}"].value
    with lab_error(r"steps='setled' \(did you mean 'settled'\?\); it is one of all, settled"):
        study.reading("clip_fraction_tokens", steps="setled")


def test_a_score_has_one_interval_wherever_it_is_compared(found: Source) -> None:
    """All intervals count the answers' variance, as the verdict does.

    Once "other numbers" and "interval, these problems" did not.
    """
    for compared in compared_of(found):
        if compared.scalar.bench is None:
            continue
        asked = next(
            one for one in evaluated_benchmarks(found) if one.bench == compared.scalar.bench
        )
        blocks = answered(found, asked, ("grpo", compared.arm), decision(found).seeds)
        part = noise(
            blocks["grpo"], blocks[compared.arm], compared.arm, found.declaration.verdict.alpha
        )
        assert part.over_seeds.items_sd == pytest.approx(compared.paired.items_sd)
        if found.declaration.verdict.last == 1:
            assert (part.over_seeds.low, part.over_seeds.high) == pytest.approx(
                (compared.paired.low, compared.paired.high)
            )


COUNTS = {
    *(
        "format",
        "pairs",
        "samples",
        "problems",
        "carried",
        "errors",
        "collapse",
        "window",
        "peak",
        "regression",
        "scores",
        "steps",
        "evaluations",
        "nonfinite",
        "evaluation",
        "seed",
        "finished",
        "answers",
        "unstable",
        "judged",
    ),
    *("both", "only_first", "only_second", "neither"),
}
"""Keys of numbers that count things, and need no reading."""
SETTINGS = {"runs", "settings", "provenance", "certificate", "transcripts", "limits"}
"""Keys that hold states, settings, facts, checks and answers.

None of their values is computed from a run's numbers.
"""


def unread(part: Any, path: Strings = (), named: frozenset[str] = frozenset()) -> Iterator[str]:
    """Where in the report's JSON a number stands without a reading: its own, or that of its key."""
    if isinstance(part, dict):
        if "reading" in part or {"learning_rate"} & part.keys():
            return
        named |= part.get("readings", {}).keys()
        for key, value in part.items():
            if key not in named | SETTINGS and (isinstance(value, dict) or key not in COUNTS):
                yield from unread(value, (*path, key), named)
    elif isinstance(part, list):
        for value in part:
            yield from unread(value, path, named)
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield ".".join(path)


def test_every_number_in_the_json_has_its_reading(found: Source) -> None:
    data = json.loads(render([found]).json)
    assert list(unread(data)) == []
    figures = [
        figure
        for section in data["studies"]["toy"].values()
        for figure in section.get("figures", {}).values()
    ]
    assert len(figures) > 15
    assert all(figure["reading"] for figure in figures)
    assert (
        CLIP_EVERYWHERE.key
        == data["studies"]["toy"]["clipping"]["figures"]["m-clip-minibatch"]["reading"]
    )


@pytest.mark.parametrize(
    "mutation",
    [
        {"weight": Weight.ROWS},
        {"window": CLIP_EVERYWHERE.window},
        {"window": ALL},
        "a seed dropped",
    ],
    ids=["weight", "mini-batch 0", "warm-up", "seed"],
)
def test_a_changed_rule_is_seen_on_the_page_the_terminal_and_in_the_json(
    found: Source, mutation: JsonObject | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every surface shows another number after each change of what is pooled.

    Weight swapped, mini-batch 0 let in, warm-up let in, a seed left out.
    """
    before = surfaces(found)
    if isinstance(mutation, str):
        fewer = decided(decision(found).seeds[:-1])
        monkeypatch.setattr(
            "gspo_lab.analysis.findings.decision.Decision.runs", property(lambda decision: fewer)
        )
        monkeypatch.setattr(import_module("gspo_lab.report.views.updates"), "RECORDED", fewer)
    else:
        changed = replace(CLIP, **mutation)
        monkeypatch.setattr("gspo_lab.report.views.arms.CLIP", changed)
        monkeypatch.setitem(COLUMNS, "clip_fraction_tokens_later", ("mini-batches ≥ 1", changed))
    after = surfaces(found)
    assert [a != b for a, b in zip(before, after, strict=True)] == [True] * len(before)


def surfaces(found: Source) -> list[Any]:
    """GSPO's row in the answer's table, and its clipped share elsewhere.

    That is in the terminal, and in the JSON with its reading.
    """
    table = section_html(answer_view(found)).partition('data-arm="gspo"></i>')[2]
    row = table.partition("</tr>")[0]
    terminal = [str(answer_view(found).arms["gspo"].clipped)]
    section = clipping_view(found)
    name = "clip_fraction_tokens_later"
    return [
        row,
        *terminal,
        section.arms["gspo"][name],
        (section.readings[name], section.seeds),
    ]


def in_python(found: Source, folder: Path) -> tuple[str, JsonObject]:
    frame = Study(found).reading("clip_fraction_tokens", minibatch="later", seeds="recorded")
    runs_of = zip(frame["arm"], frame["seed"], frame["value"], strict=True)
    return frame.attrs["reading"], {f"toy/{arm}/s{seed}": value for arm, seed, value in runs_of}


def in_show(found: Source, folder: Path) -> tuple[str, JsonObject]:
    shown = CliRunner().invoke(app, ["show", "toy", "--json", "--runs", str(folder / "runs")])
    rows = json.loads(shown.output)
    return rows[0]["readings"]["clipped"], {row["run_id"]: row["clipped"] for row in rows}


def in_export(found: Source, folder: Path) -> tuple[str, JsonObject]:
    """Of every run the mean over its exported steps, whose weights only the record has."""
    key = Reading("clip_fraction_tokens", Window(Steps.ALL)).key
    values = {}
    for run in read_run_rows(found.evidence, "toy"):
        weights = by_step(found, Reading.parse(key))[run.id].weights
        values[run.id] = pooled(run.columns["clip_fraction_tokens"][: len(weights)], weights).value
    return key, values


@pytest.mark.parametrize("surface", [in_python, in_show, in_export])
def test_a_number_is_the_reading_whose_key_it_carries_and_no_other(
    found: Source, folder: Path, surface: Callable[[Source, Path], tuple[str, JsonObject]]
) -> None:
    """Another weight, window or set of seeds would give other numbers.

    So the folder distinguishes every choice.
    """
    key, values = surface(found, folder)
    known = read(found, Reading.parse(key))
    assert values == pytest.approx({run: value.value for run, value in known.items()}, rel=1e-12)
    assert {run.id for run in runs(found, RECORDED)} == values.keys()
    assert {run.id for run in runs(found, deciding(found.declaration))} < values.keys()


def test_exported_counts_are_sums_and_flags_the_largest_of_a_step(found: Source) -> None:
    keys = {
        "response_tokens": "response_tokens.sum.all.all.own",
        "nonfinite": "nonfinite.largest.all.all.own",
    }
    run = next(one for one in read_run_rows(found.evidence, "toy") if one.id == "toy/grpo/s1")
    for name in ("response_tokens", "nonfinite"):
        assert (
            run.columns[name].tolist()
            == by_step(found, Reading.parse(keys[name]))[run.id].values.tolist()
        )
