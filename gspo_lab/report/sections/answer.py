"""The answer card: the verdict in one sentence, and everything needed to doubt it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gspo_lab.claims import answer as answer_to
from gspo_lab.findings import Findings
from gspo_lab.findings.answer import headline
from gspo_lab.findings.outcomes import RunOutcome
from gspo_lab.matching import Certificate
from gspo_lab.report.calibration import calibration_lines
from gspo_lab.report.card import badge_text, badges, cards, numbers, summary
from gspo_lab.report.markup import h, plain
from gspo_lab.report.section import Section
from gspo_lab.report.sections.replications import linked
from gspo_lab.states import State


def answer(found: Findings) -> Section | None:
    """One card per treatment arm against the baseline, decided on the declared primary score."""
    declared, decided = found.declaration, found.decision
    baseline, bench, matched = decided.baseline, decided.primary, decided.matched
    states = dict(Counter(run.state for run in found.runs))
    planned = len(declared.arms) * len(declared.seeds)
    progress = _progress(states, planned, stopped=decided.stopped) + _not_graded(found)
    data: dict[str, Any] = {"question": declared.question, "baseline": baseline, "primary": bench, "runs": states}
    data["grader_errors"] = found.grader_errors
    said = answer_to(found)
    data["answer"] = said.to_json()
    verdicts = list(decided.verdicts.values())
    again = found.executions
    link = linked(again)
    if link is not None:
        data["executions"] = {one.name: one.relation for one in again.every}
    badge = None if link is None else (link, bool(again.taken_back))
    if not verdicts:
        stability = {} if decided.doses is None else {"stability": decided.doses.to_json()}
        return _plain(" ".join(decided.sentences), said.lines, progress, matched, {**data, **stability}, badge)
    progress += _collapses(decided.ended)
    wider = found.new_problems
    data["comparisons"] = {arm: summary(verdict, wider.get(arm)) for arm, verdict in decided.verdicts.items()}
    for arm, lacking in decided.ungraded.items():
        data["comparisons"][arm]["ungraded"] = lacking.to_json()
    denied = " ".join(word.sentence for word in again.taken_back)
    data["headline"] = f"{headline(verdicts)} {denied}".strip()
    told = (
        f"Decided on {bench}: a run's score is the mean of its last {declared.verdict.last} evaluations at the "
        f"planned end; a pair is two runs with the same seed; {baseline} is the baseline. {' '.join(decided.flags)}"
    ).strip()
    title = [h("p", data["headline"], class_="headline")] if len(verdicts) > 1 or denied else []
    body = (
        *title,
        badges(matched, progress, verdicts, badge),
        *cards(verdicts, len(decided.seeds), decided.missing, wider),
        h("p", told, class_="soft"),
    )
    told_of = {arm: (one.sentence, numbers(one, wider.get(arm))) for arm, one in decided.verdicts.items()}
    lines = [f"- **{plain(sentence)}** {plain(measured)}" for sentence, measured in told_of.values()]
    grounds = " ".join(f"{line}." for line in (f"Matching: {plain(badge_text(matched))}", *calibration_lines(verdicts)))
    top = [f"**{plain(data['headline'])}**", ""] if title else []
    progress_line = plain(progress) if link is None else f"{plain(progress)} {plain(link)}."
    return Section(
        "answer",
        "Answer",
        body,
        data,
        "\n".join([*top, progress_line, "", grounds, "", *lines, "", plain(told)]),
        (
            *said.lines,
            *(" ".join(one) for one in told_of.values()),
            f"{badge_text(matched)}. {progress}",
            *([f"{link}."] if link else []),
        ),
    )


def _plain(
    said: str,
    lines: Sequence[str],
    progress: str,
    matched: Certificate,
    data: dict[str, Any],
    executions: tuple[str, bool] | None,
) -> Section:
    card = h("div", h("p", said, class_="verdict"), class_="card")
    link = () if executions is None else (f"{executions[0]}.",)
    markdown = " ".join(
        [f"**{plain(said)}** {plain(progress)} Matching: {plain(badge_text(matched))}.", *map(plain, link)]
    )
    body = (badges(matched, progress, executions=executions), card)
    return Section("answer", "Answer", body, data, markdown, (*lines, progress, *link))


def _progress(states: dict[str, int], planned: int, *, stopped: bool) -> str:
    finished = states.get(State.FINISHED, 0)
    if stopped and finished == sum(states.values()) < planned:
        return f"All {finished} runs that were needed are finished; {planned - finished} more were declared."
    if finished == planned:
        return f"All {planned} runs are finished." if planned > 1 else "The one run is finished."
    rest = [f"{count} {state}" for state, count in sorted(states.items()) if state != State.FINISHED]
    unborn = planned - sum(states.values())
    if unborn > 0:
        rest.append(f"{unborn} not begun")
    said = f"{finished} of {planned} runs are finished ({', '.join(rest)})."
    return said + (" The study is still running; what follows is as of now." if State.RUNNING in states else "")


def _collapses(ended: Sequence[RunOutcome]) -> str:
    """How many of the runs collapsed, of those that are long enough to be judged."""
    judged = [one for one in ended if one.judged]
    collapsed = sum(one.collapsed for one in judged)
    return f" {collapsed or 'None'} of {len(judged)} collapsed." if judged else ""


def _not_graded(found: Findings) -> str:
    """Runs whose grader failed as they trained, with the share of responses."""
    failed = [
        f"{run.arm} seed {run.seed} {found.grader_errors[run.id]:.1%}"
        for run in found.runs
        if found.grader_errors.get(run.id)
    ]
    if not failed:
        return ""
    return f" The grader failed on training responses, which trained with reward 0: {', '.join(failed)} of them."
