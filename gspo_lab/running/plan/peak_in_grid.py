"""Whether the swept values of a study can hold the peaks that `[verdict] over` compares.

Known before a study runs only from earlier runs like it, with this study's own among them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from gspo_lab.analysis.readings import Source, average
from gspo_lab.common.text import listed
from gspo_lab.running.plan.detectable_effect import earlier_scores
from gspo_lab.study import Arm, Study, flat
from gspo_lab.study.dotted_keys import alike_but

Scores = dict[float, list[float]]
"""Per value of the swept setting the final scores of earlier runs."""


def peak_warnings(study: Study, runs: Path) -> list[str]:
    """One line for each rule whose peak earlier runs place at an end of the values or beyond."""
    sweep = study.sweep
    if sweep is None or study.verdict.over is None:
        return []
    families = {str(arm.of): arm for arm in study.arms.values() if arm.dose is not None}
    scores: dict[str, Scores] = {family: {} for family in families}
    names: list[str] = []
    for source, finals in earlier_scores(study, runs):
        if _add_scores(source, finals, families, scores, sweep.key):
            names.append(source.study)
    return list(_warnings(scores, sorted(sweep.doses), sweep.key, names))


def _add_scores(
    source: Source,
    finals: Mapping[str, Mapping[int, float]],
    families: dict[str, Arm],
    scores: dict[str, Scores],
    key: str,
) -> bool:
    """Add the final scores of a study's arms that differ from a family in the swept key alone."""
    found_any = False
    for name, by_seed in finals.items():
        settings = source.declaration.arms[name].settings.model_dump(mode="json")
        value = flat(settings).get(key)
        if not isinstance(value, int | float):
            continue
        for family, arm in families.items():
            if alike_but(settings, arm.settings.model_dump(mode="json"), [key]):
                scores[family].setdefault(float(value), []).extend(by_seed.values())
                found_any = True
    return found_any


def _warnings(
    scores: dict[str, Scores], values: list[float], key: str, names: list[str]
) -> Iterator[str]:
    for family, by_value in scores.items():
        if len(by_value) < 2:
            continue
        means = {value: average(finals) or 0.0 for value, finals in by_value.items()}
        best = max(means, key=means.__getitem__)
        if values[0] < best < values[-1]:
            continue
        side = "below" if best <= values[0] else "above"
        place = "an end of" if best in values else "outside"
        yield (
            f"warning: the values of {key} may hold no peak of {family}: in earlier runs"
            f" ({listed(names)}) it scored highest at {best:g}, {place} {values[0]:g} to"
            f" {values[-1]:g}; add values {side} {best:g}"
        )
