"""The answer to the study's question, the table of its arms, and everything needed to doubt it."""

from collections import Counter
from typing import Any

from gspo_lab.claims import answer as answer_to
from gspo_lab.findings.answer import Answer
from gspo_lab.findings.compared import new_problems
from gspo_lab.findings.decision import decision
from gspo_lab.findings.other_executions import all_executions
from gspo_lab.findings.ranked import ranked as ranked_of
from gspo_lab.findings.stability import regime, steadiness
from gspo_lab.findings.stability import verdicts as verdicts_of
from gspo_lab.readings import Source
from gspo_lab.readings import runs as runs_of
from gspo_lab.readings.curves import grader_errors
from gspo_lab.report.arms import arms_table
from gspo_lab.report.calibration import calibration_lines
from gspo_lab.report.card import grounds, head, numbers, summary
from gspo_lab.report.markup import Html, h, markdown_table, number, plain, table, unbroken
from gspo_lab.report.section import Section
from gspo_lab.report.sections.replications import linked
from gspo_lab.report.trust import badge_text, trust
from gspo_lab.states import State
from gspo_lab.stats.ranking import Place, Ranking
from gspo_lab.words import (
    answer_to_json,
    became,
    best_arms,
    chip,
    flags,
    headline,
    lines,
    rests_on,
    said,
    said_in_parts,
    sentence,
    sentences,
    unstable_runs,
)


def answer(found: Source) -> Section | None:
    """The answer in three lines, the table of arms, the grounds to trust it; then what each verdict rests on."""
    declared, decided = found.declaration, decision(found)
    answered, verdicts, again = answer_to(found), list(verdicts_of(found).values()), all_executions(found)
    runs = dict(Counter(run.state for run in runs_of(found)))
    planned = len(declared.arms) * len(declared.seeds)
    absent = "not begun" if declared.recorded is None else "not imported"
    progress = _progress(runs, planned, absent, stopped=decided.stopped) + _not_graded(found)
    progress += f" {unstable_runs(regime(found))}" if regime(found).finished else ""
    link, wider = linked(again), new_problems(found) if verdicts else {}
    denied = " ".join(map(became, again.taken_back))
    data: dict[str, Any] = {
        "question": declared.question,
        "answer": answer_to_json(answered),
        "baseline": decided.baseline,
        "primary": decided.primary,
        "runs": runs,
        "grader_errors": grader_errors(found),
        **({} if link is None else {"executions": {one.name: one.relation for one in again.every}}),
        **({} if decided.doses is None else {"stability": decided.doses.to_json()}),
    }
    if verdicts:
        data["verdicts"] = {one.subject: head(one) for one in verdicts}
        data["comparisons"] = {arm: summary(verdict, wider.get(arm)) for arm, verdict in decided.verdicts.items()}
        data["steadiness"] = {arm: summary(one) for arm, one in steadiness(found).items()}
        data["headline"] = f"{headline(verdicts)} {denied}".strip()
    for arm, lacking in decided.ungraded.items():
        data["comparisons"][arm]["ungraded"] = lacking.to_json()
    rule = (
        f"Decided on {decided.primary}: a run's score is the mean of its last {declared.verdict.last} evaluations at "
        f"the planned end; a pair is two runs with the same seed; {decided.baseline} is the baseline. "
        f"{' '.join(flags(decided))}"
    ).strip()
    rule = rule if verdicts else " ".join(sentences(decided.described))
    ranks = ranked_of(found)
    if ranks is not None:
        data["ranking"] = {**ranks.to_json(), "sentence": best_arms(ranks)}
    body = [
        h(
            "div",
            h("p", chip(answered), class_="chip"),
            _headline(answered, denied),
            h("p", unbroken(rests_on(answered))),
            h("p", "Next: ", h("code", unbroken(answered.command)), class_="next"),
            class_=f"said {answered.colour}",
        ),
        arms_table(found, answered),
        trust(found, progress),
        None if ranks is None else _folded_places(ranks),
        grounds(verdicts, len(decided.seeds), decided.missing, wider) if verdicts else None,
        h("p", rule, class_="soft") if rule else None,
    ]
    text = said(answered)
    alone = answered.verdicts == tuple(verdicts) and len(verdicts) == 1
    of_arms = [(("" if alone else sentence(one)), numbers(one, wider.get(one.subject))) for one in verdicts]
    told = [" ".join(filter(None, one)) for one in of_arms]
    last = (*told, f"{badge_text(decided.matched)}. {progress}", *([f"{link}."] if link else []))
    shown = (*lines(answered), *([denied] if denied else []), *last)
    first = f"**{plain(' '.join(filter(None, (text, denied))))}** {plain(rests_on(answered))}"
    scores = list(decided.verdicts.values())
    calibrated = " ".join(f"{line}." for line in (calibration_lines(scores) if scores else ()))
    arms = [f"- **{plain(sentence(one))}** {plain(numbers(one, wider.get(one.subject)))}" for one in verdicts]
    matched = " ".join((f"Matching: {plain(badge_text(decided.matched))}.", plain(progress), plain(link or "")))
    places = "" if ranks is None else markdown_table(PLACES, _places(ranks))
    markdown = [first, "\n".join(arms), places, matched.strip(), calibrated, plain(rule)]
    parts = tuple(part for part in body if part is not None)
    return Section("answer", "Answer", parts, data, "\n\n".join(filter(None, markdown)), shown)


PLACES = ("arm", "mean score", "rank", "rank interval", "rank on each seed")


def _places(ranked: Ranking) -> list[list[str]]:
    """Every arm's place with its uncertainty."""
    return [
        [one.arm, number(one.mean), str(one.place), _between(one), ", ".join(map(str, one.by_seed))]
        for one in ranked.places
    ]


def _between(one: Place) -> str:
    return str(one.first) if one.first == one.last else f"{one.first} to {one.last}"


def _folded_places(ranked: Ranking) -> Html:
    """Below the answer, which has the gist."""
    level = f"{100 * (1 - ranked.alpha):.3g} %"
    caption = (
        f"Rank interval: the ranks that no paired t of two arms excludes, Holm's over all {ranked.compared}: {level} "
        "for all arms together; nor any verdict. Single seeds are descriptive"
    )
    return h("details", h("summary", "Ranks and their intervals"), table(PLACES, _places(ranked), caption=caption))


def _headline(answered: Answer, denied: str) -> Html:
    """The answer and what contradicts it; its further sentences, which limit it, in smaller type below."""
    first, *rest = said_in_parts(answered)
    below = h("small", unbroken(" ".join(rest))) if rest else None
    return h("p", unbroken(f"{first} {denied}".strip()), below, class_="headline")


def _progress(states: dict[str, int], planned: int, absent: str, *, stopped: bool) -> str:
    finished = states.get(State.FINISHED, 0)
    if stopped and finished == sum(states.values()) < planned:
        return f"All {finished} runs that were needed are finished; {planned - finished} more were declared."
    if finished == planned:
        return f"All {planned} runs are finished." if planned > 1 else "The one run is finished."
    rest = [f"{count} {state}" for state, count in sorted(states.items()) if state != State.FINISHED]
    unborn = planned - sum(states.values())
    if unborn > 0:
        rest.append(f"{unborn} {absent}")
    text = f"{finished} of {planned} runs are finished ({', '.join(rest)})."
    return text + (" The study is still running; what follows is as of now." if State.RUNNING in states else "")


def _not_graded(found: Source) -> str:
    """Runs whose grader failed as they trained, with the share of responses."""
    failed = [
        f"{run.arm} seed {run.seed} {grader_errors(found)[run.id]:.1%}"
        for run in runs_of(found)
        if grader_errors(found).get(run.id)
    ]
    if not failed:
        return ""
    return f" The grader failed on training responses, which counted as reward 0: {', '.join(failed)} of them."
