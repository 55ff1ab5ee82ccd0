"""The decision on a study: which pairs of runs count, what forbids a verdict, and the words. Terminal and report alike.

The word itself is that of `stats.decide`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gspo_lab.claims.dose_response import DoseResponse, dose_response
from gspo_lab.claims.outcomes import RunOutcome, outcomes
from gspo_lab.matching import Certificate, certificate
from gspo_lab.stats.verdict import Verdict, decide
from gspo_lab.study import baseline_of, primary_of

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


@dataclass(frozen=True)
class Decision:
    """What a study says of its question so far, in `sentences`.

    `verdicts` has each arm but the baseline, judged on the final scores in `ended`, and `missing` in words the runs of
    the two that have none. All three are empty where no score can decide; a sweep has `doses` instead.
    """

    baseline: str
    primary: str | None
    matched: Certificate
    sentences: tuple[str, ...]
    doses: DoseResponse | None = None
    ended: tuple[RunOutcome, ...] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)


def decision(evidence: "Evidence", study: str) -> Decision:
    """Each arm against the baseline by the declared rule, on all declared seeds."""
    content = evidence.study(study)
    baseline = baseline_of(content)
    bench = primary_of(content)
    matched = certificate(evidence, study)
    doses = dose_response(evidence, study)
    if doses is not None:
        told = tuple(f"{sentence}." for sentence in doses.told(matched))
        return Decision(baseline, bench, matched, told, doses)
    treatments = [arm for arm in content["arms"] if arm != baseline]
    if bench is None:
        said = "No verdict: the study declares no benchmark, so the score that would decide is not measured."
        return Decision(baseline, bench, matched, (said,))
    if not treatments:
        said = f"No verdict: {baseline} is the only arm, so there is nothing to compare it with."
        return Decision(baseline, bench, matched, (said,))
    ended = outcomes(evidence, study, bench)
    running = any(one.state == "running" for one in ended)
    verdicts, missing = {}, {}
    for arm in treatments:
        pairs, missing[arm] = _pairs(ended, content["seeds"], baseline, arm)
        withheld = matched.reasons.get(arm, ())
        verdicts[arm] = _judged(content, baseline, arm, pairs, withheld, running=running)
    sentences = tuple(verdict.sentence for verdict in verdicts.values())
    return Decision(baseline, bench, matched, sentences, None, tuple(ended), verdicts, missing)


def _pairs(
    ended: Sequence[RunOutcome], seeds: Sequence[int], baseline: str, arm: str
) -> tuple[list[tuple[float, float]], tuple[str, ...]]:
    """The final scores (baseline, arm) of every seed whose two runs have one, and in words the runs that lack it."""
    by_run = {(one.arm, one.seed): one for one in ended}
    pairs, missing = [], []
    for seed in seeds:
        scores = []
        for name in (baseline, arm):
            run = by_run.get((name, seed))
            if run is not None and run.final is not None:
                scores.append(run.final)
            else:
                state = "not begun" if run is None else "without a score" if run.state == "finished" else run.state
                missing.append(f"{name} seed {seed} {state}")
        if len(scores) == 2:
            pairs.append((scores[0], scores[1]))
    return pairs, tuple(missing)


def _judged(
    content: dict[str, Any],
    baseline: str,
    arm: str,
    pairs: Sequence[tuple[float, float]],
    mismatches: Sequence[str],
    *,
    running: bool,
) -> Verdict:
    """The verdict by the declared rule; withheld while a declared pair is missing or runs are not matched."""
    withheld = list(mismatches)
    planned = len(content["seeds"])
    if len(pairs) < planned:
        why = "the study is still running" if running else "runs are missing"
        withheld.append(f"{why}, {len(pairs)} of {planned} pairs are complete")
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rule = content["verdict"]
    return decide(first, second, rule["margin"], rule["alpha"], (baseline, arm), withheld_because=withheld)
