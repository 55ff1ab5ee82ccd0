from typing import Annotated

import typer

from gspo_lab.cli.shared_options import RUNS, Json, Runs, evidence_of, run_named

EXAMPLES = (
    "gspo-lab diff quickstart/grpo/s0 quickstart/gspo/s0",
    "gspo-lab diff a/gspo/s0 b/gspo/s0 --json",
)


def diff(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, for example quickstart/grpo/s0.", show_default=False)
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN", help="Another run, of any study.", show_default=False)],
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Show the first difference between two runs.

    Compares settings, packages, weights, prompts, tokens and updates in this order.
    """
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
