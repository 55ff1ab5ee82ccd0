"""The decision on a study: which pairs of runs count, what forbids a verdict, and the words. Terminal and report alike.

The word itself is that of `stats.decide`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gspo_lab.findings.dose_response import DoseResponse
from gspo_lab.findings.outcomes import RunOutcome
from gspo_lab.matching import Certificate
from gspo_lab.states import State
from gspo_lab.stats.verdict import Verdict, decide
from gspo_lab.study import Declaration

if TYPE_CHECKING:
    from gspo_lab.findings.findings import Findings


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

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the verdicts must know of single runs, in sentences. All of these runs are counted."""
        told = {
            "Collapsed and still counted": [_name(one) for one in self.ended if one.collapsed],
            "Updates that were not finite, skipped or of a dead model": [
                f"{_name(one)} ({one.nonfinite})" for one in self.ended if one.nonfinite
            ],
            "Evaluations that could not be graded repeat the one before": [
                _name(one) for one in self.ended if one.carried
            ],
        }
        of_runs = (f"{what}: {', '.join(runs)}." for what, runs in told.items() if runs)
        return (*(f"{one[0].upper()}{one[1:]}." for one in self.matched.on_trust), *of_runs)


def decision(found: "Findings") -> Decision:
    """Each arm against the baseline by the declared rule, on all declared seeds."""
    declared, matched, doses = found.declaration, found.certificate, found.doses
    baseline, bench = declared.baseline, declared.primary
    if doses is not None:
        told = tuple(f"{sentence}." for sentence in doses.told(matched))
        return Decision(baseline, bench, matched, told, doses)
    if bench is None:
        said = "No verdict: the study declares no benchmark, so the score that would decide is not measured."
        return Decision(baseline, bench, matched, (said,))
    if not declared.treatments:
        said = f"No verdict: {baseline} is the only arm, so there is nothing to compare it with."
        return Decision(baseline, bench, matched, (said,))
    ended = found.outcomes(bench)
    running = any(one.state == State.RUNNING for one in ended)
    forbidden, unproven = matched.reasons, matched.unproven
    verdicts, missing = {}, {}
    for arm in declared.treatments:
        pairs, missing[arm] = _pairs(ended, declared.seeds, baseline, arm)
        withheld = forbidden.get(arm, ())
        verdicts[arm] = _judged(declared, arm, pairs, withheld, unproven, running=running)
    sentences = tuple(verdict.sentence for verdict in verdicts.values())
    return Decision(baseline, bench, matched, sentences, None, tuple(ended), verdicts, missing)


def _name(run: RunOutcome) -> str:
    return f"{run.arm} seed {run.seed}"


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
                state = "not begun" if run is None else "without a score" if run.state == State.FINISHED else run.state
                missing.append(f"{name} seed {seed} {state}")
        if len(scores) == 2:
            pairs.append((scores[0], scores[1]))
    return pairs, tuple(missing)


def _judged(
    declared: Declaration,
    arm: str,
    pairs: Sequence[tuple[float, float]],
    mismatches: Sequence[str],
    unproven: Sequence[str],
    *,
    running: bool,
) -> Verdict:
    """The verdict by the declared rule; withheld while a declared pair is missing or runs are not matched."""
    withheld = list(mismatches)
    planned = len(declared.seeds)
    if len(pairs) < planned:
        why = "the study is still running" if running else "runs are missing"
        withheld.append(f"{why}, {len(pairs)} of {planned} pairs are complete")
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rule = declared.verdict
    labels = (declared.baseline, arm)
    return decide(first, second, rule.margin, rule.alpha, labels, withheld_because=withheld, unproven=unproven)
