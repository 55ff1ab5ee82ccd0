"""A study's recorded numbers for its charts: means over spans of steps, read once for the whole
report.
"""

from dataclasses import dataclass

import numpy as np

from gspo_lab.analysis.readings import Source, once
from gspo_lab.analysis.readings.spans import read_spans, span_width
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.recording.records.update import CLIP_FRACTION

AXES = {
    "prompts": "prompts_total",
    "response tokens": "tokens_trained_total",
    "FLOPs": "flops_total",
    "device seconds": "device_seconds_total",
}
"""The axes of a training curve beside steps, each with the metric that counts it."""

OF_STEPS = (
    "reward_mean",
    "entropy",
    "response_tokens_mean",
    "truncated_responses",
    "zero_variance_groups",
    "mismatch_k3",
    "replay_bytes",
    "seconds_replay",
    "seconds_step",
    *AXES.values(),
)
OF_UPDATES = (
    CLIP_FRACTION,
    "clip_fraction_gradient",
    "log_ratio_std_tokens",
    "log_ratio_std_responses",
    "ratio_max_negative",
    "stale_k3",
    "grad_norm",
    "nonfinite",
    "expert_change",
)
TABLES = {"steps": OF_STEPS, "updates": OF_UPDATES}
EXTREMES = ("grad_norm", "ratio_max_negative")
"""Metrics whose charts also show a span's lowest and highest value, because single peaks matter."""

FEW_RUNS = 10
FINE = 250
COARSE = 125
"""Up to FEW_RUNS runs a line has at most FINE points, beyond that COARSE: the page must stay small.
"""


@dataclass(frozen=True)
class Track:
    """One run's numbers over spans of steps, NaN where nothing was measured. `x` is the middle of a
    span's steps."""

    arm: str
    seed: int
    run: str
    steps: Floats
    updates: Floats
    columns: dict[str, Floats]

    def x(self, metric: str) -> Floats:
        """The axis of a metric: the middle of each span, in steps or in updates."""
        return self.steps if metric in OF_STEPS else self.updates


@dataclass(frozen=True)
class TrainingCurves:
    """Every run of a study, in the order of its arms and seeds; a point is the mean over `width`
    steps.
    """

    tracks: tuple[Track, ...]
    width: int
    last: int

    @property
    def note(self) -> str:
        """A sentence on averaging; empty where each point is one step."""
        return "" if self.width == 1 else f"Each point is the mean over {self.width} steps."

    @property
    def sampled(self) -> range:
        """The middle step of each span, for what SQL cannot average."""
        return range((self.width - 1) // 2, self.last + 1, self.width)

    @property
    def sample_note(self) -> str:
        """A sentence on which steps were read; empty where all were."""
        return "" if self.width == 1 else f"Read at every {self.width}th step."

    def measured(self, metric: str) -> bool:
        """Whether any run recorded the metric."""
        return any(bool(np.isfinite(track.columns[metric]).any()) for track in self.tracks)


@once
def course(source: Source) -> TrainingCurves:
    """All series over steps, in one pass of SQL per table."""
    evidence = source.evidence
    study = source.study
    runs = evidence.chosen(study)
    buckets = FINE if len(runs) <= FEW_RUNS else COARSE
    steps, updates = (
        read_spans(
            evidence,
            study,
            table,
            names,
            buckets=buckets,
            extremes=[name for name in EXTREMES if name in names],
        )
        for table, names in TABLES.items()
    )
    tracks = [
        Track(
            run.arm,
            run.seed,
            run.id,
            steps[run].pop("x"),
            updates[run].pop("x"),
            {**steps[run], **updates[run]},
        )
        for run in runs
    ]
    width = span_width(evidence, study, buckets)
    return TrainingCurves(
        tuple(tracks), width, width * max((len(track.steps) for track in tracks), default=0) - 1
    )
