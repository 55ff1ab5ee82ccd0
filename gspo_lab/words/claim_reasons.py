"""Why a claim has its word, in English: one entry per code of `claims`."""

from collections.abc import Callable, Mapping, Sequence

from gspo_lab.stats.verdict import NO_INTERVAL, Reason
from gspo_lab.study.claim_rules import CLAIM_ROLES


def _plays(roles: Sequence[str]) -> str:
    wanted = ", ".join(f"{role} ({CLAIM_ROLES.get(role, 'name it under arms')})" for role in roles)
    return f"no arm plays {wanted}"


def _ratio(seed: int, values: Mapping[str, float]) -> str:
    (arm, value), *others = values.items()
    found = " and ".join([f"{arm} has {value:g}", *(f"{other} {number:g}" for other, number in others)])
    return f"a ratio needs values above 0; at seed {seed} {found}"


def _ungraded(left_out: str | None, counted_wrong: str | None) -> str:
    first, second = (word or "inconclusive" for word in (left_out, counted_wrong))
    return f"answers that could not be graded decide: left out it is {first}, counted as incorrect {second}"


def _unstable(counts: Mapping[str, tuple[int, int]]) -> str:
    told = ", ".join(f"{arm} {count} of {judged}" for arm, (count, judged) in counts.items())
    return f"unstable runs: {told}; where runs are unstable, a claim's error rate is above alpha (gspo-lab calibrate)"


def _warm_up(arm: str, steps: int, planned: int, later: bool) -> str:
    after = " and minibatch >= 1" if later else ""
    return f"{arm} has no update after the learning rate's warm-up{after}: {steps} of {planned} steps warm up"


def _nested(reason: Reason) -> str:
    return CLAIMS[reason.code](**reason.data)


def _could_have_seen(name: str, ratio: bool, detectable: float) -> str:
    return f"{name}: these seeds could have seen a {'factor' if ratio else 'difference'} of {detectable:.3g}"


CLAIMS: dict[str, Callable[..., str]] = {
    "untested": lambda why: f"no study here tests it: {why}",
    "no mixture": lambda: "no arm has a mixture of experts: no expert choice was recorded in any of them",
    "no arm plays": _plays,
    "few seeds": lambda count, least: f"{count} seeds finished in every arm it needs; {least} are needed",
    "few updates": lambda arm, count, least: f"{arm} makes {count} updates per rollout batch; {least} are needed",
    "dense model": lambda arm, model: f"{arm} recorded no expert choices: {model} is dense",
    "the sampler's log-probs": (
        lambda arm: f"{arm} takes the sampler's log-probs as the old policy's, so mini-batch 0 may clip"
    ),
    "another aggregation": lambda arm, aggregation: f"{arm} aggregates by {aggregation}, not by seq-mean-token-mean",
    "a dual clip": lambda arm, bound: f"{arm} has a dual clip at {bound:g}",
    "other first rollouts": lambda roles, seed: f"the first rollouts of {' and '.join(roles)} differ at seed {seed}",
    "the paper's range": lambda arm, length: (
        f"{arm} has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of {length:.3g}; use "
        "clip = 'calibrated' or a range of its own"
    ),
    "routing hardly moves": lambda arm, share, least: (
        f"routing hardly moves: {share:.3g} of {arm}'s experts change by the last mini-batch; {least:g} are needed"
    ),
    "no unstable runs": lambda arms, judged: (
        f"stability cannot be compared: 0 of {judged} judged runs of {', '.join(arms)} were unstable"
    ),
    "a collapse": lambda arm, seed, step, cause: f"{arm}, seed {seed}, collapsed at step {step} ({cause})",
    "no reward margin": (
        lambda: "the study declares no verdict.reward_margin: nothing says which training rewards are as good as equal"
    ),
    "the same numerics": lambda arm, dtype, mismatch: (
        f"{arm} samples with the trainer's own engine and precision ({dtype}); its mismatch_k3 is {mismatch:.2g}"
    ),
    "unknown setting": lambda arm, key: f"{arm}: {key} was not recorded",
    "not recorded": lambda metric, arm, seed: f"{metric} was not recorded in {arm}, seed {seed}",
    "never finite": lambda metric, arm, seed: f"{metric} is finite at no step of {arm}, seed {seed}",
    "not finite": lambda metric, arms, seed: f"{metric} is not finite in {' or '.join(arms)}, seed {seed}",
    "only the warm-up": _warm_up,
    "no benchmark for a score": lambda: "the study declares no benchmark, so there is no score",
    "not evaluated": lambda bench, when, arm, seed: f"{bench} was not evaluated {when} the start of {arm}, seed {seed}",
    "nothing clipped": lambda seed: f"neither arm clipped a token at seed {seed}",
    "a ratio of nothing": _ratio,
    "no advantage": lambda first: (
        f"no response of any seed's first {first} had an advantage: the gradients compared are 0"
    ),
    "other mini-batches": lambda counts: (
        f"rollout batches are split into {' and '.join(map(str, counts))} mini-batches: the first update is of other "
        "responses"
    ),
    "ungraded answers decide a claim": _ungraded,
    "broken": lambda part, bug: (
        f"{'this is a bug: ' * bug}{part.name} is {part.estimate:.3g}, {part.criterion} is required"
    ),
    "the other side": lambda parts: f"the whole interval lies on the other side: {', '.join(parts)}",
    "in every run": lambda: "in every run",
    "the stated side": lambda: "the whole interval lies on the stated side",
    "alone it would be": lambda side: f"the interval alone would be {side}",
    "both sides": lambda: "the interval covers both sides",
    "no interval decides": lambda: "no interval decides",
    "could have seen": _could_have_seen,
    "neither side": lambda name: f"{name} is on neither side",
    "Holm's rule": lambda p, adjusted: f"Holm's rule over the declared claims takes p from {p:.3g} to {adjusted:.3g}",
    "support lacks": lambda reason: f"support would also have needed what is lacking here: {_nested(reason)}",
    "of a number": lambda name, reason: f"{name}: {_nested(reason)}",
    "beside it": lambda name, criterion: f"{name}, which decides nothing, is contradicted ({criterion})",
    "unstable runs beside a claim": _unstable,
    NO_INTERVAL: lambda why: why,
    "broken in": lambda runs: f"broken in {', '.join(runs)}",
    "collapses": lambda replayed, without, runs: (
        f"{replayed} of {runs} runs collapsed with replay, {without} of {runs} without"
    ),
    "prompts needed": lambda gspo, grpo: (
        f"mean over seeds: {gspo:.4g} against {grpo:.4g} prompts (half of the common gain)"
    ),
    "within the margin": lambda margin: (
        f"equivalent within the margin: the whole interval lies inside the margin ±{margin:g}"
    ),
    "a ceiling": lambda arm, share: (
        f"{arm} is saturated: it clips {share:.3f} of the active tokens on mini-batches >= 1, so its cf is a ceiling "
        "and the ratio measures the other arm's"
    ),
    "a lower bound": lambda arm, seeds: (
        f"{arm} clipped no token at seed {', '.join(map(str, seeds))}: one token is assumed, so the ratio is a lower "
        "bound there"
    ),
    "few layers": lambda layers, least: (
        f"direction only: the magnitude .05 to .15 is not testable here, the model has {layers} routed layers and "
        f"about {least} are needed"
    ),
    "one learning rate": (lambda: "one learning rate per arm: whether it rises with the learning rate is not judged"),
    "note": lambda text: text,
}
