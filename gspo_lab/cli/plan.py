from collections.abc import Callable
from typing import TYPE_CHECKING

from gspo_lab.cli.shared_options import RUNS, Jobs, Json, On, Runs, Sd, of_a_study

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = (
    "gspo-lab plan studies/moe_stability.toml",
    "gspo-lab plan my.toml --seeds 8",
    "gspo-lab plan my.toml --sd 0.03",
)


@of_a_study
def plan(
    wanted: "Callable[..., Study]",
    jobs: Jobs = None,
    on: On = "local",
    sd: Sd = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Estimate time, memory and the smallest detectable effect."""
    from dataclasses import asdict

    from gspo_lab.cli.output import print_json, print_lines
    from gspo_lab.plan import plan as plan_study
    from gspo_lab.plan.detectable import detectable

    study = wanted()
    planned, found = plan_study(study, runs, on=on, jobs=jobs), detectable(study, runs, sd)
    if json:
        print_json({**planned.to_json(), "detectable": asdict(found)})
    else:
        print_lines([*planned.lines(), found.line()])
