"""Run folders with numbers checked by hand, and the evidence that `ingest` makes of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from laboratory import added_later, declare, leave

from gspo_lab.analysis.claims import Result, judge
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.matching import accept_mismatch
from gspo_lab.analysis.readings import Source
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import DATABASE, Evidence, ingest
from gspo_lab.study import Run, load_study

HEAD = """
question = "Which of the claims hold?"
model = "tiny-qwen3"
task = "addition"
steps = {steps}
seeds = {seeds}
[update]
minibatches = {minibatches}
warmup_updates = 0
[verdict]
last = 2
{verdict}
[[bench]]
name = "addition"
problems = {problems}
every = {every}
"""
PAIR = '[arm.grpo]\nobjective = "grpo"\n[arm.gspo]\nobjective = "gspo"\n'
MOE = "\n".join(
    f'[arm.{rule}{name}]\nobjective = "{rule}"\nmodel = "tiny-qwen3-moe"\nrouting_replay ='
    f' "{replay}"'
    for rule in ("grpo", "gspo")
    for name, replay in (("", "none"), ("-replay", "old-policy"))
)

Fields = dict[str, Any]


class Numbers:
    """What a run records; a test overrides what its claim reads.

    All are constant and alike in both arms.
    """

    def update(self, run: Run, step: int, minibatch: int) -> Fields:
        return {}

    def step(self, run: Run, step: int) -> Fields:
        return {}

    def right(self, run: Run, step: int) -> int:
        """Problems answered rightly after `step` steps."""
        return 5

    def finished(self, run: Run) -> bool:
        return True

    def facts(self, run: Run) -> Fields:
        """What its worker found out about itself."""
        return {}


def results(
    folder: Path,
    numbers: Numbers,
    *,
    library: bool = True,
    added: Sequence[int] = (),
    accept: bool = True,
    **settings: Any,
) -> dict[str, Result]:
    """Claim id -> result, for a study of `evidence`.

    With `library` the other built-in claims are read too. Unless `accept` is off, differences of
    the arms before the first update are accepted mismatches, so that claims are judged. Seeds in
    `added` came later.
    """
    evidence(folder, numbers, **settings).close()
    if added:
        added_later(folder / "runs", "toy", *added)
    with Evidence.open(folder / "runs" / DATABASE) as opened:
        found = Source(opened, "toy")
        if accept and study_certificate(found).open:
            accept_mismatch(opened, found.declaration, "made up")
            found = Source(opened, "toy")
        return {one.claim.id: one for one in judge(found, every=library)}


def result(folder: Path, numbers: Numbers, claim: str, **settings: Any) -> Result:
    """The result of one built-in claim, which the study declares and which is judged alone."""
    return results(folder, numbers, claims=[claim], library=False, **settings)[claim]


def evidence(
    folder: Path,
    numbers: Numbers,
    *,
    arms: str = PAIR,
    claims: Sequence[str] = (),
    tables: str = "",
    **settings: Any,
) -> Evidence:
    """The runs of a study of these arms.

    `claims` are declared by name; `tables` is further TOML.
    """
    named = {
        "seeds": 3,
        "steps": 2,
        "minibatches": 4,
        "problems": 10,
        "every": 5,
        "verdict": "",
        **settings,
    }
    declared = "".join(f'[[claim]]\nname = "{name}"\n' for name in claims)
    folder.mkdir(exist_ok=True)
    path = folder / "toy.toml"
    path.write_text(HEAD.format(**named) + arms + "\n" + tables + declared)
    study = load_study(path)
    runs = folder / "runs"
    declare(study, runs)
    for run in study.runs():
        leave(run, runs, _history(run, numbers))
    ingest(runs)
    return Evidence.open(runs / DATABASE)


def _history(run: Run, numbers: Numbers) -> list[Record]:
    settings = run.settings
    out: list[Record] = [
        RunStatus(state="started", step=0, at=1.0, facts=numbers.facts(run)),
        *_answers(run, 0, numbers),
    ]
    for step in range(settings.steps):
        for minibatch in range(settings.update.minibatches):
            out.append(
                UpdateRecord(
                    step=step, minibatch=minibatch, **_update(run, step, minibatch, numbers)
                )
            )
        fields: Fields = {
            "prompts": 32,
            "responses": 256,
            "reward_mean": 0.5,
            "response_tokens_mean": 10.0,
            "truncated_responses": 0.0,
            "mismatch_k3": 1e-9,
            "prompts_total": 32 * (step + 1),
            "tokens_sampled_total": 2560 * (step + 1),
            "flops_total": 1e9 * (step + 1),
            "rollout_digest": f"text of seed {run.seed}",
        }
        out.append(StepRecord(step=step, **{**fields, **numbers.step(run, step)}))
        if (step + 1) % settings.bench[0].every == 0 or step + 1 == settings.steps:
            out += _answers(run, step + 1, numbers)
    last = "finished" if numbers.finished(run) else "stopped"
    return [*out, RunStatus(state=last, step=settings.steps, at=2.0)]


def _update(run: Run, step: int, minibatch: int, numbers: Numbers) -> Fields:
    fields: Fields = {
        "loss": 0.0,
        "grad_norm": 1.0 + run.seed * 1e-9,  # no two seeds have the very same
        "nonfinite": 0,
        "response_tokens": 1000,
        "active_tokens": 800,
        "clipped_tokens": 0,
        "clip_fraction_tokens": 0.0,
        "clip_fraction_active_tokens": 0.0,
        "log_ratio_max_abs": 0.0 if minibatch == 0 else 0.1,
        "ratio_max_negative": 1.0,
        "stale_k3": 1e-3,
        "expert_change": 0.0 if "moe" in run.settings.model else None,
    }
    return {**fields, **numbers.update(run, step, minibatch)}


def _answers(run: Run, step: int, numbers: Numbers) -> list[Record]:
    right = numbers.right(run, step)
    return [
        AnswerRecord(
            step=step, bench="addition", problem=f"p{i}", sample=0, text="1", correct=int(i < right)
        )
        for i in range(run.settings.bench[0].problems or 0)
    ]


def gives(**methods: Callable[..., Any]) -> Numbers:
    """Numbers with some methods replaced: `gives(update=lambda run, step, minibatch: {...})`."""
    out = Numbers()
    for name, method in methods.items():
        assert hasattr(out, name), name
        setattr(out, name, method)
    return out


def why(result: Result) -> str:
    """All reasons for a claim's word, in English."""
    return result.verdict.because or ""
