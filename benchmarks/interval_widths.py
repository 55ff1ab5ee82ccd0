"""The width of a verdict's interval by the plain paired t and by the variance of all arms.

    python benchmarks/interval_widths.py

reads the recorded studies: the tables of docs/results with a column of scores per seed, whose first
row is the baseline, and the .json reports of reports/sample, whose four arms give the
contrast of a 2 x 2 as well. Widths are of unadjusted 95 % intervals.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gspo_lab.analysis.stats.moderated import contrast_variance, moderated_variance
from gspo_lab.analysis.stats.paired import PairedT, paired_scores

ROOT = Path(__file__).resolve().parents[1]
COLUMN = re.compile(r"(final score|pass@4) per seed")
TWO_BY_TWO = {"grpo": -0.5, "grpo-replay": -0.5, "gspo": 0.5, "gspo-replay": 0.5}

Scores = dict[str, list[float]]
"""Arm -> the final score of each seed, the baseline first."""


def tables(page: Path) -> Iterator[Scores]:
    """The recorded scores of each table of a page of results."""
    column, scores = None, Scores()
    for line in [*page.read_text(encoding="utf-8").splitlines(), ""]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            if len(scores) > 2:
                yield scores
            column, scores = None, Scores()
        elif column is None:
            places = (place for place, cell in enumerate(cells) if COLUMN.match(cell))
            column = next(places, None)
        else:
            numbers = [float(number) for number in re.findall(r"-?\d*\.\d+", cells[column])]
            if len(numbers) > 2:
                scores[cells[0]] = numbers


def reports(path: Path) -> Iterator[tuple[str, Scores]]:
    """Per study of a .json report its arms' differences to the baseline, which stands as zeros: a
    seed's level changes no difference of arms.
    """
    for name, study in json.loads(path.read_text(encoding="utf-8"))["studies"].items():
        compared = study["answer"]["comparisons"]
        if len(compared) > 1:
            pairs = {arm: verdict["paired"] for arm, verdict in compared.items()}
            differences = {
                arm: paired["differences"]
                for arm, paired in pairs.items()
                if arm in study["answer"]["arms"]
            }
            seeds = len(next(iter(differences.values())))
            yield name, {study["answer"]["baseline"]: [0.0] * seeds, **differences}


def width(paired: PairedT) -> float:
    """Of its interval; NaN without one."""
    if paired.low is None or paired.high is None:
        return float("nan")
    return paired.high - paired.low


def row(name: str, plain: PairedT, pooled: PairedT) -> float:
    """Prints both widths of one comparison, and returns their ratio."""
    ratio = width(pooled) / width(plain)
    resolved = [
        "excludes 0" if paired.p is not None and paired.p < 0.05 else ""
        for paired in (plain, pooled)
    ]
    print(
        f"{name:<44} {plain.n:>2} {plain.estimate:+.3f}  {width(plain):.3f} {resolved[0]:<10} "
        f" {width(pooled):.3f} {resolved[1]:<10}  {ratio:.2f}"
    )
    return ratio


def compare(name: str, scores: Scores) -> list[float]:
    """The ratios of widths of each arm against the first, and of a 2 x 2's contrast."""
    scores_AS: NDArray[np.float64] = np.array(list(scores.values()))
    ratios = []
    for place, arm in list(enumerate(scores))[1:]:
        estimated = moderated_variance(scores_AS, 0, place)
        plain, pooled = (
            paired_scores(scores_AS[0], scores_AS[place], estimated=variance)
            for variance in (None, estimated)
        )
        ratios.append(row(f"{name}: {arm}", plain, pooled))
    if scores.keys() == TWO_BY_TWO.keys():
        weights = np.array([TWO_BY_TWO[arm] for arm in scores])
        first = np.maximum(-weights, 0) @ scores_AS
        second = np.maximum(weights, 0) @ scores_AS
        estimated = contrast_variance(scores_AS, weights.tolist())
        row(
            f"{name}: contrast of the 2 x 2",
            paired_scores(first, second),
            paired_scores(first, second, estimated=estimated),
        )
    return ratios


def main() -> None:
    """The table of widths, and the median ratio by number of seeds."""
    print(f"{'comparison':<44} {'n':>2} {'diff.':<6}  plain width       all arms          ratio")
    recorded = [
        (page.stem, scores)
        for page in sorted((ROOT / "docs" / "results").glob("*.md"))
        for scores in tables(page)
    ]
    for report in sorted((ROOT / "reports" / "sample").glob("*.json")):
        recorded += reports(report)
    ratios: dict[int, list[float]] = {}
    for name, scores in recorded:
        seeds = len(next(iter(scores.values())))
        if all(len(values) == seeds for values in scores.values()):
            ratios.setdefault(seeds, []).extend(compare(name, scores))
    for seeds, of_seeds in sorted(ratios.items()):
        print(f"{seeds} seeds: median ratio {np.median(of_seeds):.2f} of {len(of_seeds)}")


if __name__ == "__main__":
    main()
