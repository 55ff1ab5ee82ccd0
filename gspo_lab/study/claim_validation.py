"""What a `[[claim]]` may name: built-in claims and their roles, recorded metrics, the study's arms
and benchmarks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import get_args, get_type_hints

from gspo_lab.common.plain_data import Strings
from gspo_lab.common.registry import look_up, nearest, unlisted
from gspo_lab.recording.records import Record, StepRecord, UpdateRecord
from gspo_lab.study.verdict_tables import ClaimTable

CLAIM_ROLES: dict[str, str] = {
    "grpo": "token-level ratio, no replay",
    "gspo": "sequence-level ratio, no replay",
    "gspo-token": "GSPO-token's ratio, no replay",
    "grpo-replay": "the grpo arm with routing replay",
    "gspo-replay": "the gspo arm with routing replay",
}
"""The roles of built-in claims, and the arm that plays each by default."""
IN_PLACE_ROLES = ("of", "against")
IN_PLACE = ("source", "statistic", "comparison", "above", "below", "inside")
OVER_UPDATES = (
    "mean over updates",
    *(f"mean over updates with minibatch {window}" for window in ("= 0", ">= 1")),
)
OVER_STEPS = ("mean over steps",)
OF_BENCHMARKS = ("mean over the last evaluations",)
OF_ALL = ("area under the curve", "largest", "mean over the last fifth")


LISTS = {name: f"gspo_lab.analysis.claims:{name}" for name in ("LIBRARY", "UNTESTED")}
"""Where the built-in claims are listed; imported only for a study that declares claims."""


def claim_names() -> Strings:
    """The names that a study may give without a metric: claims of the libraries, and the untested
    ones.
    """
    lists = [look_up("list of claims", name, LISTS) for name in LISTS]
    return tuple(sorted(chain(*lists)))


def broken_claims(
    claims: Sequence[ClaimTable], arms: Iterable[str], benches: Sequence[str]
) -> list[str]:
    """One line per mistake in the claims of a study with these arms and benchmarks."""
    names = [claim.name for claim in claims]
    out = [f"claim.{name}: declared twice" for name in sorted(set(names)) if names.count(name) > 1]
    for claim in claims:
        out += [f"claim.{claim.name}{line}" for line in _mistakes(claim, list(arms), benches)]
    return out


def _mistakes(claim: ClaimTable, arms: Sequence[str], benches: Sequence[str]) -> Iterator[str]:
    roles = tuple(CLAIM_ROLES) if claim.metric is None else IN_PLACE_ROLES
    for role, arm in (claim.arms or {}).items():
        if role not in roles:
            yield f".arms: no role {unlisted(role, roles, 'roles:')}"
        if arm not in arms:
            yield f".arms.{role}: no arm {unlisted(arm, arms, 'this study has')}"
    library = claim_names()
    if claim.metric is not None and claim.name not in library:
        yield from _table_mistakes(claim, claim.metric, benches)
    elif claim.metric is not None:
        yield (
            f": a built-in claim's name; a claim with metric = '{claim.metric}' needs a name of"
            " its own"
        )
    elif stray := [key for key in IN_PLACE if getattr(claim, key) is not None]:
        yield f".{stray[0]}: belongs to a claim written in place, which names a metric too"
    elif claim.name not in library:
        short = [name for name in library if name.partition("-")[0] == claim.name]
        hint = f" (did you mean '{short[0]}'?)" if short else nearest(claim.name, library)
        yield (
            f": no such claim{hint}; gspo-lab claims lists them, a claim of your own names a metric"
        )


def _table_mistakes(claim: ClaimTable, metric: str, benches: Sequence[str]) -> Iterator[str]:
    yield from (
        f".{key}: missing" for key in ("statistic", "comparison") if getattr(claim, key) is None
    )
    if sum(bound is not None for bound in (claim.above, claim.below, claim.inside)) != 1:
        yield ": say where the result is expected by one of above, below, inside"
    if claim.inside is not None and not claim.inside[0] < claim.inside[1]:
        yield f".inside: the first must be smaller than the second; got {claim.inside}"
    expected = [
        bound for bound in (claim.above, claim.below, *(claim.inside or ())) if bound is not None
    ]
    if claim.comparison == "ratio" and any(bound <= 0 for bound in expected):
        yield ": a ratio is expected against bounds above 0"
    of_updates = numbers(UpdateRecord)
    of_steps = numbers(StepRecord)
    kinds = {OVER_UPDATES: of_updates, OVER_STEPS: of_steps, OF_BENCHMARKS: benches}
    fitting = next((names for names, metrics in kinds.items() if metric in metrics), None)
    if fitting is None:
        hint = nearest(metric, [*of_updates, *of_steps, *benches])
        yield f".metric: no metric or benchmark '{metric}'{hint}; docs/reference/metrics.md"
    elif claim.statistic is not None and claim.statistic not in (*fitting, *OF_ALL):
        yield (
            f".statistic: '{claim.statistic}' does not fit {metric}; use one of"
            f" {', '.join((*fitting, *OF_ALL))}"
        )


def numbers(record: type[Record]) -> list[str]:
    """The fields of a record that hold one number each, without its keys."""
    hints = get_type_hints(record)
    return [
        entry.name
        for entry in fields(record)
        if entry.name not in ("step", "minibatch")
        and {int, float} & {hints[entry.name], *get_args(hints[entry.name])}
    ]
