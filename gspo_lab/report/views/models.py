"""Models that `gspo-lab eval` evaluated and nobody trained here: their scores, and how each differs
from the first, problem by problem."""

from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.analysis.readings.answers import CheckpointAnswers, checkpoints
from gspo_lab.analysis.stats import PairedT, paired_t
from gspo_lab.analysis.stats.passk import CheckpointScore
from gspo_lab.common.errors import LabError
from gspo_lab.common.text import MINUS
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.traces import read_later_evaluations
from gspo_lab.report.templating import NONE, between, format_number, limits, signed
from gspo_lab.report.views.view import PageOnly, View


@dataclass(frozen=True)
class Evaluation:
    """One benchmark under one protocol."""

    bench: str
    scores: dict[str, CheckpointScore | None]
    differences: dict[str, PairedT]
    """Each model's difference to the first one; a pair is a problem."""
    columns: PageOnly[list[str]]
    rows: PageOnly[list[list[str]]]


@dataclass(frozen=True)
class ModelsView(View):
    """Every evaluation that the models answered."""

    id = "models"
    title = "Evaluated models"
    evaluations: dict[str, Evaluation]
    reading: str = "score.avg"


def models_view(evidence: Evidence, models: Sequence[str]) -> ModelsView:
    """The evaluations of these models, the first of which others are compared with."""
    later = read_later_evaluations(evidence, models)
    for model in models:
        if model not in set(later["run_id"]):
            raise LabError(
                f"no evaluation of {model}; gspo-lab eval prints what its models are called"
            )
    evaluations = {}
    for name in dict.fromkeys(later["evaluation"]):
        evaluations[str(name)] = _evaluation(list(checkpoints(evidence, models, name)))
    return ModelsView(evaluations)


def _evaluation(evaluated: Sequence[CheckpointAnswers]) -> Evaluation:
    rates = []
    for answers in evaluated:
        frame = answers.graded.set_index("problem")
        rates.append(frame["correct"] / frame["graded"])
    differences = {}
    rows = []
    for answers, rate in zip(evaluated, rates, strict=True):
        score = answers.score
        cells = [
            answers.run_id,
            format_number(None),
            NONE,
            f"{answers.problems} x {answers.samples}",
        ]
        if score is not None:
            low = score.item_low
            high = score.item_high
            cells[1] = format_number(score.mean)
            cells[2] = NONE if low is None or high is None else limits((low, high))
        difference = NONE
        if answers is not evaluated[0]:
            paired = paired_t((rate - rates[0]).dropna().tolist())
            differences[answers.run_id] = paired
            ends = between(paired.low, paired.high, paired.reason)
            difference = f"{signed(paired.estimate, paired.low, paired.high)} ({ends})"
        rows.append([*cells, str(answers.counts["errors"]), difference])
    reference = evaluated[0].run_id
    return Evaluation(
        evaluated[0].bench,
        {answers.run_id: answers.score for answers in evaluated},
        differences,
        ["model", "score", "95 %", "problems", "not graded", f"{MINUS} {reference}, by problem"],
        rows,
    )
