from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.shared_options import RUNS, Json, Runs, evidence_of, study_named

if TYPE_CHECKING:
    from gspo_lab.claims import Estimate, Result

EXAMPLES = (
    "gspo-lab claims",
    "gspo-lab claims moe_stability",
    "gspo-lab claims quickstart --all --json",
)

JUDGED = "gspo-lab claims STUDY says what a study that was run makes of those that it declares."


def claims(
    study: Annotated[str | None, typer.Argument(help="A study. Default: list the library of claims.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Evaluate every built-in claim, declared or not.")] = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """List published claims, or evaluate those of a study."""
    if study is None:
        _library(json)
        return
    from gspo_lab.claims import judge
    from gspo_lab.cli.output import print_json, print_lines
    from gspo_lab.readings import Source
    from gspo_lab.readings.runs import not_counted as not_counted_of
    from gspo_lab.words import claim_to_json, sentences

    with evidence_of(runs) as evidence:
        name = study_named(evidence, study, runs)
        found = Source(evidence, name)
        results, not_counted = judge(found, every=every), not_counted_of(found)
    if json:
        print_json([claim_to_json(result) for result in results])
        return
    if not results:
        typer.echo(f"{name} declares no claim; --all evaluates every built-in one")
    for result in results:
        print_lines(_lines(result))
    if results:
        print_lines(sentences(not_counted))
    if any(not result.declared for result in results):
        print_lines(["claims marked 'descriptive' were not declared before the run; they have no verdict"])


def _library(json: bool) -> None:
    from gspo_lab.claims import LIBRARY, UNTESTED
    from gspo_lab.cli.output import print_json, print_lines

    if json:
        print_json([claim.as_data() for claim in LIBRARY.values()])
        return
    print_lines([f"The {len(LIBRARY)} claims of the literature that a study can declare; {JUDGED}", ""])
    for claim in LIBRARY.values():
        needs = f"needs: {'; '.join(claim.as_data()['needs'])}"
        told = (f"{claim.id:<22} {claim.grade:<4} {claim.statement}", f"{'':<27} {needs}", f"{'':<27} [{claim.source}]")
        print_lines(told)
    print_lines(["", "No study here tests:", *(f"{name:<22} {lacking}" for name, lacking in UNTESTED.items())])


def _lines(result: "Result") -> Iterator[str]:
    from gspo_lab.words import because, short

    mark = "" if result.declared else "  (descriptive)"
    yield f"{result.claim.id}: {short(result.verdict)}{mark}"
    yield f"    {result.claim.statement} [{result.claim.source}]"
    yield f"    source: {result.claim.value}"
    yield from (f"    here:   {_estimate(one)}" for one in result.parts)
    yield from (f"    beside: {_estimate(one)}: {one.word}" for one in result.also)
    yield f"    reason: {because(result.verdict)}"
    yield from (f"    but:    {counter.text} [{counter.source}]" for counter in result.claim.counter)
    yield ""


def _estimate(one: "Estimate") -> str:
    shown = "not measured" if one.estimate is None else f"{one.estimate:.4g}"
    if one.interval is not None:
        shown += f", {100 * (1 - one.alpha):g} % interval {one.interval[0]:.4g} to {one.interval[1]:.4g}"
    return f"{one.name} = {shown} (n = {one.n}; {one.criterion})"
