"""The answer card: the verdict in one sentence, and everything needed to doubt it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gspo_lab.claims.dose_response import dose_response
from gspo_lab.claims.outcomes import Outcome, outcomes, primary
from gspo_lab.matching import Certificate, certificate
from gspo_lab.report.frames import arms
from gspo_lab.report.markup import NOT_MEASURED, Html, h, number, plain, signed
from gspo_lab.report.section import Section
from gspo_lab.report.svg import COLOURS
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
    doses = dose_response(evidence, study)
    if doses is not None:
        return _plain(
            ". ".join(doses.told(certificate(evidence, study))) + ".", progress, {**data, "stability": doses.to_json()}
        )
    treatments = [arm for arm in order if arm != baseline]
    if bench is None:
        said = f"No verdict: the study declares no benchmark, so the score that would decide is {NOT_MEASURED}."
        return _plain(said, progress, data)
    if not treatments:
        return _plain(
            f"No verdict: {baseline} is the only arm, so there is nothing to compare it with.", progress, data
        )
    ended = outcomes(evidence, study, bench)
    matched = certificate(evidence, study)
    data["comparisons"] = {}
    cards, lines = [], []
    for arm in treatments:
        pairs, missing = pair_up(ended, content, baseline, arm)
        mismatches = matched.reasons.get(arm, ())
        verdict = judge(content, baseline, arm, pairs, running="running" in states, mismatches=mismatches)
        cards.append(_card(verdict, content, order, missing))
        data["comparisons"][arm] = summary(verdict)
        lines.append(f"- **{plain(verdict.sentence)}** {plain(numbers(verdict))}")
    told = (
        f"Decided on {bench}: a run's score is the mean of its last {content['verdict']['last']} evaluations at the "
        f"planned end; a pair is two runs with the same seed; {baseline} is the baseline. {_flagged(ended)}"
    ).strip()
    body = (h("p", progress, class_="soft"), badge(matched), *cards, h("p", told))
    matching = f"Matching: {plain(badge_text(matched))}."
    return Section(
        "answer", "Answer", body, data, "\n".join([plain(progress), "", matching, "", *lines, "", plain(told)])
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


def badge_text(matched: Certificate) -> str:
    """Whether the runs are matched, in one line; an accepted mismatch is always said with its reason."""
    said = matched.headline.partition(": ")[2]
    return ". ".join([said[0].upper() + said[1:], *(f"Mismatch accepted: {one.reason}" for one in matched.acceptances)])


def badge(matched: Certificate) -> Html:
    return h("p", badge_text(matched), ".", class_="warn" if matched.undeclared else "soft")


def numbers(verdict: Verdict) -> str:
    """The verdict's numbers in one sentence, for a terminal or a Markdown line."""
    paired = verdict.paired
    if paired.estimate is None:
        return f"Difference: {NOT_MEASURED}."
    first, second = verdict.labels
    parts = [f"{second} − {first} = {signed(paired.estimate)}"]
    if paired.low is not None:
        parts.append(f"{_level(verdict)} interval {signed(paired.low)} to {signed(paired.high)}")
    parts += [f"margin ±{verdict.margin:g}", f"{paired.n} pair{'' if paired.n == 1 else 's'}"]
    if verdict.smallest_detectable is not None:
        parts.append(f"smallest detectable effect {number(verdict.smallest_detectable, 2)}")
    return ", ".join(parts) + "."


def summary(verdict: Verdict) -> dict[str, Any]:
    """The verdict for the .json."""
    paired = verdict.paired
    return {
        "word": verdict.word,
        "sentence": verdict.sentence,
        "reason": verdict.reason,
        "better": verdict.better,
        "estimate": paired.estimate,
        "low": paired.low,
        "high": paired.high,
        "p": paired.p,
        "sd": paired.sd,
        "pairs": paired.n,
        "differences": list(paired.differences),
        "margin": verdict.margin,
        "alpha": verdict.alpha,
        "smallest_detectable": verdict.smallest_detectable,
        "leave_one_out": None if verdict.leave_one_out is None else list(verdict.leave_one_out.estimates),
        "seeds_for_margin": verdict.seeds_for_margin,
        "notes": list(verdict.notes),
    }


def _card(verdict: Verdict, content: dict[str, Any], order: list[str], missing: list[str]) -> Html:
    paired = verdict.paired
    first, second = verdict.labels
    interval = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    if paired.low is not None:
        interval = f"{signed(paired.low)} to {signed(paired.high)}"
    facts = [
        (f"difference, {second} − {first}", signed(paired.estimate)),
        (f"{_level(verdict)} interval", interval),
        ("margin of equivalence", f"±{verdict.margin:g}"),
        ("pairs of runs", f"{paired.n} of {len(content['seeds'])}"),
        ("smallest detectable effect", number(verdict.smallest_detectable, 2)),
        (f"pairs in which {second} is ahead", f"{verdict.sign.k} of {verdict.sign.n}"),
    ]
    notes = list(verdict.notes)
    if missing:
        notes.append(f"runs without a final score: {', '.join(missing)}")
    if verdict.word == "not resolved" and verdict.more_seeds:
        notes.append(
            f"about {verdict.more_seeds} more seeds would settle it at the spread seen, which is itself uncertain"
        )
    if paired.differences:
        seen = ", ".join(signed(difference) for difference in paired.differences)
        notes.append(f"every pair's difference: {seen}")
    if paired.low is None and paired.n:
        notes.append("these numbers are description; they carry no verdict")
    colour = f" c{order.index(verdict.better) % COLOURS}" if verdict.better in order else ""
    return h(
        "div",
        h("p", verdict.sentence, class_="verdict"),
        *(h("p", note[0].upper() + note[1:] + ".") for note in notes),
        h("dl", *(h("div", h("dt", name), h("dd", shown)) for name, shown in facts)),
        class_=f"card{colour}",
    )


def _plain(said: str, progress: str, data: dict[str, Any]) -> Section:
    card = h("div", h("p", said, class_="verdict"), class_="card")
    return Section("answer", "Answer", (h("p", progress, class_="soft"), card), data, f"**{plain(said)}** {progress}")


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


def _level(verdict: Verdict) -> str:
    return f"{100 * (1 - verdict.alpha):g} %"
