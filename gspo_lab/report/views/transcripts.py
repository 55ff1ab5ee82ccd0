"""All arms' answers to the same problems, side by side, chosen by a rule that the page states."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.answers import EvaluatedBenchmark, evaluated_benchmarks
from gspo_lab.analysis.readings.runs import finished_runs, finished_seeds
from gspo_lab.common.plain_data import JsonObject, OptionalInt, Strings
from gspo_lab.common.text import visible
from gspo_lab.recording.store import answers as store
from gspo_lab.report.templating import HEAD, TAIL, slug
from gspo_lab.report.views.view import Inlined, PageOnly, View

PER_TAG = 8
"""Problems that each tag may bring in, in the order of their ids; the longest in the order of their
length.
"""
BUDGET = 400_000
"""Characters of answers and prompts on a page; problems that do not fit are left out, and counted.
"""
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
    tags: Strings
    arms: dict[str, OptionalInt]


@dataclass(frozen=True)
class Transcript:
    """One problem with every arm's answer."""

    id: str
    item: TranscriptItem
    prompts: list[str]
    references: list[str]
    answers: list[JsonObject]
    """Every arm's first answer as the database has it."""


@dataclass(frozen=True)
class BenchmarkTranscripts:
    """The problems of one benchmark that are shown."""

    step: int
    seed: int
    problems: dict[str, JsonObject]
    """Each problem's tags and each arm's grade."""
    title: PageOnly[str]
    transcripts: PageOnly[list[Transcript]]


@dataclass(frozen=True)
class TranscriptsView(View):
    """Answers side by side. The JSON has the grades, not the texts."""

    id = "transcripts"
    title = "Transcripts"
    benchmarks: Inlined[dict[str, BenchmarkTranscripts]]
    seed: PageOnly[int]

    @property
    def rule(self) -> JsonObject:
        """The numbers of the rule by which problems are chosen, and the tags to filter by."""
        return {"per_tag": PER_TAG, "characters": HEAD + TAIL, "tags": {"": "all", **TAGS}}


def transcripts_view(study: Source) -> TranscriptsView | None:
    """Per benchmark the first answers of the first seed that all arms finished; None where no
    answer was recorded.
    """
    order = study.arms
    evaluations = evaluated_benchmarks(study)
    # Without a seed that all arms finished, those of the arms that have.
    seeds = finished_seeds(study, order) or sorted({seed for _, seed in finished_runs(study)})
    if not seeds or not evaluations:
        return None
    benchmarks = {}
    room = BUDGET
    ids = set[str]()
    for benchmark in evaluations:
        transcripts, room = _transcripts(study, benchmark, seeds[0], room, ids)
        benchmarks[slug(benchmark.key)] = transcripts
    return TranscriptsView(benchmarks, seeds[0])


def _transcripts(
    study: Source, benchmark: EvaluatedBenchmark, seed: int, room: int, ids: set[str]
) -> tuple[BenchmarkTranscripts, int]:
    """The problems of a benchmark that fit into `room` characters, and the room that remains."""
    order = study.arms
    query = (study.evidence, study.study, benchmark.bench, benchmark.steps[-1], seed)
    first_answers = store.first_answers(*query, benchmark.evaluation)
    items = chosen(first_answers, order)
    rows = store.transcripts(*query, [item.problem for item in items], benchmark.evaluation)
    transcripts: list[Transcript] = []
    problems = {}
    for item in items:
        answers = [row for row in rows if row["problem"] == item.problem and row["arm"] in order]
        answers.sort(key=lambda row: order.index(row["arm"]))
        size = sum(map(_size, answers))
        if size > room:
            break
        room -= size
        transcripts.append(_transcript(item, answers, _id(benchmark, item.problem, ids)))
        problems[item.problem] = {"tags": list(item.tags), **item.arms}
    step = benchmark.steps[-1]
    total = len({row["problem"] for row in first_answers})
    title = f"{benchmark.title}: step {step}, seed {seed}; {len(transcripts)} of {total} problems"
    return BenchmarkTranscripts(step, seed, problems, title, transcripts), room


def _size(row: JsonObject) -> int:
    """Characters that an answer and its prompt take on the page."""
    return sum(min(len(row[key] or ""), HEAD + TAIL) for key in ("text", "prompt"))


def _transcript(item: TranscriptItem, rows: list[JsonObject], anchor: str) -> Transcript:
    prompts = dict.fromkeys(str(row["prompt"]) for row in rows if row["prompt"] is not None)
    references = dict.fromkeys(
        str(row["reference"]) for row in rows if row["reference"] is not None
    )
    return Transcript(anchor, item, list(prompts), list(references), rows)


def chosen(rows: Sequence[JsonObject], order: Sequence[str]) -> list[TranscriptItem]:
    """The problems to show: up to PER_TAG of each tag, then the first ones; in the order of their
    ids.
    """
    grades: dict[str, dict[str, OptionalInt]] = {}
    cut: set[str] = set()
    lengths: dict[str, float] = {}
    for row in rows:
        problem = row["problem"]
        correct = row["correct"]
        grades.setdefault(problem, {})[row["arm"]] = None if correct is None else int(correct)
        if row["truncated"] == 1:
            cut.add(problem)
        lengths[problem] = max(lengths.get(problem, 0.0), row["tokens"] or 0.0)
    names = sorted(grades, key=_natural)
    measured = [name for name in names if lengths[name]]
    tagged = {
        "flipped": [name for name in names if {0, 1} <= set(grades[name].values())],
        "wrong": [name for name in names if set(grades[name].values()) == {0}],
        "truncated": [name for name in names if name in cut],
        "longest": sorted(measured, key=lambda name: -lengths[name])[:PER_TAG],
    }
    # Half of those on which arms disagree were won by the first arm, half lost, as far as there are
    # any.
    won = [name for name in tagged["flipped"] if grades[name].get(order[0]) == 1]
    lost = [name for name in tagged["flipped"] if name not in won]
    half = PER_TAG // 2
    picked = set(won[: max(half, PER_TAG - len(lost))]) | set(lost[: max(half, PER_TAG - len(won))])
    for tag in ("wrong", "truncated", "longest"):
        picked.update(tagged[tag][:PER_TAG])
    picked.update(names[: max(0, PER_TAG - len(picked))])
    items = []
    for name in names:
        if name in picked:
            tags = tuple(tag for tag in TAGS if name in tagged[tag])
            items.append(TranscriptItem(name, tags, grades[name]))
    return items


def _natural(name: str) -> list[tuple[int, str]]:
    """problem-9 stands before problem-10."""
    keys = []
    for piece in re.split(r"([0-9]+)", name):
        keys.append((int(piece), "") if piece.isdigit() else (-1, piece))
    return keys


def _id(benchmark: EvaluatedBenchmark, problem: str, ids: set[str]) -> str:
    """`item-addition-add2-held-17`; a number is added where two ids would be the same."""
    stem = slug(f"item-{slug(benchmark.key)}-{visible(problem)}")[:120]
    anchor = stem
    turn = 1
    while anchor in ids:
        turn += 1
        anchor = f"{stem}-{turn}"
    ids.add(anchor)
    return anchor
