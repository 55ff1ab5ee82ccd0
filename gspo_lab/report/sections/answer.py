"""The answer card: the verdict in one sentence, and everything needed to doubt it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gspo_lab.claims.dose_response import dose_response
from gspo_lab.claims.outcomes import Outcome, outcomes, primary
from gspo_lab.matching import Certificate, certificate
from gspo_lab.report.frames import arms
from gspo_lab.report.markup import NOT_MEASURED, h, plain
from gspo_lab.report.section import Section
from gspo_lab.report.sections.calibration import calibration_line
from gspo_lab.report.sections.card import badge_text, badges, cards, headline, numbers, summary
from gspo_lab.stats.verdict import Verdict, decide

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


def answer(evidence: "Evidence", study: str) -> Section | None:
    """One card per treatment arm against the baseline, decided on the declared primary score."""
    content = evidence.study(study)
    order = arms(evidence, study)
    baseline = content["verdict"]["baseline"] or order[0]
    bench = primary(content)
    states = {str(state): int(count) for state, count in evidence.runs(study)["state"].value_counts().items()}
    progress = _progress(states, len(order) * len(content["seeds"]))
    data: dict[str, Any] = {"question": content["question"], "baseline": baseline, "primary": bench, "runs": states}
    matched = certificate(evidence, study)
    doses = dose_response(evidence, study)
    if doses is not None:
        said = ". ".join(doses.told(matched)) + "."
        return _plain(said, progress, matched, {**data, "stability": doses.to_json()})
    treatments = [arm for arm in order if arm != baseline]
    if bench is None:
        said = f"No verdict: the study declares no benchmark, so the score that would decide is {NOT_MEASURED}."
        return _plain(said, progress, matched, data)
    if not treatments:
        said = f"No verdict: {baseline} is the only arm, so there is nothing to compare it with."
        return _plain(said, progress, matched, data)
    ended = outcomes(evidence, study, bench)
    progress += _collapses(ended)
    verdicts, absent = {}, {}
    for arm in treatments:
        pairs, absent[arm] = pair_up(ended, content, baseline, arm)
        mismatches = matched.reasons.get(arm, ())
        verdicts[arm] = judge(content, baseline, arm, pairs, running="running" in states, mismatches=mismatches)
    data["comparisons"] = {arm: summary(verdict) for arm, verdict in verdicts.items()}
    data["headline"] = headline(list(verdicts.values()))
    told = (
        f"Decided on {bench}: a run's score is the mean of its last {content['verdict']['last']} evaluations at the "
        f"planned end; a pair is two runs with the same seed; {baseline} is the baseline. {_flagged(ended)}"
    ).strip()
    title = [h("p", data["headline"], class_="headline")] if len(verdicts) > 1 else []
    n, alpha = max(verdict.paired.n for verdict in verdicts.values()), content["verdict"]["alpha"]
    body = (
        *title,
        badges(matched, progress, n, alpha),
        *cards(list(verdicts.values()), len(content["seeds"]), absent),
        h("p", told, class_="soft"),
    )
    lines = [f"- **{plain(verdict.sentence)}** {plain(numbers(verdict))}" for verdict in verdicts.values()]
    calibrated = calibration_line(n, alpha)
    grounds = f"Matching: {plain(badge_text(matched))}.{f' {calibrated}.' if calibrated else ''}"
    top = [f"**{plain(data['headline'])}**", ""] if title else []
    return Section(
        "answer",
        "Answer",
        body,
        data,
        "\n".join([*top, plain(progress), "", grounds, "", *lines, "", plain(told)]),
        (
            *([data["headline"]] if title else []),
            *(f"{verdict.sentence} {numbers(verdict)}" for verdict in verdicts.values()),
            f"{badge_text(matched)}. {progress}",
        ),
    )


def pair_up(
    ended: list[Outcome], content: dict[str, Any], baseline: str, arm: str
) -> tuple[list[tuple[float, float]], list[str]]:
    """The final scores (baseline, arm) of every seed whose two runs have one, and in words the runs that lack it."""
    by_run = {(one.arm, one.seed): one for one in ended}
    pairs, missing = [], []
    for seed in content["seeds"]:
        scores = []
        for name in (baseline, arm):
            run = by_run.get((name, seed))
            if run is not None and run.final is not None:
                scores.append(run.final)
            else:
                state = "not begun" if run is None else "without a score" if run.state == "finished" else run.state
                missing.append(f"{name} seed {seed} {state}")
        if len(scores) == 2:
            pairs.append((scores[0], scores[1]))
    return pairs, missing


def judge(
    content: dict[str, Any],
    baseline: str,
    arm: str,
    pairs: list[tuple[float, float]],
    *,
    running: bool,
    mismatches: Sequence[str] = (),
) -> Verdict:
    """The verdict by the declared rule; withheld while a declared pair is missing or runs are not matched."""
    withheld = list(mismatches)
    planned = len(content["seeds"])
    if len(pairs) < planned:
        why = "the study is still running" if running else "runs are missing"
        withheld.append(f"{why}, {len(pairs)} of {planned} pairs are complete")
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rule = content["verdict"]
    return decide(first, second, rule["margin"], rule["alpha"], (baseline, arm), withheld_because=withheld)


def _plain(said: str, progress: str, matched: Certificate, data: dict[str, Any]) -> Section:
    card = h("div", h("p", said, class_="verdict"), class_="card")
    markdown = f"**{plain(said)}** {plain(progress)} Matching: {plain(badge_text(matched))}."
    return Section("answer", "Answer", (badges(matched, progress), card), data, markdown, (said, progress))


def _progress(states: dict[str, int], planned: int) -> str:
    finished = states.get("finished", 0)
    if finished == planned:
        return f"All {planned} runs are finished." if planned > 1 else "The one run is finished."
    rest = [f"{count} {state}" for state, count in sorted(states.items()) if state != "finished"]
    unborn = planned - sum(states.values())
    if unborn > 0:
        rest.append(f"{unborn} not begun")
    said = f"{finished} of {planned} runs are finished ({', '.join(rest)})."
    return said + (" The study is still running; what follows is as of now." if "running" in states else "")


def _collapses(ended: list[Outcome]) -> str:
    """How many of the runs collapsed, of those that are long enough to be judged."""
    judged = [one for one in ended if one.judged]
    collapsed = sum(one.collapsed for one in judged)
    return f" {collapsed or 'None'} of {len(judged)} collapsed." if judged else ""


def _flagged(ended: list[Outcome]) -> str:
    """Runs that a reader should know of: collapsed ones stay in, carried values are said."""
    said = []
    collapsed = [f"{one.arm} seed {one.seed}" for one in ended if one.collapsed]
    if collapsed:
        said.append(f"Collapsed and still counted: {', '.join(collapsed)}.")
    carried = [f"{one.arm} seed {one.seed}" for one in ended if one.carried]
    if carried:
        said.append(f"Evaluations that could not be graded repeat the one before: {', '.join(carried)}.")
    return " ".join(said)
