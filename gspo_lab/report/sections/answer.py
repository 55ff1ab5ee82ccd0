"""The answer to the study's question: a card with what to conclude and what not, and the table of the arms."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gspo_lab.claims import answer as answer_to
from gspo_lab.findings.answer import StudyAnswer
from gspo_lab.findings.decision import decision
from gspo_lab.findings.executions import all_executions
from gspo_lab.findings.paired_comparisons import new_problems
from gspo_lab.findings.paired_comparisons import ranked as ranked_of
from gspo_lab.findings.stability import stability_verdicts
from gspo_lab.findings.stability import verdicts as verdicts_of
from gspo_lab.readings import Reading, Source, Steps, Window, read
from gspo_lab.readings import runs as runs_of
from gspo_lab.readings.curves import grader_errors
from gspo_lab.report.arm_table import arms_table
from gspo_lab.report.chart import Section
from gspo_lab.report.markup import Html, h, plain, unbroken
from gspo_lab.report.sections.grounds import badge_text, do_not_conclude, progress_of
from gspo_lab.report.sections.replications import linked
from gspo_lab.report.verdict_details import head, numbers, summary
from gspo_lab.states import State
from gspo_lab.words import (
    answer_sentences,
    answer_to_json,
    became,
    best_arms,
    chip,
    decided_sentences,
    ground_text,
    headline,
    lines,
    sentence,
)


def answer(study: Source) -> Section | None:
    """The answer, what it rests on, what not to conclude, the next command; then the table of arms."""
    declared, decided, again = study.declaration, decision(study), all_executions(study)
    answered, verdicts, link = answer_to(study), list(verdicts_of(study).values()), linked(all_executions(study))
    wider = new_problems(study) if verdicts else {}
    denied, progress = " ".join(map(became, again.contradicted)), progress_of(study)
    data: dict[str, Any] = {
        "question": declared.question,
        "answer": answer_to_json(answered),
        "baseline": decided.baseline,
        "primary": decided.primary,
        "runs": dict(Counter(run.state for run in runs_of(study))),
        "grader_errors": grader_errors(study),
        "readings": {"grader_errors": "grader_errors.share"},
        **({} if link is None else {"executions": {each.name: each.relation for each in again.executions}}),
        **({} if decided.doses is None else {"stability": decided.doses.to_json()}),
    }
    if verdicts:
        data["verdicts"] = {verdict.subject: head(verdict) for verdict in verdicts}
        data["comparisons"] = {arm: summary(verdict, wider.get(arm)) for arm, verdict in decided.verdicts.items()}
        data["steadiness"] = {arm: summary(verdict) for arm, verdict in stability_verdicts(study).items()}
        data["headline"] = f"{headline(verdicts)} {denied}".strip()
    for arm, lacking in decided.ungraded.items():
        data["comparisons"][arm]["ungraded"] = lacking.to_json()
    if (ranking := ranked_of(study)) is not None:
        reading = f"score.{decided.primary}.final"
        data["ranking"] = {**ranking.to_json(), "sentence": best_arms(ranking), "reading": reading}
    card = h(
        "div",
        h("p", chip(answered), class_="chip"),
        _headline(answered, decided_sentences(decided) if decided.doses else (), denied),
        h("p", unbroken(f"{ground_text(answered)} {time_left(study)}".strip())),
        h("p", do_not_conclude(study), class_="soft"),
        h("p", "Next: ", h("code", unbroken(answered.command)), class_="next"),
        class_=f"said {answered.colour}",
    )
    arms, arms_markdown = arms_table(study, answered)
    body = tuple(part for part in (card, arms) if part is not None)
    alone = answered.verdicts == tuple(verdicts) and len(verdicts) == 1
    of_arms = [(sentence(verdict), numbers(verdict, wider.get(verdict.subject))) for verdict in verdicts]
    details = [of for text, of in of_arms] if alone else [f"{text} {of}" for text, of in of_arms]
    matched = f"{badge_text(decided.matched)}. {progress}"
    shown = (*lines(answered), *([denied] if denied else []), *details, matched, *([f"{link}."] if link else []))
    first = " ".join(filter(None, (*answer_sentences(answered), denied)))
    markdown = [
        f"**{plain(first)}** {plain(ground_text(answered))}",
        plain(do_not_conclude(study)),
        "\n".join(f"- **{plain(text)}** {plain(of)}" for text, of in of_arms),
        arms_markdown,
        plain(" ".join(filter(None, (f"Matching: {matched}", link)))),
    ]
    return Section("answer", "Answer", body, data, "\n\n".join(filter(None, markdown)), shown)


def _headline(answered: StudyAnswer, families: Sequence[str], denied: str) -> Html:
    first, *limits = answer_sentences(answered)
    if first == " ".join(families):  # of a sweep: first how its rules compare
        *limits, first = families
    below = h("small", unbroken(" ".join(limits))) if limits else None
    return h("p", unbroken(f"{first} {denied}".strip()), below, class_="headline")


def time_left(study: Source) -> str:
    """Of a running study: what its runs still have to train at their pace so far, those under way side by side."""
    running = [run for run in runs_of(study) if run.state == State.RUNNING]
    if not running:
        return ""
    from gspo_lab.progress import duration  # takes rich along, which no page of a finished study needs

    pace, done = (
        read(study, Reading("seconds_step", Window(Steps.ALL))),
        study.evidence.runs(study.study).set_index("run_id")["steps_done"],
    )
    known = [value.value for value in pace.values() if value.value is not None]
    if not known:
        return "No step has been timed yet."
    left = sum((run.steps_planned or 0) - int(done[run.id]) for run in runs_of(study) if run.state != State.FINISHED)
    seconds = left * max(known) / len(running)
    return f"About {duration(seconds)} of training are left at the slowest pace so far, without evaluations."
