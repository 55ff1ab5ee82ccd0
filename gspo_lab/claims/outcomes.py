"""What became of each run: its score at the end, by the rule that the study declared, and whether it collapsed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from gspo_lab.stats.collapse import Stability, stability
from gspo_lab.stats.series import carry_last_finite, tail_mean

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


@dataclass(frozen=True)
class RunOutcome:
    """One run on one benchmark. `final` is the mean of the last evaluations of a finished run, else None.

    `carried` counts evaluations that could not be graded and were replaced by the one before them; `errors` are single
    answers that could not be graded. `latest` is where an unfinished run stands.
    """

    arm: str
    seed: int
    state: str
    start: float | None
    final: float | None
    latest: float | None
    evaluations: int
    carried: int
    errors: int
    stability: Stability | None

    @property
    def gain(self) -> float | None:
        return None if self.final is None or self.start is None else self.final - self.start

    @property
    def collapsed(self) -> bool:
        return self.stability is not None and self.stability.collapse is not None

    @property
    def judged(self) -> bool:
        """Whether the run is long enough to be told to have stood; a collapse is seen in any."""
        return self.stability is not None and (self.stability.judged or self.collapsed)


_ENDED: "WeakKeyDictionary[Evidence, dict[tuple[str, str], list[RunOutcome]]]" = WeakKeyDictionary()
"""Several sections ask for the same; an Evidence shows one moment for as long as it is open."""


def outcomes(evidence: "Evidence", study: str, bench: str) -> list[RunOutcome]:
    """One entry per run of the study, arm by arm, seed by seed. The starting model's score is never part of `final`."""
    ended = _ENDED.setdefault(evidence, {})
    if (study, bench) not in ended:
        ended[study, bench] = _outcomes(evidence, study, bench)
    return ended[study, bench]


def _outcomes(evidence: "Evidence", study: str, bench: str) -> list[RunOutcome]:
    last = evidence.study(study)["verdict"]["last"]
    scores = evidence.scores(study)
    scores = scores[scores["bench"] == bench].sort_values("step")
    stable = stabilities(evidence, study)
    out = []
    for run in evidence.runs(study).to_dict("records"):
        own = scores[scores["run_id"] == run["run_id"]]
        start = own[own["step"] == 0]["score"]
        trained = own[own["step"] > 0]
        final = latest = None
        carried = 0
        if len(trained) and own["score"].notna().iloc[0]:
            values, missing = carry_last_finite(own["score"].to_numpy(dtype=float))
            values, missing = values[-len(trained) :], missing[-len(trained) :]
            latest, carried = float(values[-1]), int(missing[-last:].sum())
            final = tail_mean(values, last) if run["state"] == "finished" else None
        out.append(
            RunOutcome(
                arm=str(run["arm"]),
                seed=int(run["seed"]),
                state=str(run["state"]),
                start=float(start.iloc[0]) if len(start) and start.notna().iloc[0] else None,
                final=final,
                latest=latest,
                evaluations=len(trained),
                carried=carried,
                errors=int(np.nansum(trained["errors"].to_numpy(dtype=float)[-last:])),
                stability=stable.get(str(run["run_id"])),
            )
        )
    return out


_READ: "WeakKeyDictionary[Evidence, dict[str, dict[str, Stability]]]" = WeakKeyDictionary()
"""An Evidence shows one moment for as long as it is open, so a study's runs are judged once."""


def stabilities(evidence: "Evidence", study: str) -> dict[str, Stability]:
    """Per run id what its reward and its non-finite updates say; runs without a recorded reward are left out."""
    read = _READ.setdefault(evidence, {})
    if study not in read:
        read[study] = _stabilities(evidence, study)
    return read[study]


def _stabilities(evidence: "Evidence", study: str) -> dict[str, Stability]:
    rewards = evidence.series(study, "steps", "reward_mean")
    bad = evidence.updates(study, [], nonfinite=1)
    out = {}
    for run in evidence.runs(study).to_dict("records"):
        name = str(run["run_id"])
        steps, reward = rewards.get(name, ((), ()))
        if len(steps):
            fatal = [int(step) for step in bad[bad["run_id"] == name]["step"]]
            out[name] = stability(steps, reward, int(run["steps_planned"]), nonfinite_steps=fatal)
    return out
