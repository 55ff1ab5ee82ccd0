"""The limits that follow from what the study is."""

from dataclasses import dataclass

from gspo_lab.analysis.claims import LIBRARY
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import starting_limits
from gspo_lab.analysis.readings import FINISHED, Reading, Source, Steps, Window, read
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.common.text import counted
from gspo_lab.report.views.view import PageOnly, View
from gspo_lab.study import Declaration

CENTRAL = ("C04-clip-gap", "C12-grpo-needs-replay", "C14-more-efficient", "C23-stable-then-equal")
"""Claims that most readers come with; what speaks against them is told where a study declares none
of its own.
"""
IMPORTED = (
    (
        "These runs were imported: they are compared as logged. What no log says (prompts, code,"
        " weights, most settings) may differ between the arms, and nothing here would show it."
    ),
    (
        "Question, arms and the rule of the verdict were declared when the runs were imported,"
        " after they were made."
    ),
    (
        "A row of a log may be a mean over several updates: nothing here says what a single update"
        " did."
    ),
)


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
    lines = []
    for name, reason in declared.waived.items():
        lines.append(
            f"The check {name} says that this comparison says little. The study's author answers:"
            f" {reason}"
        )
    lines += _seed_limits(len(declared.seeds))
    lines += starting_limits(declared)
    if declared.recorded is not None:
        return [*lines, *IMPORTED]
    by_arm = [arm.settings for arm in declared.arms.values()]
    models = sorted({settings.model for settings in by_arm})
    if any(settings.embedded for settings in by_arm):
        lines.append(
            f"The model ({', '.join(models)}) is tiny and its task is small: what is seen here"
            " shows how the objectives work, not what they do to a large model with long"
            " responses."
        )
    tasks = sorted({settings.task.name for settings in by_arm})
    lines += _settings_limits(declared, ", ".join(tasks))
    if any(settings.rollout.coupled for settings in by_arm):
        lines.append(
            "Arms of one seed share their random numbers; that sharpens the comparison and says"
            " nothing about other seeds."
        )
    lines.append(
        "Only the declared score carries the verdict; the curves and the other numbers are"
        " descriptive."
    )
    if not any(settings.bench for settings in by_arm):
        lines.append(
            "No benchmark was declared: training reward alone cannot tell learning from reward"
            " hacking."
        )
    return lines


def _seed_limits(seeds: int) -> list[str]:
    if seeds < 3:
        return [f"{counted(seeds, 'seed')}: no interval can be given; three are the least."]
    if seeds < 5:
        return [
            f"{seeds} seeds: the spread over seeds, and with it the interval, is itself known only"
            " roughly."
        ]
    return []


def _settings_limits(declared: Declaration, tasks: str) -> list[str]:
    tune = declared.tune
    if tune is None or not tune.chosen:
        return [
            f"One task ({tasks}), one set of settings: another learning rate or clip range may turn"
            " the order."
        ]
    chosen: dict[str, None] = {}
    for arm in tune.candidates:
        chosen |= dict.fromkeys(tune.keys(arm))
    lines = [
        f"One task ({tasks}). Each arm chose {', '.join(chosen)} on a small budget among"
        f" {tune.number} candidates, and declares all else: other candidates, a larger budget or"
        " other settings may turn the order."
    ]
    if tune.metric == declared.primary:
        lines.append(
            f"The trials were asked the problems of {tune.metric} that decide here, too: of every"
            " arm alike, the best score of a few was taken, which is a little better than it will"
            " be on other problems."
        )
    return lines
