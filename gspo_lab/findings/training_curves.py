"""A study's recorded numbers as its charts draw them: means over spans of steps, read once for the whole report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from gspo_lab.readings import Source, read
from gspo_lab.readings.reading import CLIP
from gspo_lab.store.records import read_spans, span_width

if TYPE_CHECKING:
    from gspo_lab.readings import Source
    from gspo_lab.stats.arrays import Floats
    from gspo_lab.store import Evidence


AXES = {
    "prompts": "prompts_total",
    "response tokens": "tokens_trained_total",
    "FLOPs": "flops_total",
    "device seconds": "device_seconds_total",
}
"""What a training curve may be drawn against beside steps, and the metric that counts it."""

OF_STEPS = (
    *("reward_mean", "entropy", "response_tokens_mean", "truncated_responses", "zero_variance_groups"),
    *("mismatch_k3", "replay_bytes", "seconds_replay", "seconds_step"),
    *AXES.values(),
)
OF_UPDATES = (
    *("clip_fraction_tokens", "log_ratio_std_tokens", "log_ratio_std_responses", "ratio_max_negative", "stale_k3"),
    *("grad_norm", "nonfinite", "expert_change"),
)
TABLES = {"steps": OF_STEPS, "updates": OF_UPDATES}
EXTREMES = ("grad_norm", "ratio_max_negative")
"""Metrics whose single peaks matter, so that their charts show a span's lowest and highest value too."""

FEW_RUNS, FINE, COARSE = 10, 250, 125
"""Up to FEW_RUNS runs a line has at most FINE points, beyond that COARSE: the page must stay small."""


@dataclass(frozen=True)
class Track:
    """One run's numbers, span by span: NaN where nothing was measured. `x` is the middle of the span's steps."""

    arm: str
    seed: int
    run: str
    steps: "Floats"
    updates: "Floats"
    columns: "dict[str, Floats]"

    def x(self, metric: str) -> "Floats":
        """The axis of a metric: the middle of each span, in steps or in updates."""
        return self.steps if metric in OF_STEPS else self.updates


@dataclass(frozen=True)
class TrainingCurves:
    """Every run of a study, in the order of its arms and seeds; a point is the mean over `width` steps."""

    tracks: tuple[Track, ...]
    width: int
    last: int

    @property
    def note(self) -> str:
        """What a reader must know of long series."""
        return "" if self.width == 1 else f"Each point is the mean over {self.width} steps."

    @property
    def sampled(self) -> range:
        """One step out of every span, for what no mean can be made of in SQL: the span's middle."""
        return range((self.width - 1) // 2, self.last + 1, self.width)

    @property
    def sample_note(self) -> str:
        """A sentence on how coarsely the runs were read; empty where every step was."""
        return "" if self.width == 1 else f"Read at every {self.width}th step."

    def measured(self, metric: str) -> bool:
        """Whether any run recorded the metric."""
        return any(bool(np.isfinite(track.columns[metric]).any()) for track in self.tracks)


def course(of: "Source") -> TrainingCurves:
    """All that the charts draw over steps, in one pass of SQL per table, once for an evidence."""
    return of.evidence.once(("course", of.study), lambda: _course(of.evidence, of.study))


def _course(evidence: "Evidence", study: str) -> TrainingCurves:
    runs = evidence.chosen(study)
    buckets = FINE if len(runs) <= FEW_RUNS else COARSE
    steps, updates = (
        read_spans(
            evidence, study, table, names, buckets=buckets, extremes=[name for name in EXTREMES if name in names]
        )
        for table, names in TABLES.items()
    )
    tracks = [
        Track(run.arm, run.seed, run.id, steps[run].pop("x"), updates[run].pop("x"), {**steps[run], **updates[run]})
        for run in runs
    ]
    width = span_width(evidence, study, buckets)
    return TrainingCurves(tuple(tracks), width, width * max((len(track.steps) for track in tracks), default=0) - 1)


@contextmanager
def reading_ahead(wanted: "Sequence[tuple[Evidence, str]]") -> Iterator[None]:
    """Reads the longest sums of these studies, which their evidence then knows. Nobody else may read meanwhile: each
    has one connection, and shows one moment."""
    reader = Thread(target=_read, args=(wanted,))
    reader.start()
    try:
        yield
    finally:
        reader.join()


def _read(wanted: "Sequence[tuple[Evidence, str]]") -> None:
    with suppress(Exception):  # whoever needs what cannot be read is told
        sources = [Source(evidence, study) for evidence, study in wanted]
        for source in sources:
            course(source)
        for source in sources:
            read(source, CLIP)
