from typing import Annotated

import typer

from gspo_lab.cli.options import RUNS, Json, Runs, evidence_of, run_named

EXAMPLES = "Examples:  gspo-lab why quickstart/grpo/s0 quickstart/gspo/s0   |   gspo-lab why a/gspo/s0 b/gspo/s0 --json"


def why(
    run_a: Annotated[str, typer.Argument(metavar="RUN", help="A run, such as quickstart/grpo/s0.", show_default=False)],
    run_b: Annotated[str, typer.Argument(metavar="RUN", help="Another one, of any study.", show_default=False)],
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Show where two runs part: the first setting, package, weight, prompt, token or update in which they differ."""
    from gspo_lab.cli.output import print_json, print_lines
    from gspo_lab.matching.why import lines
    from gspo_lab.matching.why import why as first_difference

    with evidence_of(runs) as evidence:
        run_a, run_b = (run_named(evidence, name) for name in (run_a, run_b))
        found = first_difference(evidence, run_a, run_b)
    if json:
        print_json(None if found is None else found.to_json())
    else:
        print_lines(lines(found, run_a, run_b))
