"""What a study's end tells at once: per arm the scores, the reward and the clipping, and one line of what was seen.

The word is that of `stats.decide`; its grounds are in the report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gspo_lab.conduct.crew import Ending
from gspo_lab.matching import certificate
from gspo_lab.store import Evidence
from gspo_lab.study import Study

if TYPE_CHECKING:
    from gspo_lab.claims.outcomes import Outcome as RunOutcome

REFUSED = 2
INTERRUPTED = 130
FEWEST_SEEDS = 3
"""With two the interval is so wide that it says nothing."""
TAIL = 0.1
"""The reward shown is the mean over this last share of the steps."""


@dataclass(frozen=True)
class ArmResult:
    """One arm over its seeds. None: not measured."""

    arm: str
    runs: int
    finished: int
    scores: dict[int, float | None]
    """Per seed the primary benchmark's score, mean of the last `verdict.last` evaluations."""
    reward: float | None
    """Mean training reward over the last tenth of the steps, mean of the seeds."""
    clipped: float | None
    """Share of response tokens clipped on mini-batches >= 1 (on the first one all ratios are 1), mean of the seeds."""
    collapsed: int | None
    """Runs that collapsed, by the rule of `stats.collapse`; None where no run is long enough to be judged."""

    @property
    def score(self) -> float | None:
        return _mean(self.scores.values())


@dataclass(frozen=True)
class Outcome:
    """How a study stands after `conduct`."""

    study: str
    primary: str | None
    arms: tuple[ArmResult, ...]
    failures: tuple[str, ...]
    seen: str
    exit_code: int
    """0 all runs finished; 1 some did not; 2 what failed can be fixed by the user; 130 interrupted."""
    report: object | None = None

    def table(self) -> Table:
        """The arms, for a console."""
        table = Table(box=None, pad_edge=False)
        table.add_column("arm")
        for name in ("runs", self.primary or "score", "per seed", "reward", "clipped", "collapsed"):
            table.add_column(name, justify="right")
        for arm in self.arms:
            seeds = " ".join(_shown(score, ".3f") for score in arm.scores.values())
            done = f"{arm.finished}/{arm.runs}"
            reward, clipped = _shown(arm.reward, ".3f"), _shown(arm.clipped, ".2%")
            collapsed = _shown(arm.collapsed, "d")
            table.add_row(arm.arm, done, _shown(arm.score, ".3f"), seeds, reward, clipped, collapsed)
        return table

    def to_json(self) -> dict[str, Any]:
        arms = [{**vars(arm), "score": arm.score} for arm in self.arms]
        return {
            "study": self.study,
            "primary": self.primary,
            "arms": arms,
            "failures": list(self.failures),
            "seen": self.seen,
            "exit_code": self.exit_code,
            "report": None if self.report is None else str(self.report),
        }


def outcome(study: Study, database: Path, endings: Sequence[Ending], *, interrupted: bool) -> Outcome:
    """The outcome of a study whose journals are in the database."""
    from gspo_lab.claims.dose_response import dose_response

    failures = tuple(ending.line for ending in endings if ending.state != "finished")
    with Evidence.open(database) as evidence:
        arms = arm_results(evidence, study)
        known = study.name in evidence.studies()
        matched = certificate(evidence, study.name) if known else None
        doses = dose_response(evidence, study.name) if known else None
    withheld = matched.against(baseline_arm(study)) if matched is not None else {}
    complete = all(arm.finished == arm.runs for arm in arms)
    failed = {ending.code for ending in endings if ending.state == "failed"}
    if interrupted:
        code = INTERRUPTED
    elif failed:
        code = REFUSED if failed == {REFUSED} else 1
    else:
        code = 0 if complete else 1
    seen = summary(arms, study, withheld) if doses is None else "\n".join(doses.told(matched))
    return Outcome(study.name, primary_bench(study), arms, failures, seen, code)


def primary_bench(study: Study) -> str | None:
    """The benchmark whose score decides: the verdict's, or else the first."""
    benches = next(iter(study.arms.values())).settings.bench
    return study.verdict.primary or (benches[0].name if benches else None)


def baseline_arm(study: Study) -> str:
    """The arm that others are compared with: the verdict's, or else the first."""
    return study.verdict.baseline or next(iter(study.arms))


def arm_results(evidence: Evidence, study: Study) -> tuple[ArmResult, ...]:
    """Per arm of `study` what its runs have shown so far."""
    from gspo_lab.claims.outcomes import outcomes

    if study.name not in evidence.studies():
        seeds = study.seeds
        return tuple(ArmResult(name, len(seeds), 0, dict.fromkeys(seeds), None, None, None) for name in study.arms)
    runs = evidence.runs(study.name)
    steps = evidence.steps(study.name, ["reward_mean"])
    clipped = evidence.by_minibatch(study.name, {"clip_fraction_tokens": "response_tokens"})
    # One rule for a run's final score and its collapse, the report's too.
    ended = {(one.arm, one.seed): one for one in outcomes(evidence, study.name, primary_bench(study) or "")}
    out = []
    for name, arm in study.arms.items():
        mine = runs[(runs["arm"] == name) & runs["seed"].isin(study.seeds)]
        tail = arm.settings.steps - max(1, round(arm.settings.steps * TAIL))
        rewards, clips = [], []
        for run_id in mine["run_id"]:
            own_steps, own_clipped = (table[table["run_id"] == run_id] for table in (steps, clipped))
            rewards.append(_known(own_steps[own_steps["step"] >= tail]["reward_mean"].mean()))
            clips.append(_weighted(own_clipped[own_clipped["minibatch"] >= 1], "clip_fraction_tokens"))
        mine_ended = [ended[name, seed] for seed in study.seeds if (name, seed) in ended]
        judged = [one.collapsed for one in mine_ended if one.judged]
        out.append(
            ArmResult(
                arm=name,
                runs=len(study.seeds),
                finished=int((mine["state"] == "finished").sum()),
                scores={seed: _final(ended.get((name, seed))) for seed in study.seeds},
                reward=_mean(rewards),
                clipped=_mean(clips),
                collapsed=sum(judged) if judged else None,
            )
        )
    return tuple(out)


def summary(arms: Sequence[ArmResult], study: Study, withheld: Mapping[str, Sequence[str]] | None = None) -> str:
    """What the study's rule says of each arm against the baseline, with the difference seed by seed: a line for each.

    `withheld` has, per arm, what is known to forbid a verdict (runs that are not matched); runs that are missing are
    added here.
    """
    from gspo_lab.stats.verdict import decide

    primary = primary_bench(study)
    if primary is None:
        return "no benchmark, so no score to compare"
    baseline = baseline_arm(study)
    base = next((arm for arm in arms if arm.arm == baseline), None)
    if base is None or len(arms) < 2:
        return f"{primary}: " + ", ".join(f"{arm.arm} {_shown(arm.score, '.3f')}" for arm in arms)
    parts = []
    for arm in arms:
        if arm.arm == baseline:
            continue
        both = ((base.scores[seed], arm.scores[seed]) for seed in study.seeds)
        pairs = [(a, b) for a, b in both if a is not None and b is not None]
        if not pairs:
            parts.append(f"{arm.arm} against {baseline}: no pair of runs with a score yet")
            continue
        difference = _mean(b - a for a, b in pairs)
        seeds = " ".join(f"{b - a:+.3f}" for a, b in pairs)
        unfinished = arm.runs - arm.finished + base.runs - base.finished
        reasons = [*(withheld or {}).get(arm.arm, ()), *([f"{unfinished} runs unfinished"] if unfinished else [])]
        said = f"No verdict on {arm.arm} against {baseline}: {len(pairs)} seeds, {FEWEST_SEEDS} are needed."
        if len(pairs) >= FEWEST_SEEDS:
            of_base, of_arm = zip(*pairs, strict=True)
            rule, labels = study.verdict, (baseline, arm.arm)
            said = decide(of_base, of_arm, rule.margin, rule.alpha, labels, withheld_because=reasons).sentence
        parts.append(f"{said} {arm.arm} - {baseline}: {difference:+.3f} ({seeds})")
    return "\n".join([f"{primary}:", *parts] if len(parts) > 1 else [f"{primary}: {part}" for part in parts])


def _final(ended: "RunOutcome | None") -> float | None:
    """The score that decides; of a run under way, where it stands."""
    return None if ended is None else ended.latest if ended.final is None else ended.final


def _weighted(frame: Any, metric: str) -> float | None:
    """Of `Evidence.by_minibatch`: shares of batches of unequal size are put together by their tokens."""
    known = frame[frame[metric].notna()]
    weights = known[f"{metric}.weight"]
    return _known((known[metric] * weights).sum() / weights.sum()) if len(known) else None


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _known(value: Any) -> float | None:
    """A frame's NaN is an unknown."""
    return None if value is None or value != value else float(value)


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
