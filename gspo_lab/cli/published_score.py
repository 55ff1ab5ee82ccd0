"""A score beside a published number: whether the two can be told apart, and which settings differ.

The problems are the sample, as for every interval of an evaluation. The published answers to each
problem are not known, so problems cannot be paired and the interval is a wide one.
"""

import math
from dataclasses import dataclass

from gspo_lab.analysis.stats.passk import jeffreys
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.tasks.evaluation.benchmark_spec import Bench


@dataclass(frozen=True)
class PublishedNumber:
    """A published score, per cent or a share, and its number of answers; None: not known."""

    number: float
    answers: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.number <= 100:
            raise LabError(
                f"--published {self.number:g}: must be per cent (47.4) or a share (.474)"
            )

    def compared(self, row: JsonMapping, bench: Bench) -> JsonObject:
        """The difference of a row's score from the published one, by the two scores' own intervals
        (Newcombe 1998, method 10).

        The published interval is Jeffreys' for its answers; unknown, they are as many as the
        benchmark's problems. "differs" has the settings other than the benchmark's usual ones.
        """
        share = self.number if self.number <= 1 else self.number / 100
        answers = self.answers or bench.available
        comparison = dict.fromkeys(("difference", "low", "high", "distinguishable"))
        if row["low"] is not None:
            low, high = jeffreys(share, 0.0, answers, 0.95)
            difference = row["score"] - share
            least = difference - math.hypot(row["score"] - row["low"], high - share)
            most = difference + math.hypot(row["high"] - row["score"], share - low)
            comparison = {"difference": difference, "low": least, "high": most}
            comparison["distinguishable"] = not least <= 0 <= most
        known = self.answers is not None
        facts = {"share": share, "answers": answers, "answers_known": known}
        return facts | comparison | {"differs": unusual_settings(bench)}


def unusual_settings(bench: Bench) -> dict[str, str]:
    """The settings in which an evaluation departs from the defaults of its benchmark, in words."""
    usual = bench.task.defaults
    settings = {
        "problems": (len(bench.problems), bench.available),
        "samples": (bench.samples, usual.samples),
        "temperature": (bench.sampling.temperature, usual.temperature),
        "top-p": (bench.sampling.top_p, usual.top_p),
        "token limit": (bench.sampling.max_tokens, usual.max_tokens or bench.task.max_tokens),
        "prompt in the chat template": (bench.chat, bench.task.chat),
        "window": (bench.task.name, getattr(bench.task, "usual_name", bench.task.name)),
    }
    return {
        name: f"{value} (usual {default})"
        for name, (value, default) in settings.items()
        if value != default
    }


def sentence(comparison: JsonMapping) -> str:
    """A comparison in words, in percentage points."""
    count = "answers" if comparison["answers_known"] else "answers assumed, one a problem"
    published = f"the published {comparison['share']:.4g} ({comparison['answers']} {count})"
    if comparison["difference"] is None:
        return f"not compared with {published}: that needs graded answers to two problems"
    points = [100 * comparison[name] for name in ("difference", "low", "high")]
    interval = "{:+.1f} points, 95% {:+.1f} to {:+.1f}".format(*points)
    if not comparison["distinguishable"]:
        return f"not distinguishable from {published}: {interval}"
    side = "above" if points[0] > 0 else "below"
    return f"{side} {published}: {interval}"
