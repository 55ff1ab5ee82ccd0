"""All arms' answers to the same problems, side by side, chosen by a rule that the page states."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.answers import EvaluatedBenchmark, evaluated_benchmarks
from gspo_lab.analysis.readings.runs import finished_runs, finished_seeds
from gspo_lab.common.text import visible
from gspo_lab.recording.store import answers as store
from gspo_lab.report.markup import NOT_MEASURED, Html, format_number, h, join, marked, slug
from gspo_lab.report.section import Section
from gspo_lab.report.series import value

PER_TAG = 8
"""Problems that each tag may bring in, in the order of their ids; the longest in the order of their
length.
"""
BUDGET = 400_000
"""Characters of answers and prompts on a page; problems that do not fit are left out, and counted.
"""
HEAD = 2_400
TAIL = 1_200
"""Characters of a longer text that are shown: its beginning and its end, where answers use to
stand.
"""
SHORT = 200
"""The same of what was extracted, of reasons and references."""

TAGS = {
    "flipped": "arms disagree",
    "wrong": "all wrong",
    "truncated": "truncated",
    "longest": "longest",
}


class TranscriptItem(NamedTuple):
    """One problem and what its answers share; `arms` gives 1, 0 or None (the grader failed) per
    arm.
    """

    problem: str
    tags: tuple[str, ...]
    arms: dict[str, int | None]


def transcripts(study: Source) -> Section | None:
    """Per benchmark the first answers of the first seed that all arms finished; None where no
    answer was recorded.
    """
    order = study.arms
    evaluations = evaluated_benchmarks(study)
    # Without a seed that all arms finished, those of the arms that have.
    seeds = finished_seeds(study, order) or sorted({seed for _, seed in finished_runs(study)})
    if not seeds or not evaluations:
        return None
    tags = {"": "all", **TAGS}
    buttons = (
        h("button", label, type="button", data_show=tag, aria_pressed="false")
        for tag, label in tags.items()
    )
    filters = h(
        "div",
        *buttons,
        h("output"),
        class_="filters",
        role="group",
        aria_label="Show problems",
        hidden=True,
    )
    rule = (
        f"The first answer of every arm to the same problem, from seed {seeds[0]} at the end of"
        f" training. Shown are, in the order of their ids, up to {PER_TAG} problems each on which"
        " arms disagree (half of them won by the first arm), that all get wrong, and with an"
        f" answer cut at the limit, and the {PER_TAG} with the longest answers; texts of more than"
        f" {HEAD + TAIL:,} characters lose their middle. All answers: gspo-lab export."
    )
    body: list[Html] = [h("p", rule), filters]
    data: dict[str, Any] = {}
    room = BUDGET
    taken = set[str]()
    for benchmark in evaluations:
        query = (study.evidence, study.study, benchmark.bench, benchmark.steps[-1], seeds[0])
        frame = store.first_answers(*query, benchmark.evaluation)
        items = chosen(frame, order)
        rows = store.transcripts(*query, [item.problem for item in items], benchmark.evaluation)
        shown: list[Html] = []
        for item in items:
            answers = [
                row
                for arm in order
                for row in rows
                if row["arm"] == arm and row["problem"] == item.problem
            ]
            size = sum(
                min(len(row[key] or ""), HEAD + TAIL)
                for row in answers
                for key in ("text", "prompt")
            )
            if size > room:
                break
            room -= size
            shown.append(_item(item, answers, _id(benchmark, item.problem, taken), order))
        of = f"{len(shown)} of {frame['problem'].nunique()} problems"
        title = f"{benchmark.title}: step {benchmark.steps[-1]}, seed {seeds[0]}; {of}"
        body.append(h("div", h("h3", title), *shown, class_="transcripts"))
        problems = {
            item.problem: {"tags": list(item.tags), **item.arms} for item in items[: len(shown)]
        }
        data[slug(benchmark.key)] = {
            "step": benchmark.steps[-1],
            "seed": seeds[0],
            "problems": problems,
        }
    return Section("transcripts", "Transcripts", tuple(body), data)


def chosen(frame: pd.DataFrame, order: Sequence[str]) -> list[TranscriptItem]:
    """The problems to show: up to PER_TAG of each tag, then the first ones; in the order of their
    ids.
    """
    grades: dict[str, dict[str, int | None]] = {}
    cut: set[str] = set()
    lengths: dict[str, float] = {}
    for row in frame.to_dict("records"):
        problem = str(row["problem"])
        correct = value(row["correct"])
        tokens = value(row["tokens"])
        grades.setdefault(problem, {})[str(row["arm"])] = None if correct is None else int(correct)
        cut |= {problem} if row["truncated"] == 1 else set()
        lengths[problem] = max(lengths.get(problem, 0.0), tokens or 0.0)
    names = sorted(grades, key=_natural)
    longest = sorted(
        filter(lengths.get, lengths), key=lambda name: (-lengths[name], _natural(name))
    )[:PER_TAG]
    tagged = {
        "flipped": [name for name in names if {0, 1} <= set(grades[name].values())],
        "wrong": [name for name in names if set(grades[name].values()) == {0}],
        "truncated": [name for name in names if name in cut],
        "longest": longest,
    }
    # Half of those on which arms disagree were won by the first arm, half lost, as far as there are
    # any.
    won = [name for name in tagged["flipped"] if grades[name].get(order[0]) == 1]
    lost = [name for name in tagged["flipped"] if name not in won]
    picked = {
        *won[: max(PER_TAG // 2, PER_TAG - len(lost))],
        *lost[: max(PER_TAG // 2, PER_TAG - len(won))],
    }
    picked |= {name for tag in ("wrong", "truncated", "longest") for name in tagged[tag][:PER_TAG]}
    picked |= set(names[: max(0, PER_TAG - len(picked))])
    tags = {name: tuple(tag for tag in TAGS if name in tagged[tag]) for name in picked}
    return [TranscriptItem(name, tags[name], grades[name]) for name in names if name in picked]


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """problem-9 stands before problem-10."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)
    )


def _id(benchmark: EvaluatedBenchmark, problem: str, taken: set[str]) -> str:
    """`item-addition-add2-held-17`; a number is added where two ids would be the same."""
    new = plain = slug(f"item-{slug(benchmark.key)}-{visible(problem)}")[:120]
    turn = 1
    while new in taken:
        turn += 1
        new = f"{plain}-{turn}"
    taken.add(new)
    return new


def _item(
    item: TranscriptItem, answers: list[dict[str, Any]], id_: str, order: Sequence[str]
) -> Html:
    chips = [_chip(arm, item.arms[arm]) for arm in order if arm in item.arms]
    tags = [h("span", TAGS[tag], class_="tag") for tag in item.tags]
    prompts = dict.fromkeys(str(row["prompt"]) for row in answers if row["prompt"] is not None)
    asked_ = [h("div", h("h4", "problem"), _text(prompt), class_="prompt") for prompt in prompts]
    references = dict.fromkeys(row["reference"] for row in answers if row["reference"] is not None)
    reference = (
        h("p", "Reference: ", *(h("code", _cut(text)) for text in references))
        if references
        else None
    )
    summary = h("summary", h("b", marked(item.problem)), " ", *chips, *tags)
    link = h("p", h("a", "Link to this problem", href=f"#{id_}"), class_="soft")
    inside = (link, *asked_, reference, h("div", *map(_answer, answers), class_="answers"))
    return h("details", summary, *inside, id=id_, class_="item", data_tags=" ".join(item.tags))


def _chip(arm: str, correct: int | None) -> Html:
    mark, grade = {1: ("✓", "right"), 0: ("✗", "wrong")}.get(
        -1 if correct is None else correct, ("?", "not graded")
    )
    return h(
        "span",
        h("b", mark, aria_hidden="true"),
        f" {arm}",
        h("span", f" {grade}", class_="unseen-label"),
        class_=f"chip {grade.replace(' ', '-')}",
    )


def _answer(row: dict[str, Any]) -> Html:
    facts = [
        ("extracted", "nothing" if row["extracted"] is None else h("code", _cut(row["extracted"]))),
        *((name, None if row[name] is None else _cut(row[name])) for name in ("reason", "error")),
        ("turns", None if row.get("turns") is None else _cut(_turns(row["turns"]))),
        (
            "length",
            (
                f"{format_number(row['tokens'])}"
                f" tokens{', cut at the limit' if row['truncated'] else ''}"
            ),
        ),
        ("reward", format_number(row["reward"])),
    ]
    listed = [h("div", h("dt", name), h("dd", shown)) for name, shown in facts if shown is not None]
    text = _text(row["text"]) if row["text"] is not None else h("p", NOT_MEASURED, class_="missing")
    return h(
        "div", h("h4", _chip(row["arm"], row["correct"])), text, h("dl", *listed), class_="answer"
    )


def _turns(turns_json: str) -> str:
    """What the model wrote by turns, each with its reward where it has one: the text has the
    replies among them.
    """
    turns = json.loads(turns_json)
    return " · ".join(
        turn["text"] + (f" ({turn['reward']:g})" if "reward" in turn else "") for turn in turns
    )


def _text(value: str) -> Html:
    """A text whole, or its beginning and end with what was left out said between them."""
    if len(value) <= HEAD + TAIL:
        return h("pre", marked(value), dir="ltr", tabindex="0")
    left_out = len(value) - HEAD - TAIL
    gap = h("span", f" … {left_out:,} of {len(value):,} characters left out … ", class_="gap")
    return h(
        "pre", join([marked(value[:HEAD]), gap, marked(value[-TAIL:])]), dir="ltr", tabindex="0"
    )


def _cut(value: Any) -> Html:
    """A text of a few words, or its beginning with its length."""
    shown = str(value)
    return marked(
        shown if len(shown) <= SHORT else f"{shown[:SHORT]} … ({len(shown):,} characters)"
    )
