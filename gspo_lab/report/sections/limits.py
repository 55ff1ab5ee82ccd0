"""What this study cannot say, in words, and what others have found that speaks against it."""

from gspo_lab.claims import LIBRARY
from gspo_lab.findings import starting
from gspo_lab.findings.decision import decision
from gspo_lab.readings import FINISHED, Reading, Source, Steps, Window, average, read, runs
from gspo_lab.report.markup import h, number, plain
from gspo_lab.report.section import Section
from gspo_lab.report.sections.grounds import models
from gspo_lab.study import Declaration
from gspo_lab.words.text import listed

CENTRAL = ("C04-clip-gap", "C12-grpo-needs-replay", "C14-more-efficient", "C23-stable-then-equal")
"""Claims that most readers come with; what speaks against them is told where a study declares none of its own."""


IMPORTED = (
    "These runs were imported: they are compared as logged. What no log says (prompts, code, weights, most settings) "
    "may differ between the arms, and nothing here would show it.",
    "Question, arms and the rule of the verdict were declared when the runs were imported, after they were made.",
    "A row of a log may be a mean over several updates: nothing here says what a single update did.",
)


def limits_section(found: Source) -> Section | None:
    """The limits that follow from what the study is; published counter-evidence where no declared claim brings it."""
    said = [*limits(found.declaration), *_ungraded(found), *_unfinished(found)]
    body = [h("ul", *(h("li", line) for line in said))]
    if not found.declaration.claims:
        against = {one.text: one.source for name in CENTRAL for one in LIBRARY[name].counter}
        listed = (h("li", f"{what}. ", h("span", source, class_="soft")) for what, source in against.items())
        title = f"Published evidence against the claims, whatever this study found, {len(against)} reports"
        body.append(h("details", h("summary", title), h("ul", *listed)))
    markdown = "\n".join(f"- {plain(line)}" for line in said)
    return Section("limits", "Limits and counter-evidence", tuple(body), {"limits": said}, markdown)


def do_not_conclude(found: Source) -> str:
    """One sentence: what the study says nothing about."""
    every = [arm.settings for arm in found.declaration.arms.values()]
    if found.declaration.recorded is not None or not every:
        return "Do not conclude that the arms differ in nothing but what they declare: their logs do not show it."
    tokens = average(value.value for value in read(found, Reading("response_tokens_mean", Window(Steps.ALL))).values())
    mean = "" if tokens is None else f" (here {number(tokens, 2)} tokens on average)"
    out = [f"larger models (here {models(found)})", f"longer answers{mean}"]
    if not all(one.embedded and one.warm_start.per_seed for one in every):
        out.append("other starting models (here one, shared by all seeds)")
    return f"Do not conclude anything about {listed(out, 'or')}."


def _ungraded(found: Source) -> list[str]:
    """What the deciding answers without a grade leave open."""
    ended = decision(found).ended
    errors = sum(one.errors for one in ended if one.final is not None)
    if not errors:
        return []
    return [
        f"{errors} of the answers that decide could not be graded. Scores leave them out; a verdict is given only "
        "where the same word comes out with all of them counted as wrong, and where neither arm has more of them than "
        "chance explains (sign test over problems). What a grader would have said of them is not known."
    ]


def _tuned(declared: Declaration, tasks: str) -> list[str]:
    """What the settings that the arms train with leave open."""
    tune = declared.tune
    if tune is None or not tune.chosen:
        return [f"One task ({tasks}), one set of settings: another learning rate or clip range may turn the order."]
    keys = ", ".join(dict.fromkeys(key for arm in tune.candidates for key in tune.keys(arm)))
    out = [
        f"One task ({tasks}). Each arm chose {keys} on a small budget among {tune.number} candidates, and declares all "
        "else: other candidates, a larger budget or other settings may turn the order."
    ]
    if tune.metric == declared.primary:
        out.append(
            f"The trials were asked the problems of {tune.metric} that decide here, too: of every arm alike, the best "
            "score of a few was taken, which is a little better than it will be on other problems."
        )
    return out


def _unfinished(found: Source) -> list[str]:
    """Responses in pieces that no step was left for."""
    if all(arm.settings.rollout.tokens_per_step is None for arm in found.declaration.arms.values()):
        return []
    waiting = read(found, Reading("waiting_responses", Window(Steps.LAST)))
    left = sum(int(waiting[run.id].value or 0) for run in runs(found, FINISHED))
    return [f"{left} responses were asked for and not over when their runs ended: sampled, never trained on."]


def limits(declared: Declaration) -> list[str]:
    """What the reader should not conclude, from what this study is."""
    every = [arm.settings for arm in declared.arms.values()]
    seeds = len(declared.seeds)
    out = [
        f"The check {name} says that this comparison says little. The study's author answers: {reason}"
        for name, reason in declared.waived.items()
    ]
    if seeds < 3:
        out.append(f"{seeds} seed{'' if seeds == 1 else 's'}: no interval can be given; three are the least.")
    elif seeds < 5:
        out.append(f"{seeds} seeds: the spread over seeds, and with it the interval, is itself known only roughly.")
    out += starting.limits(declared)
    if declared.recorded is not None:
        return [*out, *IMPORTED]
    models = sorted({one.model for one in every})
    if any(one.embedded for one in every):
        out.append(
            f"The model ({', '.join(models)}) is tiny and its task is small: what is seen here shows how the "
            "objectives work, not what they do to a large model with long responses."
        )
    tasks = sorted({one.task.name for one in every})
    out += _tuned(declared, ", ".join(tasks))
    if any(one.rollout.coupled for one in every):
        out.append(
            "Arms of one seed share their random numbers; that sharpens the comparison and says nothing about other "
            "seeds."
        )
    out.append("Only the declared score carries the verdict; the curves and the other numbers are descriptive.")
    if not any(bench for one in every for bench in one.bench):
        out.append("No benchmark was declared: training reward alone cannot tell learning from reward hacking.")
    return out
