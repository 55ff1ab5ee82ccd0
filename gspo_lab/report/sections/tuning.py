"""What the arms chose before the study, on which trials, and how every candidate did in every round."""

from typing import Any

from gspo_lab.findings.matched import trials as trials_of
from gspo_lab.matching.settings_diff import format_value
from gspo_lab.matching.tuning_check import Trials, choices_text
from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart, Section, Series
from gspo_lab.report.markup import Html, h, markdown_table, plain, table
from gspo_lab.study.tune import Tune, budget, schedule
from gspo_lab.study.tuning_trials import label

HEAD = ["arm", "candidate", "trained to step", "score", "what became of it"]


def tuning(study: Source) -> Section | None:
    """None for a study whose arms train with what they declare."""
    tune = study.declaration.tune
    if tune is None or study.declaration.trials_of is not None:
        return None
    if not tune.chosen:
        sentence = "The arms have not chosen yet: their trials are not at their end."
        return Section("tuning", "Tuning", (h("p", sentence, class_="missing"),), {"chosen": None}, sentence)
    trials = trials_of(study)
    seeds = ", ".join(map(str, tune.seeds))
    spent = budget(tune)
    summary = (
        f"{spent[0].upper()}{spent[1:]}; the seeds, {seeds}, are none of the study's. Chosen: {choices_text(tune)}."
    )
    rule = (
        f"Successive halving: {schedule(tune)}; what is kept goes on. A candidate of which a seed collapses or dies "
        "comes last; of equal ones the nearest to what the arm declares goes on."
    )
    body: list[Html | Chart] = [h("p", summary), h("p", rule, class_="soft")]
    if trials is None:
        body.append(h("p", f"The trials, {tune.trials}, are not in this database.", class_="missing"))
        return Section("tuning", "Tuning", tuple(body), _data(tune, None), plain(summary))
    body += [_chart(tune, trials, arm) for arm in tune.candidates]
    rows = [row for arm in tune.candidates for row in _rows(tune, trials, arm)]
    body.append(h("details", h("summary", "Every candidate, round by round"), table(HEAD, rows)))
    markdown = f"{plain(summary)}\n\n{markdown_table(HEAD, rows)}"
    return Section("tuning", "Tuning", tuple(body), _data(tune, trials), markdown)


def _chart(tune: Tune, trials: Trials, arm: str) -> Chart:
    """Score against value, a series for each round, which has one colour in all arms."""
    labels = tuple(label(values) for values in tune.candidates[arm])
    series = []
    for number, tuning_round in enumerate(trials.rounds):
        if arm in tuning_round.results:
            tried = [tuning_round.results[arm].get(place) for place in range(tune.number)]
            y = tuple(None if trial is None else trial.score for trial in tried)
            series.append(Series(f"step {tuning_round.steps}", labels, y, colour=number))
    return Chart(f"m-tuning-{arm}", f"Trials of {arm}", ", ".join(tune.keys(arm)), tune.metric, tuple(series),
                 kind="dots", whole=True, finding=f"{arm} chose {label(tune.values(arm))}",
                 reading=f"trial.{tune.metric}")  # fmt: skip


def _rows(tune: Tune, trials: Trials, arm: str) -> list[list[Any]]:
    out = []
    for place, values in enumerate(tune.candidates[arm]):
        settings = ", ".join(f"{key} = {format_value(value)}" for key, value in values.items())
        for tuning_round in trials.rounds:
            if (tried := tuning_round.results.get(arm, {}).get(place)) is not None:
                fate = "goes on" if place in tuning_round.promoted[arm] else "left behind"
                fate = tried.failure or ("chosen" if tuning_round.promoted[arm] == (place,) else fate)
                score = "last" if tried.score is None else f"{tried.score:.3f}"
                out.append([arm, settings, tuning_round.steps, score, fate])
    return out


def _data(tune: Tune, trials: Trials | None) -> dict[str, Any]:
    rounds = [
        {
            "steps": tuning_round.steps,
            "arms": {
                arm: [
                    {**tune.candidates[arm][place], "score": tried.score, "died": tried.failure or None}
                    | {"kept": place in tuning_round.promoted[arm]}
                    for place, tried in trials_of_arm.items()
                ]
                for arm, trials_of_arm in tuning_round.results.items()
            },
        }
        for tuning_round in (trials.rounds if trials is not None else ())
    ]
    chosen = {arm: tune.values(arm) for arm in tune.candidates}
    spent = {"seeds": tune.seeds, "candidates": tune.number, "steps_per_arm": tune.spent}
    return {"reading": f"trial.{tune.metric}", "metric": tune.metric, **spent, "chosen": chosen, "rounds": rounds}
