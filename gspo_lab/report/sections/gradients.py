"""Size of the gradient, with the spikes that a mean would hide."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gspo_lab.findings.training_curves import Track, course
from gspo_lab.readings import RECORDED, Reading, Reduce, Source, Steps, Window, by_step, read, summarise
from gspo_lab.readings.lr_warmup import first_settled
from gspo_lab.report.chart import Series
from gspo_lab.report.frames import curve
from gspo_lab.report.markup import NOT_MEASURED, markdown_table, number, table
from gspo_lab.report.section import Section
from gspo_lab.stats.collapse import FROZEN, spikes
from gspo_lab.store.records import read_updates

MARKS = 60
"""Spikes that are drawn; the data has them all."""

BASELINE = Reading("grad_norm", Window(Steps.BASELINE), Reduce.MEDIAN)
"""What a spike is held against."""
HEAD = ["arm", "median at the start", "largest", "where", "spikes", "updates that were not finite"]
RULE = f"Spike: a step whose mean norm is above 5 times the median of the {FROZEN} steps after the warm-up."


def gradients(found: Source) -> Section | None:
    """Gradient norm before clipping: span means, with an envelope up to the largest value, and every spike."""
    chart = curve(
        found,
        "grad_norm",
        id="m-grad-norm",
        title="Gradient norm over training",
        unit="L2 norm before clipping",
        log=True,
        envelope=True,
        note="Mean over the step's updates.",
    )
    failed = _failed(found)
    rows, data = [], {}
    marks: list[Series] = []
    for colour, arm in enumerate(found.arms):
        tracks = [track for track in course(found).tracks if track.arm == arm]
        spiked = {track.seed: _spikes(found, track, first_settled(found)[track.run]) for track in tracks}
        peaks = [float(np.nanmax(track.columns["grad_norm.high"])) for track in tracks if _measured(track)]
        median, largest = summarise(found, BASELINE, arm, RECORDED).mean, max(peaks, default=None)
        place = "" if largest is None else _where(found, tracks, largest)
        counted = any(np.isfinite(track.columns["nonfinite"]).any() for track in tracks)
        nonfinite = failed.get(arm, 0) if counted else None
        judged = [steps for steps in spiked.values() if steps is not None]
        count = sum(map(len, judged)) if judged else None
        rows.append([arm, number(median), number(largest), place, _count(count), number(nonfinite)])
        data[arm] = {
            "median": median,
            "largest": largest,
            "largest_at": place,
            "spikes": {str(seed): None if steps is None else sorted(steps) for seed, steps in spiked.items()},
            "nonfinite_updates": nonfinite,
        }
        marks += _marks(arm, colour, spiked)
    if marks:
        more = f"; of {len(marks)} the first {MARKS} are marked" if len(marks) > MARKS else ""
        note = f"{chart.note} Dots: spikes{more}. {RULE}"
        chart = replace(chart, series=(*chart.series, *marks[:MARKS]), note=note)
    body = (
        chart,
        table(HEAD, rows, caption=f"Of every recorded run; median: {BASELINE.label()}, mean over runs. {RULE}"),
    )
    return Section("gradients", "Gradient norm", body, {"arms": data}, markdown_table(HEAD, rows))


def _spikes(found: Source, track: Track, first: int) -> dict[int, float] | None:
    """A run's spikes after its warm-up, which ends at step `first`: step and mean norm of its updates there. None: too
    few steps to judge. The FROZEN steps from `first` on judge most runs without reading them whole."""
    if not _measured(track):
        return None
    window = _norms(found, track.run, Steps.BASELINE)
    last = (int(np.nanmax(track.updates)) // course(found).width + 1) * course(found).width - 1
    if len(window) < FROZEN and last < first + FROZEN:
        return None
    largest = track.columns["grad_norm.high"]
    if len(window) == FROZEN and np.nanmax(largest) <= 5 * (read(found, BASELINE)[track.run].value or 0.0):
        return {} if np.nanmax(track.updates) > max(window) else None
    norms = _norms(found, track.run)
    steps = spikes([*norms], [*norms.values()], first)
    return None if steps is None else {step: norms[step] for step in steps}


def _measured(track: Track) -> bool:
    return bool(np.isfinite(track.columns["grad_norm"]).any())


def _norms(found: Source, run: str, steps: Steps = Steps.ALL) -> dict[int, float]:
    """A run's mean gradient norm by step."""
    curve = by_step(found, Reading("grad_norm", Window(steps)), run)[run]
    known = ~np.isnan(curve.values)
    return dict(zip(curve.steps[known].astype(int).tolist(), curve.values[known].tolist(), strict=True))


def _where(found: Source, tracks: Sequence[Track], largest: float) -> str:
    """The place of the largest norm, looked for in the span that holds it."""
    width = course(found).width
    for track in tracks:
        for span in np.flatnonzero(track.columns["grad_norm.high"] == largest)[:1].tolist():
            at = range(span * width, (span + 1) * width)
            rows = read_updates(found.evidence, found.study, ["grad_norm"], run=track.run, at=at)
            row = rows[rows["grad_norm"] == largest].iloc[0]
            return f"seed {track.seed}, step {row['step']}, mini-batch {row['minibatch']}"
    return ""


def _failed(found: Source) -> dict[str, int]:
    """Per arm the updates that were not finite; where no span has any, none is looked for."""
    if not any(np.nansum(track.columns["nonfinite"]) for track in course(found).tracks):
        return {}
    return dict(Counter(str(arm) for arm in read_updates(found.evidence, found.study, [], nonfinite=1)["arm"]))


def _marks(arm: str, colour: int, found: Mapping[int, Mapping[int, float] | None]) -> list[Series]:
    """Every spike as a point of its own, which is drawn as a dot."""
    return [
        Series(arm, colour, (float(step),), (norm,), seed=seed)
        for seed, steps in found.items()
        for step, norm in (steps or {}).items()
    ]


def _count(count: int | None) -> str:
    return NOT_MEASURED if count is None else str(count)
