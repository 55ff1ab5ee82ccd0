from typing import Annotated

import typer

from gspo_lab.cli.options import RUNS, Json, Runs, evidence_of, study_named
from gspo_lab.states import Exit

EXAMPLES = "Examples:  gspo-lab certify quickstart   |   gspo-lab certify moe_stability --json"


def certify(
    study: Annotated[str | None, typer.Argument(help="A study that was run; the latest if none is named.")] = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Print the proof that a study's runs are matched, check by check. Exit code 1 where they are not."""
    from gspo_lab.cli.output import print_json
    from gspo_lab.findings import Findings

    with evidence_of(runs) as evidence:
        found = Findings(evidence, study_named(evidence, study, runs)).certificate
    if json:
        print_json(found.to_json())
    else:
        typer.echo("\n".join(found.lines()))
    raise typer.Exit(Exit.FINISHED if found.ok else Exit.INCOMPLETE)
