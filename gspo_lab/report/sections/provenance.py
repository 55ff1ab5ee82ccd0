"""Where the numbers come from: versions, commands, pairs, settings, logs, and what the arms chose
on trials.
"""

import json
import shlex
from functools import partial
from itertools import combinations
from typing import Any

from gspo_lab.analysis.findings.imported_metrics import imported_metrics as logged_of
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.matched import trials as trials_of
from gspo_lab.analysis.matching.certificate import grouped
from gspo_lab.analysis.matching.run_pair import Match, format_value, undeclared
from gspo_lab.analysis.matching.tuning_check import Trials, choices_text
from gspo_lab.analysis.readings import Source
from gspo_lab.common.text import capital
from gspo_lab.recording.store.run_files import END_LOST, FOREIGN
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NONE, NOT_MEASURED, fenced, format_number, h, table
from gspo_lab.report.section import Both, Part, Section, folded, grid, paragraph
from gspo_lab.study import Declaration, Origin, flat
from gspo_lab.study.import_origin import ABSENT, ORIGIN
from gspo_lab.study.tune import Tune, budget, label, schedule


def provenance(study: Source) -> Section | None:
    """Commands, the declaration's digest and its edits, versions and device."""
    declared = study.declaration
    commands = reproduce(declared)
    code = h("pre", h("code", "\n".join(commands)), tabindex="0")
    body: list[Part] = [h("h3", "To reproduce"), Both(code, fenced(commands))]
    if declared.comment:
        body.append(h("p", declared.comment, class_="soft"))
    if declared.digest:
        body.append(h("p", "Digest of the declared study: ", h("code", declared.digest)))
    body += [paragraph(f"Changed after it was declared: {edit}", "warn") for edit in declared.edits]
    origins = _origins(study)
    body += [paragraph(f"{origin}: taken on trust.", "warn") for origin in origins]
    damage_of: dict[int, dict[str, list[int]]] = {kind: {} for kind in (0, 1, END_LOST, FOREIGN)}
    query = (
        "SELECT path, line, COALESCE(gap, 0) AS gap FROM chosen JOIN damaged USING (run_id) ORDER"
        " BY path, line"
    )
    for row in study.evidence.select(study.study, query).to_dict("records"):
        damage_of[int(row["gap"])].setdefault(row["path"], []).append(int(row["line"]))
    damaged, gaps, ends, foreign = damage_of.values()
    damages = [
        *(
            f"Damaged and left out: line {', '.join(map(str, lines))} of {path}"
            for path, lines in damaged.items()
        ),
        *(
            f"A line is missing before line {', '.join(map(str, lines))} of {path}"
            for path, lines in gaps.items()
        ),
        *(
            f"Gone, or damaged: the end of {path}, from line {lines[0]} on"
            for path, lines in ends.items()
        ),
        *(f"Recorded for another run and left out: {path}" for path in foreign),
    ]
    missing = "What was recorded there is missing from every number above."
    body += [paragraph(f"{damage}. {missing}", "warn") for damage in damages]
    known, varying = _facts(study)
    if known:
        rows = [[key, setting(entry, NOT_MEASURED)] for key, entry in known.items()]
        body.append(table(["fact", "all runs"], rows, caption="Versions and device"))
    else:
        body.append(h("p", f"Versions and device: {NOT_MEASURED}", class_="missing"))
    if varying:
        by_run = [
            [
                key,
                "; ".join(f"{run}: {setting(entry, NOT_MEASURED)}" for run, entry in runs.items()),
            ]
            for key, runs in varying.items()
        ]
        body.append(
            folded(f"{len(varying)} facts in which runs differ", table(["fact", "by run"], by_run))
        )
    data = {
        "facts": known,
        "facts_by_run": varying,
        "commands": commands,
        "digest": declared.digest,
    }
    data |= {"origins": origins, "damaged": damaged, "gaps": gaps, "ends": ends, "foreign": foreign}
    return Section("provenance", "Provenance", tuple(body), data)


def downloads(study: Source) -> Section | None:
    """What to take along.

    The buttons are the script's; the line says where the same numbers are without it.
    """
    buttons = [
        h("button", label, type="button", data_save=kind, hidden=True)
        for kind, label in (("json", "All figures and tables, JSON"), ("csv", "All figures, CSV"))
    ]
    buttons.append(
        h("button", "Print the whole page", type="button", data_print="all", hidden=True)
    )
    about = (
        "Each figure and table has its own CSV button. Printing gives two sheets of the sections"
        " that decide; the button here prints all. The report's .json beside this file holds the"
        " same numbers with six digits and stable keys, and gspo-lab export writes every record."
    )
    return Section("data", "Data", (h("p", about), h("p", *buttons, class_="downloads")))


def reproduce(declared: Declaration) -> list[str]:
    """The command lines that run the study again, check its pairs and render this page.

    A study that grew has a line for each start that let it; one declared before commands were kept
    has none. A replication is begun from the study that it replicates.
    """
    starts = [["run", *command] for command in declared.commands]
    if declared.replicates is not None:
        starts = [["replicate", declared.replicates.name]]
    after = (["certify", declared.name], ["report", declared.name])
    return [shlex.join(["gspo-lab", *words]) for words in (*starts, *after)]


def _origins(study: Source) -> dict[str, list[str]]:
    runs: dict[str, list[str]] = {}
    for run in study.evidence.runs(study.study).to_dict("records"):
        fact = json.loads(run["facts"]).get(ORIGIN) if isinstance(run["facts"], str) else None
        if fact is not None:
            origin = Origin.from_fact(fact, run["run_id"])
            changed = f" ({'; '.join(origin.converted)})" if origin.converted else ""
            recorded = f"Recorded by {origin.recorder}, read from {origin.source}{changed}"
            runs.setdefault(recorded, []).append(run["run_id"])
    return runs


def _facts(study: Source) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Those that all runs share, and those in which they differ by run. The definitions of an
    imported run's metrics have a section of their own."""
    runs = [
        run
        for run in study.evidence.runs(study.study).to_dict("records")
        if isinstance(run["facts"], str)
    ]
    by_run = {
        run["run_id"].removeprefix(f"{study.study}/"): flat(json.loads(run["facts"]))
        for run in runs
    }
    keys = sorted(
        {
            key
            for facts in by_run.values()
            for key in facts
            if not key.startswith(f"{ORIGIN}.metrics.")
        }
    )
    entries = {key: {run: facts.get(key) for run, facts in by_run.items()} for key in keys}
    first = {key: next(iter(of_runs.values())) for key, of_runs in entries.items()}
    known = {
        key: first[key]
        for key in keys
        if all(entry == first[key] for entry in entries[key].values())
    }
    return known, {key: entries[key] for key in keys if key not in known}


INTRODUCTION = (
    "Two runs with one seed are a pair if nothing differs between them but what their arms declare."
    " Each check compares what both recorded of themselves; until the first update, the runs of a"
    " pair must do the very same."
)


DIFFERS = partial(h, "span", class_="differs")


def certificate(study: Source) -> Section | None:
    """A table of check and state over all pairs, every pair's detail folded, and what was accepted
    with its reason.
    """
    matched = study_certificate(study)
    if not matched.pairs:
        return None
    states = matched.states()
    columns = [state for state in reversed(Match) if any(count[state] for count in states.values())]
    rows = [
        [
            name,
            *(
                DIFFERS(by[at]) if by[at] and at == Match.UNDECLARED else str(by[at] or "")
                for at in columns
            ),
        ]
        for name, by in states.items()
    ]
    head = ["check", "state", "seen", "pairs"]
    details = [
        [name, str(state), text, where or "all pairs"]
        for name in states
        for state, text, where in grouped(matched.of(name))
    ]
    odd = [row for row in details if row[1] == Match.UNDECLARED]
    accepted = [
        f"Mismatch accepted on {acceptance.at}: {acceptance.reason}"
        for acceptance in matched.acceptances
    ]
    body: list[Part] = [
        h("p", INTRODUCTION),
        paragraph(matched.summary, "warn" if matched.undeclared else None),
    ]
    body += [paragraph(line, "warn") for line in accepted]
    if odd:
        body.append(
            table(["check", "", "what differs", "pairs"], odd, caption="Undeclared differences")
        )
    caption = (
        f"Number of pairs in each state ({len(matched.pairs)} pairs: every two arms, every seed;"
        " the lock is one)"
    )
    body.append(table(["check", *columns], rows, caption=caption))
    body.append(grid(head, details, fold="What each check saw"))
    # The certificate's own JSON; of equal checks the pairs are counted instead of listed.
    data = matched.to_json()
    data["states"] = {
        name: {str(state): n for state, n in count.items()} for name, count in states.items()
    }
    for pair in data["pairs"]:
        pair["checks"] = [check for check in pair["checks"] if check["state"] != Match.EQUAL]
    return Section("certificate", "Certificate", tuple(body), data)


def settings(study: Source) -> Section | None:
    """Each arm's own settings in a table, the shared ones folded."""
    arms = study.declaration.arms
    order = study.arms
    is_known = study.declaration.is_known
    imported = study.declaration.recorded is not None
    resolved = {
        name: {k: v for k, v in flat(arm.resolved).items() if is_known(name, k)}
        for name, arm in arms.items()
    }
    keys = sorted({key for settings in resolved.values() for key in settings})
    values = {
        key: [resolved[arm].get(key, ABSENT if imported else None) for arm in order] for key in keys
    }
    shared = {key: row[0] for key, row in values.items() if all(entry == row[0] for entry in row)}
    odd = {
        key
        for first, second in combinations(order, 2)
        for key in undeclared(arms[first], arms[second])
    }
    declared = {key: DIFFERS("no") if key in odd else "yes" for key in keys}
    rows = [[key, *map(setting, values[key]), declared[key]] for key in keys if key not in shared]
    head = ["setting", *order, "declared"]
    body: list[Part] = []
    if imported:
        body.append(paragraph("Imported runs: what is missing here was not recorded.", "warn"))
    if rows:
        body.append(grid(head, rows, "What the arms differ in, and whether an arm states it"))
    listing = table(
        ["setting", "all arms"], [[key, setting(entry)] for key, entry in shared.items()]
    )
    body.append(folded(f"The {len(shared)} settings that all arms share", listing))
    by_arm = {
        arm: {key: values[key][i] for key in keys if key not in shared}
        for i, arm in enumerate(order)
    }
    data = {"shared": shared, "arms": by_arm, "undeclared": sorted(odd)}
    return Section("settings", "Settings", tuple(body), data)


def setting(entry: Any, absent: str = "unset") -> str:
    """A setting or a fact in a table's cell."""
    if entry is None:
        return absent
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    return (
        f"{entry:g}"
        if isinstance(entry, float)
        else entry
        if isinstance(entry, str)
        else json.dumps(entry)
    )


ABOUT_LOGS = (
    "These runs were recorded by other programs. A number is a column of the lab, and stands in the"
    " figures below, only where its program defines it as the lab does; all others keep their own"
    " name here and are compared with nothing. A row of a log is a mean over its program's own"
    " interval, so that nothing here speaks of single updates."
)


def imported_metrics(study: Source) -> Section | None:
    """What spoils the comparison, what is defined differently, and every name with its definition
    and its last mean.
    """
    known = logged_of(study)
    if known is None:
        return None
    values: dict[tuple[str, str | None, str | None], dict[str, str]] = {}
    for arm, names in known.names.items():
        for metric in names:
            place = "in the figures" if metric.column else "in the scores" if metric.score else ""
            key = (metric.name, metric.meaning, metric.column)
            values.setdefault(key, {})[arm] = place or format_number(metric.value)
    ordered = sorted(values, key=lambda key: (key[1] is None, key[2] is None, key[0]))
    rows = [
        [
            key[0],
            key[1] or "not understood",
            key[2] or NONE,
            *(values[key].get(arm, NONE) for arm in study.arms),
        ]
        for key in ordered
    ]
    head = [
        "name in the log",
        "what it is",
        "column",
        *(f"{arm}, last fifth" for arm in study.arms),
    ]
    lines = (*known.warnings, *known.apart)
    body: list[Part] = [h("p", ABOUT_LOGS), *(paragraph(line, "warn") for line in lines)]
    body.append(grid(head, rows, fold=f"The {len(rows)} names in the logs", class_="prose"))
    by_arm = {
        arm: {
            metric_.name: {k: v for k, v in vars(metric_).items() if k != "name" and v is not None}
            for metric_ in names
        }
        for arm, names in known.names.items()
    }
    data = {
        "warnings": list(known.warnings),
        "not_compared": list(known.apart),
        "not_understood": known.strange,
    }
    data["names"] = by_arm
    return Section("logged", "As logged", tuple(body), data, lines)


HEAD = ["arm", "candidate", "trained to step", "score", "what became of it"]


def tuning(study: Source) -> Section | None:
    """None for a study whose arms train with what they declare."""
    tune = study.declaration.tune
    if tune is None or study.declaration.trials_of is not None:
        return None
    if not tune.chosen:
        sentence = "The arms have not chosen yet: their trials are not at their end."
        return Section("tuning", "Tuning", (paragraph(sentence, "missing"),), {"chosen": None})
    trials = trials_of(study)
    seeds = ", ".join(map(str, tune.seeds))
    spent = budget(tune)
    summary = (
        f"{capital(spent)}; the seeds, {seeds}, are none of the study's. Chosen:"
        f" {choices_text(tune)}."
    )
    rule = (
        f"Successive halving: {schedule(tune)}; what is kept goes on. A candidate of which a seed"
        " collapses or dies comes last; of equal ones the nearest to what the arm declares"
        " goes on."
    )
    body: list[Part] = [paragraph(summary), h("p", rule, class_="soft")]
    if trials is None:
        body.append(
            h("p", f"The trials, {tune.trials}, are not in this database.", class_="missing")
        )
        return Section("tuning", "Tuning", tuple(body), _trials_data(tune, None))
    body += [_chart(tune, trials, arm) for arm in tune.candidates]
    rows = [row for arm in tune.candidates for row in _rows(tune, trials, arm)]
    body.append(grid(HEAD, rows, fold="Every candidate, round by round"))
    return Section("tuning", "Tuning", tuple(body), _trials_data(tune, trials))


def _chart(tune: Tune, trials: Trials, arm: str) -> Chart:
    """Score against value, a series for each round, which has one colour in all arms."""
    labels = tuple(label(values) for values in tune.candidates[arm])
    series = []
    for number, tuning_round in enumerate(trials.rounds):
        if arm in tuning_round.results:
            tried = [tuning_round.results[arm].get(place) for place in range(tune.number)]
            y = tuple(None if trial is None else trial.score for trial in tried)
            series.append(Series(f"step {tuning_round.steps}", labels, y, colour=number))
    return Chart(
        f"m-tuning-{arm}",
        f"Trials of {arm}",
        ", ".join(tune.keys(arm)),
        tune.metric,
        tuple(series),
        kind="dots",
        whole=True,
        finding=f"{arm} chose {label(tune.values(arm))}",
        reading=f"trial.{tune.metric}",
    )


def _rows(tune: Tune, trials: Trials, arm: str) -> list[list[Any]]:
    out = []
    for place, values in enumerate(tune.candidates[arm]):
        settings = ", ".join(f"{key} = {format_value(value)}" for key, value in values.items())
        for tuning_round in trials.rounds:
            if (tried := tuning_round.results.get(arm, {}).get(place)) is not None:
                fate = "goes on" if place in tuning_round.promoted[arm] else "left behind"
                fate = tried.failure or (
                    "chosen" if tuning_round.promoted[arm] == [place] else fate
                )
                score = "last" if tried.score is None else f"{tried.score:.3f}"
                out.append([arm, settings, tuning_round.steps, score, fate])
    return out


def _trials_data(tune: Tune, trials: Trials | None) -> dict[str, Any]:
    rounds = [
        {
            "steps": tuning_round.steps,
            "arms": {
                arm: [
                    {
                        **tune.candidates[arm][place],
                        "score": tried.score,
                        "died": tried.failure or None,
                    }
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
    return {
        "reading": f"trial.{tune.metric}",
        "metric": tune.metric,
        **spent,
        "chosen": chosen,
        "rounds": rounds,
    }
