"""The answer to the study's question, the table of its arms, and everything needed to doubt it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gspo_lab.claims import answer as answer_to
from gspo_lab.findings import Findings
from gspo_lab.findings.answer import headline
from gspo_lab.findings.outcomes import NOT_JUDGED, RunOutcome
from gspo_lab.report.arms import arms_table
from gspo_lab.report.calibration import calibration_lines
from gspo_lab.report.card import grounds, numbers, summary
from gspo_lab.report.markup import Html, h, markdown_table, number, plain, table, unbroken
from gspo_lab.report.section import Section
from gspo_lab.report.sections.replications import linked
from gspo_lab.report.trust import badge_text, trust
from gspo_lab.states import State
from gspo_lab.stats import TwoWay
from gspo_lab.stats.ranking import Place, Ranking
from gspo_lab.stats.verdict import Verdict


def answer(found: Findings) -> Section | None:
    """The answer in three lines, the table of arms, the grounds to trust it; then what each word rests on."""
    declared, decided = found.declaration, found.decision
    said, verdicts, again = answer_to(found), list(decided.verdicts.values()), found.executions
    states = dict(Counter(run.state for run in found.runs))
    planned = len(declared.arms) * len(declared.seeds)
    absent = "not begun" if declared.recorded is None else "not imported"
    progress = _progress(states, planned, absent, stopped=decided.stopped) + _not_graded(found)
    progress += _falls(decided.ended)
    link, wider = linked(again), found.new_problems if verdicts else {}
    denied = " ".join(word.sentence for word in again.taken_back)
    data: dict[str, Any] = {
        "question": declared.question,
        "answer": said.to_json(),
        "baseline": decided.baseline,
        "primary": decided.primary,
        "runs": states,
        "grader_errors": found.grader_errors,
        **({} if link is None else {"executions": {one.name: one.relation for one in again.every}}),
        **({} if decided.doses is None else {"stability": decided.doses.to_json()}),
    }
    if verdicts:
        data["comparisons"] = {arm: summary(verdict, wider.get(arm)) for arm, verdict in decided.verdicts.items()}
        data["steadiness"] = {arm: one.to_json() for arm, one in found.steadiness.items()}
        data["headline"] = f"{headline(verdicts)} {denied}".strip()
    for arm, lacking in decided.ungraded.items():
        data["comparisons"][arm]["ungraded"] = lacking.to_json()
    rule = (
        f"Decided on {decided.primary}: a run's score is the mean of its last {declared.verdict.last} evaluations at "
        f"the planned end; a pair is two runs with the same seed; {decided.baseline} is the baseline. "
        f"{' '.join(decided.flags)}"
    ).strip()
    rule = rule if verdicts else " ".join(decided.described)
    if found.ranking is not None:
        data["ranking"] = found.ranking.to_json()
    body = [
        h(
            "div",
            h("p", said.word, class_="chip"),
            _headline(said.said, denied),
            h("p", unbroken(said.rests_on)),
            h("p", "Next: ", h("code", unbroken(said.next)), class_="next"),
            class_=f"said {said.colour}",
        ),
        arms_table(found, said),
        trust(found, progress),
        _folded_places(found.ranking) if found.ranking is not None else None,
        grounds(verdicts, len(decided.seeds), decided.missing, wider) if verdicts else None,
        h("p", rule, class_="soft") if rule else None,
    ]
    told = [" ".join(filter(None, _of_arm(one, said.said, wider))) for one in verdicts]
    last = (*told, f"{badge_text(decided.matched)}. {progress}", *([f"{link}."] if link else []))
    lines = (*said.lines, *([denied] if denied else []), *last)
    first = f"**{plain(' '.join(filter(None, (said.said, denied))))}** {plain(said.rests_on)}"
    calibrated = " ".join(f"{line}." for line in (calibration_lines(verdicts) if verdicts else ()))
    arms = [f"- **{plain(one.sentence)}** {plain(numbers(one, wider.get(one.labels[1])))}" for one in verdicts]
    matched = " ".join((f"Matching: {plain(badge_text(decided.matched))}.", plain(progress), plain(link or "")))
    places = "" if found.ranking is None else markdown_table(PLACES, _places(found.ranking))
    markdown = [first, "\n".join(arms), places, matched.strip(), calibrated, plain(rule)]
    shown = tuple(part for part in body if part is not None)
    return Section("answer", "Answer", shown, data, "\n\n".join(filter(None, markdown)), lines)


PLACES = ("arm", "mean score", "place", "may be", "place on each seed")


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
        "May be: between the arms that are told to be better and those told to be worse, by a paired t of every "
        f"two arms, Holm's over all {ranked.compared}: {level} for all arms together. Single seeds are description"
    )
    return h("details", h("summary", "Places, and how sure they are"), table(PLACES, _places(ranked), caption=caption))


def _headline(said: str, denied: str) -> Html:
    """The answer and what denies it; its further sentences, which bound it, in smaller type below."""
    first, _, rest = said.partition(". ")
    large = f"{first}{'.' * bool(rest)} {denied}".strip()
    return h("p", unbroken(large), h("small", unbroken(rest)) if rest else None, class_="headline")


def _of_arm(verdict: Verdict, answered: str, wider: Mapping[str, TwoWay]) -> tuple[str, str]:
    """The sentence, unless it is the answer, and the numbers."""
    sentence = "" if verdict.sentence == answered else verdict.sentence
    return sentence, numbers(verdict, wider.get(verdict.labels[1]))


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
    said = f"{finished} of {planned} runs are finished ({', '.join(rest)})."
    return said + (" The study is still running; what follows is as of now." if State.RUNNING in states else "")


def _falls(ended: Sequence[RunOutcome]) -> str:
    """How many of the runs fell, of those of which that can be told, and how many for good."""
    judged = [one for one in ended if one.fall_judged]
    fell, collapsed = sum(one.fell for one in judged), sum(one.collapsed for one in judged)
    for_good = f", {'all' if collapsed == fell else collapsed or 'none'} for good" if fell else ""
    if not judged:
        return f" Whether they fell is {NOT_JUDGED}." if any(one.final is not None for one in ended) else ""
    return f" {fell or 'None'} of {len(judged)} fell{for_good}."


def _not_graded(found: Findings) -> str:
    """Runs whose grader failed as they trained, with the share of responses."""
    failed = [
        f"{run.arm} seed {run.seed} {found.grader_errors[run.id]:.1%}"
        for run in found.runs
        if found.grader_errors.get(run.id)
    ]
    if not failed:
        return ""
    return f" The grader failed on training responses, which counted as reward 0: {', '.join(failed)} of them."
