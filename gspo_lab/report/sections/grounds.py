"""Why to believe the answer: its grounds as badges, the facts behind each verdict, the ranks of the arms."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gspo_lab.claims import LIBRARY
from gspo_lab.findings.compared import new_problems
from gspo_lab.findings.compared import ranked as ranked_of
from gspo_lab.findings.decision import decision
from gspo_lab.findings.executions import all_executions
from gspo_lab.findings.matched import starting_limits, study_certificate
from gspo_lab.findings.stability import count_unstable_runs
from gspo_lab.findings.stability import verdicts as verdicts_of
from gspo_lab.matching import Certificate
from gspo_lab.matching.pairing import UNKNOWN
from gspo_lab.readings import FINISHED, Reading, Source, Steps, Window, average, read, runs
from gspo_lab.readings import runs as runs_of
from gspo_lab.readings.curves import grader_errors
from gspo_lab.report.calibration import calibration_lines
from gspo_lab.report.card import facts, notes
from gspo_lab.report.chart import Section
from gspo_lab.report.markup import NONE, NOT_MEASURED, Html, between, h, markdown_table, number, plain, table
from gspo_lab.report.sections.replications import linked
from gspo_lab.states import State
from gspo_lab.stats.ranking import Ranking
from gspo_lab.study import Declaration
from gspo_lab.study.origin import ABSENT
from gspo_lab.words import flags, sentence, sentences, unstable_runs
from gspo_lab.words.text import capital, counted, level, listed

Grade = Literal["good", "warn", "neutral"]
MARKS: dict[Grade, str] = {"good": "✓", "warn": "!", "neutral": "·"}
ENOUGH, LEAST = 5, 3
"""Pairs from which "equivalent" can be said, and from which there is an interval at all."""
RANKS = ("arm", "mean score", "rank", "rank interval", "rank on each seed")


class Ground(NamedTuple):
    """One thing that the answer rests on. Good only where all that it needs was recorded."""

    name: str
    text: str
    grade: Grade
    target: str


def grounds(found: Source) -> Section | None:
    """Badges with links to their sections, a table of what each verdict rests on, ranks, and the declared rule."""
    decided, verdicts, ranked = decision(found), list(verdicts_of(found).values()), ranked_of(found)
    badges = []
    for ground in _grounds(found):
        mark = h("b", MARKS[ground.grade], aria_hidden="true")
        text = h("span", ground.text.rstrip("."), "." if ground.text.endswith(".") else "")
        link = h("a", ground.name, href=f"#{ground.target}")
        badges.append(h("li", mark, link, " ", text, class_=f"badge {ground.grade}"))
    body: list[Html] = [h("ul", *badges, class_="trust")]
    if verdicts:
        wider = new_problems(found)
        columns = {one.subject: facts(one, len(decided.seeds), wider.get(one.subject)) for one in verdicts}
        names = list(next(iter(columns.values())))
        rows = [[name, *(column.get(name, NONE) for column in columns.values())] for name in names]
        body.append(table(["", *columns], rows, caption="What each verdict rests on"))
        body += [h("p", f"{sentence(one)} {notes(one, decided.missing.get(one.subject, ()))}") for one in verdicts]
    if ranked is not None:
        caption = (
            f"Rank interval: the ranks that no paired t of two arms excludes, Holm's over all {ranked.compared}: "
            f"{level(ranked.alpha)} for all arms together; nor any verdict. Single seeds are descriptive"
        )
        body.append(table(RANKS, _ranks(ranked), caption=caption))
    rule = " ".join(sentences(decided.described))
    if verdicts:
        rule = (
            f"Decided on {decided.primary}: a run's score is the mean of its last {found.declaration.verdict.last} "
            f"evaluations at the planned end; a pair is two runs with the same seed; {decided.baseline} is the "
            f"baseline. {' '.join(flags(decided))}"
        ).strip()
    scores = list(decided.verdicts.values())
    rates = " ".join(f"{line}." for line in (calibration_lines(scores) if scores else ()))
    parts = ("" if ranked is None else markdown_table(RANKS, _ranks(ranked)), rates, plain(rule))
    body += [h("p", rule, class_="soft")] if rule else []
    return Section("grounds", "How far to trust this", tuple(body), {}, "\n\n".join(filter(None, parts)))


def _grounds(found: Source) -> Iterator[Ground]:
    """Matching and completeness first: without them there is no verdict."""
    declared, matched, verdicts = found.declaration, study_certificate(found), list(decision(found).verdicts.values())
    lacking = matched.unproven or any(states[UNKNOWN] for states in matched.states().values())
    grade: Grade = "warn" if matched.undeclared else "neutral" if lacking or not matched.pairs else "good"
    yield Ground("Matching", badge_text(matched), grade, "certificate")
    planned, runs = len(declared.arms) * len(declared.seeds), count_unstable_runs(found)
    states = [run.state for run in runs_of(found)]
    whole = states.count(State.FINISHED) == (len(states) if decision(found).stopped else planned)
    blocked = runs.all_collapsed or (any(decision(found).missing.values()) and State.RUNNING not in states)
    grade = "warn" if blocked else "good" if whole and not runs.collapsed else "neutral"
    yield Ground("Runs", progress_of(found), grade, "provenance")
    pairs = min((one.paired.n for one in verdicts), default=len(declared.deciding))
    grade = "good" if pairs >= ENOUGH else "neutral" if pairs >= LEAST else "warn"
    yield Ground("Seeds", f"{counted(pairs, 'pair')} of runs", grade, "limits")
    yield Ground("Starting models", *_starts(found), "limits")
    yield Ground("Model", models(found), "neutral", "limits")
    if verdicts:
        family, alpha = len(verdicts), verdicts[0].alpha
        shared = f", shared by {family} arms (Holm)" if family > 1 else ""
        yield Ground("Errors", f"alpha {alpha:g}{shared}", "good", "calibration")
        yield Ground("New problems", *_new_problems(found), "scores")
        rates = calibration_lines(verdicts)
        told = ". ".join(rates) or f"{NOT_MEASURED} for {counted(pairs, 'pair')} at alpha {alpha:g}"
        yield Ground("Calibration", told, "good" if rates else "neutral", "calibration")
    grade = "warn" if all_executions(found).contradicted else "neutral"
    yield Ground("Replications", linked(all_executions(found)) or "none yet", grade, "replications")


def progress_of(found: Source) -> str:
    """How many runs are finished, what became of the others, and how many were unstable."""
    states = Counter(run.state for run in runs_of(found))
    planned = len(found.declaration.arms) * len(found.declaration.seeds)
    finished = states[State.FINISHED]
    if decision(found).stopped and finished == states.total() < planned:
        text = f"All {finished} runs that were needed are finished; {planned - finished} more were declared."
    elif finished == planned:
        text = f"All {planned} runs are finished." if planned > 1 else "The one run is finished."
    else:
        rest = [f"{count} {state}" for state, count in sorted(states.items()) if state != State.FINISHED]
        if (unborn := planned - states.total()) > 0:
            rest.append(f"{unborn} {'not begun' if found.declaration.recorded is None else 'not imported'}")
        text = f"{finished} of {planned} runs are finished ({', '.join(rest)})."
    failed = [
        f"{run.arm} seed {run.seed} {grader_errors(found)[run.id]:.1%}"
        for run in runs_of(found)
        if grader_errors(found).get(run.id)
    ]
    if failed:
        text += f" The grader failed on training responses, which counted as reward 0: {', '.join(failed)} of them."
    return f"{text} {unstable_runs(count_unstable_runs(found))}" if count_unstable_runs(found).finished else text


def badge_text(matched: Certificate) -> str:
    """Whether the runs are matched, in one line; an accepted mismatch is always given with its reason."""
    return ". ".join([capital(matched.summary), *(f"Mismatch accepted: {one.reason}" for one in matched.acceptances)])


def _starts(found: Source) -> tuple[str, Grade]:
    if not all(found.declaration.is_known(arm, "model") for arm in found.arms):
        return ABSENT, "neutral"
    every = [arm.settings for arm in found.declaration.arms.values()]
    if not all(one.embedded for one in every):
        return "one checkpoint, which is the question", "neutral"
    own = all(one.warm_start.per_seed for one in every)
    return ("one per seed", "good") if own else ("one for all seeds", "neutral")


def models(found: Source) -> str:
    """The arms' models with their sizes: "tiny-qwen3, 0.13 M parameters"."""
    names = sorted({arm.settings.model for arm in found.declaration.arms.values()})
    sizes = {
        json.loads(text).get("parameters")
        for text in found.evidence.runs(found.study)["facts"]
        if isinstance(text, str)
    } - {None}
    counts = " or ".join(f"{size / 1e6:.3g} M" for size in sorted(sizes)) or NOT_MEASURED
    return f"{', '.join(names)}, {counts} parameters"


def _new_problems(found: Source) -> tuple[str, Grade]:
    """The widest interval that holds for other problems too, and whether every arm has one."""
    known = [one for one in new_problems(found).values() if one.low is not None and one.high is not None]
    if not known:
        return NOT_MEASURED, "neutral"
    widest = max(known, key=lambda one: (one.high or 0.0) - (one.low or 0.0))
    told = between(widest.low, widest.high) + (", the widest" if len(known) > 1 else "")
    verdicts = decision(found).verdicts.values()
    stored = len(known) == len(verdicts) and all(one.paired.items_sd is not None for one in verdicts)
    return told, "good" if stored else "neutral"


def _ranks(ranked: Ranking) -> list[list[str]]:
    rows = []
    for one in ranked.places:
        places = str(one.first) if one.first == one.last else f"{one.first} to {one.last}"
        rows.append([one.arm, number(one.mean), str(one.place), places, ", ".join(map(str, one.by_seed))])
    return rows


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
    said = [*limits(found.declaration), *_open_grades(found), *_unfinished(found)]
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


def _open_grades(found: Source) -> list[str]:
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
    out += starting_limits(declared)
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
