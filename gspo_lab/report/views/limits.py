"""The limits that follow from what the study is."""

from dataclasses import dataclass

from gspo_lab.analysis.claims import LIBRARY
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import starting_limits
from gspo_lab.analysis.readings import FINISHED, Reading, Source, Steps, Window, read
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.report.templating import statements
from gspo_lab.report.views.view import PageOnly, View
from gspo_lab.study import Declaration

CENTRAL = ("C04-clip-gap", "C12-grpo-needs-replay", "C14-more-efficient", "C23-stable-then-equal")
"""Claims that most readers come with; what speaks against them is told where a study declares none
of its own.
"""


@dataclass(frozen=True)
class LimitsView(View):
    """What the reader should not conclude; published counter-evidence where no declared claim
    brings it."""

    id = "limits"
    title = "Limits and counter-evidence"
    limits: list[str]
    counter_evidence: PageOnly[list[tuple[str, str]]]
    """A report and its source."""


def limits_view(study: Source) -> LimitsView:
    """The limits of any study."""
    lines = limitations(study.declaration)
    ended = decision(study).ended
    if errors := sum(run.errors for run in ended if run.final is not None):
        lines.append(
            f"{errors} of the answers that decide could not be graded. Scores leave them out; a"
            " verdict is given only where the same word comes out with all of them counted as"
            " wrong, and where neither arm has more of them than chance explains (sign test over"
            " problems). What a grader would have said of them is not known."
        )
    arms = study.declaration.arms.values()
    if any(arm.settings.rollout.tokens_per_step is not None for arm in arms):
        waiting = read(study, Reading("waiting_responses", Window(Steps.LAST)))
        count = sum(int(waiting[run.id].value or 0) for run in runs_of(study, FINISHED))
        lines.append(
            f"{count} responses were asked for and not over when their runs ended: sampled, never"
            " trained on."
        )
    against: dict[str, str] = {}
    if not study.declaration.claims:
        for name in CENTRAL:
            against |= {report.text: report.source for report in LIBRARY[name].counter}
    return LimitsView(lines, list(against.items()))


def limitations(declared: Declaration) -> list[str]:
    """What the reader should not conclude, from what this study is."""
    return statements("limitations", declared, starting_limits(declared))
