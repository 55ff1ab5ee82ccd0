from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.options import RUNS, Json, Runs, evidence_of, study_named

if TYPE_CHECKING:
    from gspo_lab.claims import Estimate, Result

EXAMPLES = (
    "Examples:  gspo-lab claims   |   gspo-lab claims moe_stability   |   gspo-lab claims quickstart --all --json"
)


def claims(
    study: Annotated[str | None, typer.Argument(help="A study that was run; without one, list the library.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every built-in claim, declared or not.")] = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """List the claims of the literature, or say what a study's runs make of those that it declares."""
    if study is None:
        _library(json)
        return
    from gspo_lab.claims import judge
    from gspo_lab.cli.output import print_json
    from gspo_lab.findings import Findings

    with evidence_of(runs) as evidence:
        name = study_named(evidence, study, runs)
        results = judge(Findings(evidence, name), every=every)
    if json:
        print_json([result.as_data() for result in results])
        return
    if not results:
        typer.echo(f"{name} declares no claim; --all evaluates every built-in one")
    for result in results:
        _print(result)
    if any(not result.declared for result in results):
        typer.echo("claims marked 'description' were not declared before the run; they carry no verdict")


def _library(json: bool) -> None:
    from gspo_lab.claims import LIBRARY
    from gspo_lab.cli.output import print_json

    if json:
        print_json([claim.as_data() for claim in LIBRARY.values()])
        return
    for claim in LIBRARY.values():
        wanted = claim.unrecorded or "; ".join(claim.wanted)
        typer.echo(f"{claim.id:<22} {claim.grade:<4} {claim.statement}")
        typer.echo(f"{'':<27} {'cannot be tested here' if claim.unrecorded else 'needs'}: {wanted}")
        typer.echo(f"{'':<27} [{claim.source}]")


def _print(result: "Result") -> None:
    mark = "" if result.declared else "  (description)"
    typer.echo(f"{result.claim.id}: {result.word}{mark}")
    typer.echo(f"    {result.claim.statement} [{result.claim.source}]")
    typer.echo(f"    source: {result.claim.value}")
    for one in (*result.parts, *result.also):
        typer.echo(f"    here:   {_estimate(one)}")
    typer.echo(f"    reason: {result.reason}")
    for counter in result.claim.counter:
        typer.echo(f"    but:    {counter.text} [{counter.source}]")
    typer.echo("")


def _estimate(one: "Estimate") -> str:
    shown = "not measured" if one.estimate is None else f"{one.estimate:.4g}"
    if one.interval is not None:
        shown += f", 95 % interval {one.interval[0]:.4g} to {one.interval[1]:.4g}"
    return f"{one.name} = {shown} (n = {one.n}; {one.criterion})"
