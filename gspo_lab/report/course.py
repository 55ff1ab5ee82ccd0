"""A study's recorded numbers as its charts draw them: means over spans of steps, read once for the whole report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

Floats = NDArray[np.float64]

AXES = {
    "prompts": "prompts_total",
    "response tokens": "tokens_trained_total",
    "FLOPs": "flops_total",
    "device seconds": "device_seconds_total",
}
"""What a training curve may be drawn against beside steps, and the metric that counts it."""

OF_STEPS = (
    *("reward_mean", "entropy", "response_tokens_mean", "truncated_responses", "zero_variance_groups"),
    *("mismatch_k1", "mismatch_k3", "mismatch_abs_max", "replay_bytes", "seconds_replay", "seconds_step"),
    *AXES.values(),
)
OF_UPDATES = (
    *("clip_fraction_tokens", "would_clip_fraction_tokens_grpo", "would_clip_fraction_tokens_gspo"),
    *("log_ratio_std_tokens", "log_ratio_std_responses", "ratio_max_negative", "stale_k1", "stale_k3"),
    *("effective_fraction_tokens", "grad_norm", "nonfinite", "expert_change", "router_entropy"),
)
EXTREMES = ("grad_norm", "mismatch_abs_max", "ratio_max_negative")
"""Metrics whose single peaks matter, so that their charts show a span's lowest and highest value too."""

FEW_RUNS, FINE, COARSE = 10, 250, 125
"""Up to FEW_RUNS runs a line has at most FINE points, beyond that COARSE: the page must stay small."""


@dataclass(frozen=True)
class Track:
    """One run's numbers, span by span: NaN where nothing was measured. `x` is the middle of the span's steps."""

    arm: str
    seed: int
    run: str
    steps: Floats
    updates: Floats
    columns: dict[str, Floats]

    def x(self, metric: str) -> Floats:
        return self.steps if metric in OF_STEPS else self.updates


@dataclass(frozen=True)
class Course:
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
        return "" if self.width == 1 else f"Read at every {self.width}th step."

    def measured(self, metric: str) -> bool:
        return any(bool(np.isfinite(track.columns[metric]).any()) for track in self.tracks)


_READ: "WeakKeyDictionary[Evidence, dict[str, Course]]" = WeakKeyDictionary()
"""An Evidence shows one moment for as long as it is open, so a study is read from it once."""


def course(evidence: "Evidence", study: str) -> Course:
    """All that the charts draw over steps, in one pass of SQL per table."""
    read = _READ.setdefault(evidence, {})
    if study not in read:
        read[study] = _course(evidence, study)
    return read[study]


def _course(evidence: "Evidence", study: str) -> Course:
    runs = evidence.runs(study)
    buckets = FINE if len(runs) <= FEW_RUNS else COARSE
    tables = [
        evidence.buckets(
            study, table, metrics, buckets=buckets, extremes=[name for name in EXTREMES if name in metrics]
        )
        for table, metrics in (("steps", OF_STEPS), ("updates", OF_UPDATES))
    ]
    width = evidence.width(study, buckets)
    spans = max((int(frame["span"].max()) + 1 for frame in tables if len(frame)), default=0)
    dense = [_dense(frame, list(runs["run_id"]), spans) for frame in tables]
    tracks = tuple(
        Track(
            str(arm),
            int(seed),
            str(run),
            dense[0]["x"][row],
            dense[1]["x"][row],
            {name: block[row] for table in dense for name, block in table.items() if name != "x"},
        )
        for row, (run, arm, seed) in enumerate(zip(runs["run_id"], runs["arm"], runs["seed"], strict=True))
    )
    return Course(tracks, width, spans * width - 1)


def _dense(frame: "DataFrame", runs: Sequence[str], spans: int) -> dict[str, Floats]:
    """Each column as an array of one row per run and one place per span."""
    row_of = {run: row for row, run in enumerate(runs)}
    rows = np.array([row_of[run] for run in frame["run_id"]], dtype=np.int64)
    places = frame["span"].to_numpy(dtype=np.int64)
    out = {}
    for name in frame.columns[4:]:
        block = np.full((len(runs), spans), np.nan)
        block[rows, places] = frame[name].to_numpy(dtype=np.float64)
        out[str(name)] = block
    return out
