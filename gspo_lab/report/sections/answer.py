"""The answer to the study's question, why to believe it, its limits, and the declared claims."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from gspo_lab.analysis.claims import LIBRARY, Estimate, Result, judge
from gspo_lab.analysis.claims import answer as answer_to
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.executions import all_executions
from gspo_lab.analysis.findings.matched import starting_limits, study_certificate
from gspo_lab.analysis.findings.paired_comparisons import new_problems
from gspo_lab.analysis.findings.paired_comparisons import ranked as ranked_of
from gspo_lab.analysis.findings.sentences import headline, sentence
from gspo_lab.analysis.findings.stability import count_unstable_runs, stability_verdicts
from gspo_lab.analysis.findings.stability import verdicts as verdicts_of
from gspo_lab.analysis.findings.sweep_sentences import decided_sentences
from gspo_lab.analysis.matching import Certificate
from gspo_lab.analysis.matching.run_pair import Match
from gspo_lab.analysis.readings import FINISHED, Reading, Source, Steps, Window, average, read
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.readings.curves import grader_errors
from gspo_lab.common.reason import sentences
from gspo_lab.common.states import State
from gspo_lab.common.text import capital, counted, last_evaluations, level, listed
from gspo_lab.report import words
from gspo_lab.report.arm_table import arms_table
from gspo_lab.report.markup import (
    NONE,
    NOT_MEASURED,
    Html,
    between,
    format_number,
    h,
    join,
    plain,
    table,
    unbroken,
)
from gspo_lab.report.section import Both, Part, Section, bullets, folded, grid, paragraph
from gspo_lab.report.sections.replications import linked
from gspo_lab.report.verdict_details import (
    calibration_lines,
    facts,
    head,
    keeps_alpha,
    notes,
    numbers,
    summary,
)
from gspo_lab.study import Declaration
from gspo_lab.study.import_origin import ABSENT


def answer(study: Source) -> Section | None:
    """The answer, what it rests on, what not to conclude, the next command; then the table of
    arms.
    """
    declared = study.declaration
    decided = decision(study)
    again = all_executions(study)
    answered = answer_to(study)
    verdicts = list(verdicts_of(study).values())
    link = linked(all_executions(study))
    wider = new_problems(study) if verdicts else {}
    denied = " ".join(map(words.became, again.contradicted))
    progress = progress_of(study)
    data: dict[str, Any] = {
        "question": declared.question,
        "answer": words.answer_to_json(answered),
        "baseline": decided.baseline,
        "primary": decided.primary,
        "runs": dict(Counter(run.state for run in runs_of(study))),
        "grader_errors": grader_errors(study),
        "readings": {"grader_errors": "grader_errors.share"},
        **(
            {}
            if link is None
            else {"executions": {each.name: each.relation for each in again.executions}}
        ),
        **({} if decided.doses is None else {"stability": decided.doses.to_json()}),
    }
    if verdicts:
        data["verdicts"] = {verdict.subject: head(verdict) for verdict in verdicts}
        data["comparisons"] = {
            arm: summary(verdict, wider.get(arm)) for arm, verdict in decided.verdicts.items()
        }
        data["steadiness"] = {
            arm: summary(verdict) for arm, verdict in stability_verdicts(study).items()
        }
        data["headline"] = f"{headline(verdicts)} {denied}".strip()
    for arm, lacking in decided.ungraded.items():
        data["comparisons"][arm]["ungraded"] = lacking.to_json()
    if (ranking := ranked_of(study)) is not None:
        reading = f"score.{decided.primary}.final"
        data["ranking"] = {
            **ranking.to_json(),
            "sentence": ranking.sentence,
            "reading": reading,
        }
    statement, *limits = answered.sentences
    families = decided_sentences(decided) if decided.doses else []
    if statement == " ".join(families):  # of a sweep: first how its rules compare
        *limits, statement = families
    below = h("small", unbroken(" ".join(limits))) if limits else None
    card = h(
        "div",
        h("p", answered.label, class_="chip"),
        h("p", unbroken(f"{statement} {denied}".strip()), below, class_="headline"),
        h("p", unbroken(f"{answered.ground} {time_left(study)}".strip())),
        h("p", do_not_conclude(study), class_="soft"),
        h(
            "p",
            "Next: ",
            h("code" if answered.next else "span", unbroken(answered.command)),
            class_="next",
        ),
        class_=f"said {answered.colour}",
    )
    alone = answered.verdicts == tuple(verdicts) and len(verdicts) == 1
    of_arms = [
        (sentence(verdict), numbers(verdict, wider.get(verdict.subject))) for verdict in verdicts
    ]
    details = [of for text, of in of_arms] if alone else [f"{text} {of}" for text, of in of_arms]
    matched = f"{badge_text(decided.matched)}. {progress}"
    shown = (
        *answered.lines,
        *([denied] if denied else []),
        *details,
        matched,
        *([f"{link}."] if link else []),
    )
    first = " ".join(filter(None, (*answered.sentences, denied)))
    markdown = [
        f"**{plain(first)}** {plain(answered.ground)}",
        plain(do_not_conclude(study)),
        "\n".join(f"- **{plain(text)}** {plain(of)}" for text, of in of_arms),
        plain(" ".join(filter(None, (f"Matching: {matched}", link)))),
    ]
    body = (Both(card, "\n\n".join(filter(None, markdown))), arms_table(study, answered))
    return Section("answer", "Answer", tuple(filter(None, body)), data, shown)


def time_left(study: Source) -> str:
    """Of a running study: what its runs still have to train at their pace so far, those under way
    side by side.
    """
    running = [run for run in runs_of(study) if run.state == State.RUNNING]
    if not running:
        return ""
    from gspo_lab.running.progress import (
        duration,
    )  # takes rich along, which no page of a finished study needs

    pace = read(study, Reading("seconds_step", Window(Steps.ALL)))
    done = study.evidence.runs(study.study).set_index("run_id")["steps_done"]
    known = [value.value for value in pace.values() if value.value is not None]
    if not known:
        return "No step has been timed yet."
    left = sum(
        (run.steps_planned or 0) - int(done[run.id])
        for run in runs_of(study)
        if run.state != State.FINISHED
    )
    seconds = left * max(known) / len(running)
    return (
        f"About {duration(seconds)} of training are left at the slowest pace so far, without"
        " evaluations."
    )


Grade = Literal["good", "warn", "neutral"]
MARKS: dict[Grade, str] = {"good": "✓", "warn": "!", "neutral": "·"}
ENOUGH = 5
LEAST = 3
"""Pairs from which "equivalent" can be said, and from which there is an interval at all."""
RANKS = ("arm", "mean score", "rank", "rank interval", "rank on each seed")


def grounds(study: Source) -> Section | None:
    """Badges with links to their sections, a table of what each verdict rests on, ranks, and the
    declared rule.
    """
    decided = decision(study)
    verdicts = list(verdicts_of(study).values())
    ranked = ranked_of(study)
    badges = []
    ranks = list[list[str]]()
    for name, said, grade, target in _grounds(study):
        mark = h("b", MARKS[grade], aria_hidden="true")
        link = h("a", name, href=f"#{target}")
        text = h("span", said.rstrip("."), "." if said.endswith(".") else "")
        badges.append(h("li", mark, link, " ", text, class_=f"badge {grade}"))
    scores = list(decided.verdicts.values())
    rates = " ".join(
        f"{line}." for line in (calibration_lines(scores, decided.contrast) if scores else ())
    )
    body: list[Part] = [Both(h("ul", *badges, class_="trust"), rates)]
    if verdicts:
        wider = new_problems(study)
        planned = len(decided.seeds)
        columns = {
            verdict.subject: facts(verdict, planned, wider.get(verdict.subject))
            for verdict in verdicts
        }
        names = list(next(iter(columns.values())))
        rows = [[name, *(column.get(name, NONE) for column in columns.values())] for name in names]
        body.append(table(["", *columns], rows, caption="What each verdict rests on"))
        for verdict in verdicts:
            body.append(
                h(
                    "p",
                    f"{sentence(verdict)}"
                    f" {notes(verdict, decided.missing.get(verdict.subject, ()))}",
                )
            )
    if ranked is not None:
        caption = (
            "Rank interval: the ranks that no paired t of two arms excludes, Holm's over all"
            f" {ranked.compared}: {level(ranked.alpha)} for all arms together. Ranks give no"
            " verdict. Single seeds are descriptive"
        )
        for at in ranked.places:
            places = str(at.first) if at.first == at.last else f"{at.first} to {at.last}"
            seeds = ", ".join(map(str, at.by_seed))
            ranks.append([at.arm, format_number(at.mean), str(at.place), places, seeds])
        body.append(grid(RANKS, ranks, caption))
    rule = " ".join(sentences(decided.described))
    if verdicts:
        rule = (
            f"Decided on {decided.primary}: a run's score is"
            f" {last_evaluations(study.declaration.verdict.last)} at the planned end; a pair is two"
            f" runs with the same seed; {decided.baseline} is the baseline."
            f" {' '.join(words.flags(decided))}"
        ).strip()
    body += [paragraph(rule, "soft")] if rule else []
    return Section("grounds", "How far to trust this", tuple(body))


def _grounds(study: Source) -> Iterator[tuple[str, str, Grade, str]]:
    """The name, the text, the grade and the section of each thing that the answer rests on. Good
    only where all that it needs was recorded; matching and completeness first, because without them
    there is no verdict.
    """
    declared = study.declaration
    matched = study_certificate(study)
    verdicts = list(decision(study).verdicts.values())
    lacking = matched.unproven or any(states[Match.UNKNOWN] for states in matched.states().values())
    grade: Grade = (
        "warn" if matched.undeclared else "neutral" if lacking or not matched.pairs else "good"
    )
    yield "Matching", badge_text(matched), grade, "certificate"
    planned = len(declared.arms) * len(declared.seeds)
    runs = count_unstable_runs(study)
    states = [run.state for run in runs_of(study)]
    whole = states.count(State.FINISHED) == (len(states) if decision(study).stopped else planned)
    blocked = runs.all_collapsed or (
        any(decision(study).missing.values()) and State.RUNNING not in states
    )
    grade = "warn" if blocked else "good" if whole and not runs.collapsed else "neutral"
    yield "Runs", progress_of(study), grade, "provenance"
    pairs = min((verdict.paired.n for verdict in verdicts), default=len(declared.deciding))
    grade = "good" if pairs >= ENOUGH else "neutral" if pairs >= LEAST else "warn"
    yield "Seeds", f"{counted(pairs, 'pair')} of runs", grade, "limits"
    yield "Starting models", *_starts(study), "limits"
    yield "Model", models(study), "neutral", "limits"
    if verdicts:
        family = len(verdicts)
        alpha = verdicts[0].alpha
        shared = f", shared by {family} arms (Holm)" if family > 1 else ""
        yield "Errors", f"alpha {alpha:g}{shared}", "good", "calibration"
        yield "New problems", *_new_problems(study), "scores"
        rates = calibration_lines(verdicts, decision(study).contrast)
        measured = (
            ". ".join(rates) or f"{NOT_MEASURED} for {counted(pairs, 'pair')} at alpha {alpha:g}"
        )
        yield (
            "Calibration",
            measured,
            "good" if rates and keeps_alpha(verdicts) else "neutral",
            "calibration",
        )
    grade = "warn" if all_executions(study).contradicted else "neutral"
    yield "Replications", linked(all_executions(study)) or "none yet", grade, "replications"


def progress_of(study: Source) -> str:
    """How many runs are finished, what became of the others, and how many were unstable."""
    states = Counter(run.state for run in runs_of(study))
    planned = len(study.declaration.arms) * len(study.declaration.seeds)
    finished = states[State.FINISHED]
    if decision(study).stopped and finished == states.total() < planned:
        text = (
            f"All {finished} runs that were needed are finished; {planned - finished} more were"
            " declared."
        )
    elif finished == planned:
        text = f"All {planned} runs are finished." if planned > 1 else "The one run is finished."
    else:
        counts = [
            f"{count} {state}" for state, count in sorted(states.items()) if state != State.FINISHED
        ]
        if (unborn := planned - states.total()) > 0:
            counts.append(
                f"{unborn} {'not begun' if study.declaration.recorded is None else 'not imported'}"
            )
        text = f"{finished} of {planned} runs are finished ({', '.join(counts)})."
    shares = {
        f"{run.arm} seed {run.seed}": grader_errors(study).get(run.id) for run in runs_of(study)
    }
    if failed := [f"{name} {share:.1%}" for name, share in shares.items() if share]:
        text += (
            " The grader failed on training responses, which counted as reward 0:"
            f" {', '.join(failed)} of them."
        )
    return (
        f"{text} {count_unstable_runs(study).sentence()}"
        if count_unstable_runs(study).finished
        else text
    )


def badge_text(matched: Certificate) -> str:
    """Whether the runs are matched, in one line; an accepted mismatch is always given with its
    reason.
    """
    accepted = (f"Mismatch accepted: {acceptance.reason}" for acceptance in matched.acceptances)
    return ". ".join([capital(matched.summary), *accepted])


def _starts(study: Source) -> tuple[str, Grade]:
    if not all(study.declaration.is_known(arm, "model") for arm in study.arms):
        return ABSENT, "neutral"
    by_arm = [arm.settings for arm in study.declaration.arms.values()]
    if not all(settings.embedded for settings in by_arm):
        return "one checkpoint, which is the question", "neutral"
    per_seed = all(settings.warm_start.per_seed for settings in by_arm)
    return ("one per seed", "good") if per_seed else ("one for all seeds", "neutral")


def models(study: Source) -> str:
    """The arms' models with their sizes: "tiny-qwen3, 0.13 M parameters"."""
    names = sorted({arm.settings.model for arm in study.declaration.arms.values()})
    facts_ = (
        json.loads(text)
        for text in study.evidence.runs(study.study)["facts"]
        if isinstance(text, str)
    )
    sizes = {known.get("parameters") for known in facts_} - {None}
    counts = " or ".join(f"{size / 1e6:.3g} M" for size in sorted(sizes)) or NOT_MEASURED
    return f"{', '.join(names)}, {counts} parameters"


def _new_problems(study: Source) -> tuple[str, Grade]:
    """The widest interval that holds for other problems too, and whether every arm has one."""
    known = {
        arm: ends
        for arm, ends in new_problems(study).items()
        if ends.low is not None and ends.high is not None
    }
    if not known:
        return NOT_MEASURED, "neutral"
    arm, widest = max(known.items(), key=lambda item: (item[1].high or 0.0) - (item[1].low or 0.0))
    shown = between(widest.low, widest.high, None, study.declaration.verdict.margin)
    shown += f", of {arm}, the widest of {len(known)}" if len(known) > 1 else ""
    verdicts = decision(study).verdicts.values()
    stored = len(known) == len(verdicts) and all(
        verdict.paired.items_sd is not None for verdict in verdicts
    )
    return shown, "good" if stored else "neutral"


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


def limits_section(study: Source) -> Section | None:
    """The limits that follow from what the study is; published counter-evidence where no declared
    claim brings it.
    """
    lines = limitations(study.declaration)
    if errors := sum(run.errors for run in decision(study).ended if run.final is not None):
        lines.append(
            f"{errors} of the answers that decide could not be graded. Scores leave them out; a"
            " verdict is given only where the same word comes out with all of them counted as"
            " wrong, and where neither arm has more of them than chance explains (sign test over"
            " problems). What a grader would have said of them is not known."
        )
    if any(
        arm.settings.rollout.tokens_per_step is not None for arm in study.declaration.arms.values()
    ):
        waiting = read(study, Reading("waiting_responses", Window(Steps.LAST)))
        left = sum(int(waiting[run.id].value or 0) for run in runs_of(study, FINISHED))
        lines.append(
            f"{left} responses were asked for and not over when their runs ended: sampled, never"
            " trained on."
        )
    body: list[Part] = [bullets(lines)]
    if not study.declaration.claims:
        against = {
            report.text: report.source for name in CENTRAL for report in LIBRARY[name].counter
        }
        listed = (
            h("li", f"{what}. ", h("span", source, class_="soft"))
            for what, source in against.items()
        )
        title = (
            f"Published evidence against the claims, whatever this study found, {len(against)}"
            " reports"
        )
        body.append(folded(title, h("ul", *listed)))
    return Section("limits", "Limits and counter-evidence", tuple(body), {"limits": lines})


def do_not_conclude(study: Source) -> str:
    """One sentence: what the study says nothing about."""
    by_arm = [arm.settings for arm in study.declaration.arms.values()]
    if study.declaration.recorded is not None or not by_arm:
        return (
            "Do not conclude that the arms differ in nothing but what they declare: their logs do"
            " not show it."
        )
    tokens = average(
        value.value
        for value in read(study, Reading("response_tokens_mean", Window(Steps.ALL))).values()
    )
    mean = "" if tokens is None else f" (here {format_number(tokens, 2)} tokens on average)"
    out = [f"larger models (here {models(study)})", f"longer answers{mean}"]
    if not all(settings.embedded and settings.warm_start.per_seed for settings in by_arm):
        out.append("other starting models (here one, shared by all seeds)")
    return f"Do not conclude anything about {listed(out, 'or')}."


def _tuned(declared: Declaration, tasks: str) -> list[str]:
    tune = declared.tune
    if tune is None or not tune.chosen:
        return [
            f"One task ({tasks}), one set of settings: another learning rate or clip range may turn"
            " the order."
        ]
    keys = ", ".join(dict.fromkeys(key for arm in tune.candidates for key in tune.keys(arm)))
    out = [
        f"One task ({tasks}). Each arm chose {keys} on a small budget among {tune.number}"
        " candidates, and declares all else: other candidates, a larger budget or other settings"
        " may turn the order."
    ]
    if tune.metric == declared.primary:
        out.append(
            f"The trials were asked the problems of {tune.metric} that decide here, too: of every"
            " arm alike, the best score of a few was taken, which is a little better than it will"
            " be on other problems."
        )
    return out


def limitations(declared: Declaration) -> list[str]:
    """What the reader should not conclude, from what this study is."""
    by_arm = [arm.settings for arm in declared.arms.values()]
    seeds = len(declared.seeds)
    out = [
        f"The check {name} says that this comparison says little. The study's author answers:"
        f" {reason}"
        for name, reason in declared.waived.items()
    ]
    if seeds < 3:
        out.append(
            f"{seeds} seed{'' if seeds == 1 else 's'}: no interval can be given; three are the"
            " least."
        )
    elif seeds < 5:
        out.append(
            f"{seeds} seeds: the spread over seeds, and with it the interval, is itself known only"
            " roughly."
        )
    out += starting_limits(declared)
    if declared.recorded is not None:
        return [*out, *IMPORTED]
    models = sorted({settings.model for settings in by_arm})
    if any(settings.embedded for settings in by_arm):
        out.append(
            f"The model ({', '.join(models)}) is tiny and its task is small: what is seen here"
            " shows how the objectives work, not what they do to a large model with long"
            " responses."
        )
    tasks = sorted({settings.task.name for settings in by_arm})
    out += _tuned(declared, ", ".join(tasks))
    if any(settings.rollout.coupled for settings in by_arm):
        out.append(
            "Arms of one seed share their random numbers; that sharpens the comparison and says"
            " nothing about other seeds."
        )
    out.append(
        "Only the declared score carries the verdict; the curves and the other numbers are"
        " descriptive."
    )
    if not any(bench for settings in by_arm for bench in settings.bench):
        out.append(
            "No benchmark was declared: training reward alone cannot tell learning from reward"
            " hacking."
        )
    return out


INTRODUCTION = (
    "Statements fixed before the first step, each held against what was recorded. Supported and"
    " contradicted need the whole interval over seeds on that side, after Holm's adjustment over"
    " the declared claims; one run never decides, and no seed that was added later counts. Only the"
    " primary score carries the study's verdict."
)
HEAD = ("claim", "its source says", "here", "verdict", "reason")


def claims(study: Source) -> Section | None:
    """One row per declared claim, and under each the published evidence against it."""
    if not study.declaration.claims:
        return None
    results = judge(study)
    claims_ = [result.claim for result in results]
    rows = [(claim.id, report.text, report.source) for claim in claims_ for report in claim.counter]
    listed = [
        (
            result.claim.id,
            result.claim.value,
            "; ".join(_parts(result)) or NOT_MEASURED,
            *_verdict(result),
        )
        for result in results
    ]
    shown = Both(table(HEAD, map(_row, results), class_="prose"), grid(HEAD, listed).markdown)
    body: list[Part] = [h("p", INTRODUCTION), shown]
    if rows:
        title = f"Published evidence against these claims, {len(rows)} reports"
        body.append(
            grid(
                ("claim", "published evidence against it", "source"),
                rows,
                fold=title,
                class_="prose",
            )
        )
    return Section(
        "claims", "Claims", tuple(body), {"claims": list(map(words.claim_to_json, results))}
    )


def _verdict(result: Result) -> tuple[Html, str]:
    word = h("strong", result.word, class_=f"word {words.tone(result.verdict)}")
    return word, result.verdict.because


def _row(result: Result) -> tuple[Html | str, ...]:
    claim = result.claim
    parts = _parts(result)
    measured = join([h("div", part) for part in parts]) if parts else NOT_MEASURED
    about = h("div", f"{claim.source} · grade {claim.grade}", class_="soft")
    name = join([h("strong", claim.id), h("div", claim.statement), about])
    link = (
        h("div", h("a", "figure", href=f"#{claim.figure}")) if claim.figure and result.parts else ""
    )
    return name, claim.value, join([measured, link]), *_verdict(result)


def _parts(result: Result) -> list[str]:
    beside = [f"{_estimate(estimate)}, {estimate.word}" for estimate in result.supplementary]
    return [*map(_estimate, result.parts), *beside]


def _estimate(part: Estimate) -> str:
    ends = (
        f" ({format_number(part.interval[0])} to {format_number(part.interval[1])})"
        if part.interval
        else ""
    )
    return f"{part.name}: {format_number(part.estimate)}{ends}"
