"""Where the numbers come from: versions, commands, pairs, settings, logs, and what the arms chose
on trials.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from gspo_lab.analysis.findings.imported_metrics import imported_metrics as logged_of
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.matched import trials as trials_of
from gspo_lab.analysis.matching.certificate import Pair, grouped
from gspo_lab.analysis.matching.run_pair import Match, format_value, undeclared
from gspo_lab.analysis.matching.tuning_check import Trials, choices_text
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import Integers, JsonObject, OptionalText
from gspo_lab.common.text import capital
from gspo_lab.recording.store.run_files import END_LOST, FOREIGN
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.templating import NONE, NOT_MEASURED, format_number, setting
from gspo_lab.report.views.view import Inlined, PageOnly, View, by_id
from gspo_lab.study import Declaration, Origin, flat
from gspo_lab.study.import_origin import ABSENT, ORIGIN
from gspo_lab.study.parent import Kind
from gspo_lab.study.tune import Tune, budget, label, schedule

Texts = dict[str, list[str]]
"""Texts by name."""

Objects = dict[str, JsonObject]
"""Objects of JSON by name."""

LinesByFile = dict[str, dict[str, list[int]]]
"""Kind of damage -> file -> its lines."""


@dataclass(frozen=True)
class ProvenanceView(View):
    """Commands, the declaration's digest and its edits, what was damaged, versions and device."""

    id = "provenance"
    title = "Provenance"
    commands: list[str]
    comment: str
    digest: OptionalText
    edits: list[str]
    derived: dict[str, str]
    """The studies that were derived from this one, and what for."""
    origins: Texts
    """What recorded imported runs, and which runs."""
    damages: Inlined[LinesByFile]
    """The damaged files and their lines, by kind: damaged, gaps, ends, foreign."""
    facts: JsonObject
    """Recorded facts that all runs share."""
    facts_by_run: Objects
    """Recorded facts in which runs differ."""

    @property
    def shared_facts(self) -> list[tuple[str, str]]:
        """The table of facts that all runs share."""
        return [(key, setting(fact, NOT_MEASURED)) for key, fact in self.facts.items()]

    @property
    def varying_facts(self) -> list[tuple[str, str]]:
        """The table of facts in which runs differ."""
        rows = []
        for key, runs in self.facts_by_run.items():
            cells = [f"{run}: {setting(fact, NOT_MEASURED)}" for run, fact in runs.items()]
            rows.append((key, "; ".join(cells)))
        return rows


def provenance_view(study: Source) -> ProvenanceView:
    """How to run the study again, and on what it ran."""
    declared = study.declaration
    shared, varying = _facts(study)
    return ProvenanceView(
        reproduce(declared),
        declared.comment,
        declared.digest,
        [str(edit) for edit in declared.edits],
        _derived_studies(study),
        _origins(study),
        _damages(study),
        shared,
        varying,
    )


def reproduce(declared: Declaration) -> list[str]:
    """The command lines that run the study again, check its pairs and render this page.

    A study that grew has a line for each start that let it. A replication is begun from the study
    that it replicates.
    """
    starts = [["run", *command] for command in declared.commands]
    if declared.original is not None:
        starts = [["replicate", declared.original]]
    readers = (["certify", declared.name], ["report", declared.name])
    return [shlex.join(["gspo-lab", *words]) for words in (*starts, *readers)]


def _derived_studies(study: Source) -> dict[str, str]:
    """Name -> kind of the declared studies, and of the pilots, which lie below this one."""
    query = (
        "SELECT study, json_extract(content, '$.parent.kind') FROM studies WHERE"
        " json_extract(content, '$.parent.study') = ? ORDER BY declared_at, study"
    )
    derived = {str(name): str(kind) for name, kind in study.evidence.rows(query, (study.study,))}
    for kind in (Kind.PILOT, Kind.ADVICE):
        name = kind.study_name(study.study)
        if (study.evidence.runs_folder / name).is_dir():
            derived[name] = kind.value
    return derived


def _damages(study: Source) -> LinesByFile:
    """What is missing from the records of the study's runs: kind -> file -> lines."""
    kinds = {0: "damaged", 1: "gaps", END_LOST: "ends", FOREIGN: "foreign"}
    lines: LinesByFile = {kind: {} for kind in kinds.values()}
    query = (
        "SELECT path, line, COALESCE(gap, 0) AS gap FROM chosen JOIN damaged USING (run_id) ORDER"
        " BY path, line"
    )
    for row in study.evidence.select(study.study, query):
        lines[kinds[row["gap"]]].setdefault(row["path"], []).append(row["line"])
    return lines


def _origins(study: Source) -> Texts:
    runs: Texts = {}
    for run in study.evidence.run_rows(study.study):
        fact = json.loads(run["facts"] or "{}").get(ORIGIN)
        if fact is not None:
            origin = Origin.from_fact(fact, run["run_id"])
            changed = f" ({'; '.join(origin.converted)})" if origin.converted else ""
            recorded = f"Recorded by {origin.recorder}, read from {origin.source}{changed}"
            runs.setdefault(recorded, []).append(run["run_id"])
    return runs


def _facts(study: Source) -> tuple[JsonObject, Objects]:
    """Facts that all runs share, and by run those in which they differ. The definitions of an
    imported run's metrics have a section of their own."""
    by_run: Objects = {}
    for run in study.evidence.run_rows(study.study):
        if run["facts"] is not None:
            name = run["run_id"].removeprefix(f"{study.study}/")
            by_run[name] = flat(json.loads(run["facts"]))
    shared, varying = _split(by_run, None)
    for facts in (shared, varying):
        for key in [key for key in facts if key.startswith(f"{ORIGIN}.metrics.")]:
            del facts[key]
    return shared, varying


def _split(owners: Mapping[str, JsonObject], absent: OptionalText) -> tuple[JsonObject, Objects]:
    """The values that all owners share, and by key, then by owner, those that differ; `absent`
    stands for a value that an owner lacks.
    """
    shared = {}
    varying = {}
    for key in sorted(set().union(*owners.values())):
        values = {name: owned.get(key, absent) for name, owned in owners.items()}
        settled, *remaining = values.values()
        if all(value == settled for value in remaining):
            shared[key] = settled
        else:
            varying[key] = values
    return shared, varying


@dataclass(frozen=True)
class CertificateView(View):
    """Check and state over all pairs, every pair's detail, and what was accepted with its
    reason."""

    id = "certificate"
    title = "Certificate"
    certificate: Inlined[JsonObject]
    """The certificate's own JSON without the checks that were equal."""
    states: dict[str, dict[str, int]]
    """How many pairs are in which state, by check."""
    details: PageOnly[list[tuple[str, str, str, str]]]
    """Check, state, what it saw, pairs."""
    summary: PageOnly[str]
    matched: PageOnly[bool]
    accepted_lines: PageOnly[list[str]]
    pair_count: PageOnly[int]

    @property
    def columns(self) -> list[str]:
        """The states that occur."""
        every = [str(state) for state in reversed(Match)]
        return [state for state in every if any(by.get(state) for by in self.states.values())]

    @property
    def undeclared(self) -> list[tuple[str, str, str, str]]:
        """The details of what differs and is not declared."""
        return [row for row in self.details if row[1] == Match.UNDECLARED]


def certificate_view(study: Source) -> CertificateView | None:
    """Whether the runs are pairs; None without a pair."""
    matched = study_certificate(study)
    if not matched.pairs:
        return None
    states = {}
    details = []
    for name, counts in matched.states().items():
        states[name] = {str(state): count for state, count in counts.items()}
        for state, text, where in grouped(matched.of(name)):
            details.append((name, str(state), text, where or "all pairs"))
    accepted = [
        f"Mismatch accepted on {entry.time}: {entry.reason}" for entry in matched.acceptances
    ]
    return CertificateView(
        replace(matched, pairs=tuple(map(_without_equal_checks, matched.pairs))).to_json(),
        states,
        details,
        matched.summary,
        not matched.undeclared,
        accepted,
        len(matched.pairs),
    )


def _without_equal_checks(pair: Pair) -> Pair:
    return replace(pair, checks=tuple(check for check in pair.checks if check.state != Match.EQUAL))


@dataclass(frozen=True)
class SettingsView(View):
    """Each arm's own settings, and those that all arms share."""

    id = "settings"
    title = "Settings"
    shared: JsonObject
    arms: Objects
    undeclared: list[str]
    imported: bool

    @property
    def own(self) -> list[list[str]]:
        """The table of settings in which arms differ, and whether an arm states each."""
        rows = []
        for key in next(iter(self.arms.values()), {}):
            values = [setting(settings[key]) for settings in self.arms.values()]
            rows.append([key, *values, "no" if key in self.undeclared else "yes"])
        return rows


def settings_view(study: Source) -> SettingsView:
    """What every arm trained with."""
    declared = study.declaration
    imported = declared.recorded is not None
    resolved = {}
    for name, arm in declared.arms.items():
        every = arm.flat_settings
        resolved[name] = {key: every[key] for key in every if declared.is_known(name, key)}
    shared, varying = _split(resolved, ABSENT if imported else None)
    by_arm = {arm: {key: varying[key][arm] for key in varying} for arm in study.arms}
    odd: set[str] = set()
    for name, other in combinations(study.arms, 2):
        odd.update(undeclared(declared.arms[name], declared.arms[other]))
    return SettingsView(shared, by_arm, sorted(odd), imported)


@dataclass(frozen=True)
class LoggedView(View):
    """What spoils the comparison of imported logs, what is defined differently, and every name with
    its definition and its last mean."""

    id = "logged"
    title = "As logged"
    warnings: list[str]
    not_compared: list[str]
    not_understood: Texts
    names: dict[str, Objects]
    rows: PageOnly[list[list[str]]]
    arms: PageOnly[list[str]]


def logged_view(study: Source) -> LoggedView | None:
    """None for a study whose runs were recorded here."""
    logged = logged_of(study)
    if logged is None:
        return None
    values: dict[tuple[str, OptionalText, OptionalText], dict[str, str]] = {}
    by_arm: dict[str, Objects] = {}
    for arm, names in logged.names.items():
        by_arm[arm] = {}
        for metric in names:
            text = format_number(metric.value)
            if metric.column:
                text = "in the figures"
            elif metric.score:
                text = "in the scores"
            values.setdefault((metric.name, metric.meaning, metric.column), {})[arm] = text
            fields = {key: value for key, value in vars(metric).items() if value is not None}
            by_arm[arm][metric.name] = {key: fields[key] for key in fields if key != "name"}
    rows = []
    for key in sorted(values, key=lambda key: (key[1] is None, key[2] is None, key[0])):
        name, meaning, column = key
        cells = [values[key].get(arm, NONE) for arm in study.arms]
        rows.append([name, meaning or "not understood", column or NONE, *cells])
    return LoggedView(
        list(logged.warnings), list(logged.apart), logged.strange, by_arm, rows, list(study.arms)
    )


@dataclass(frozen=True)
class TuningView(View):
    """What the arms chose on trials, round by round."""

    id = "tuning"
    title = "Tuning"
    chosen: Objects | None
    """The chosen values by arm; None while the trials are not at their end."""
    reading: str = ""
    metric: str = ""
    seeds: Integers = ()
    candidates: int = 0
    steps_per_arm: int = 0
    rounds: tuple[JsonObject, ...] = ()
    summary: str = ""
    schedule: str = ""
    missing: str = ""
    """The name of trials that are not in this database."""
    figures: PageOnly[dict[str, Chart]] = field(default_factory=dict)
    keys: PageOnly[Texts] = field(default_factory=dict)
    """The keys that each arm chose."""

    @property
    def rows(self) -> list[tuple[str, str, int, str, str]]:
        """Every candidate, round by round: arm, values, steps, score, what became of it."""
        rows = []
        for tuning_round in self.rounds:
            for arm, results in tuning_round["arms"].items():
                kept_trials = sum(result["kept"] for result in results)
                for result in results:
                    values = [f"{key} = {format_value(result[key])}" for key in self.keys[arm]]
                    fate = "goes on" if result["kept"] else "left behind"
                    if result["kept"] and kept_trials == 1:
                        fate = "chosen"
                    score = "last" if result["score"] is None else f"{result['score']:.3f}"
                    fate = result["died"] or fate
                    rows.append((arm, ", ".join(values), tuning_round["steps"], score, fate))
        return rows


def tuning_view(study: Source) -> TuningView | None:
    """None for a study whose arms train with what they declare."""
    tune = study.declaration.tune
    if tune is None or not study.declaration.has_verdict:
        return None
    if not tune.chosen:
        return TuningView(None)
    trials = trials_of(study)
    seeds = ", ".join(map(str, tune.seeds))
    rounds: list[JsonObject] = []
    charts = []
    if trials is not None:
        rounds = _rounds(tune, trials)
        for arm in tune.candidates:
            charts.append(_trials_chart(tune, trials, arm))
    return TuningView(
        {arm: tune.values(arm) for arm in tune.candidates},
        f"trial.{tune.metric}",
        tune.metric,
        tuple(tune.seeds),
        tune.number,
        tune.spent,
        tuple(rounds),
        f"{capital(budget(tune))}; the seeds, {seeds}, are none of the study's. Chosen:"
        f" {choices_text(tune)}.",
        schedule(tune),
        "" if trials is not None else str(tune.trials),
        by_id(*charts),
        {arm: tune.keys(arm) for arm in tune.candidates},
    )


def _trials_chart(tune: Tune, trials: Trials, arm: str) -> Chart:
    """Score against value, a series for each round, which has one colour in all arms."""
    labels = tuple(label(values) for values in tune.candidates[arm])
    series = []
    for number, tuning_round in enumerate(trials.rounds):
        if arm not in tuning_round.results:
            continue
        results = [tuning_round.results[arm].get(place) for place in range(tune.number)]
        y = tuple(None if result is None else result.score for result in results)
        series.append(Series(f"step {tuning_round.steps}", labels, y, colour=number))
    return Chart(
        f"m-tuning-{arm}",
        f"Trials of {arm}",
        ", ".join(tune.keys(arm)),
        tune.metric,
        tuple(series),
        kind="dots",
        from_zero=True,
        finding=f"{arm} chose {label(tune.values(arm))}",
        reading=f"trial.{tune.metric}",
    )


def _rounds(tune: Tune, trials: Trials) -> list[JsonObject]:
    rounds = []
    for tuning_round in trials.rounds:
        arms: dict[str, list[JsonObject]] = {}
        for arm, results in tuning_round.results.items():
            arms[arm] = []
            for place, result in results.items():
                outcome = {"score": result.score, "died": result.failure or None}
                promotion = {"kept": place in tuning_round.promoted[arm]}
                arms[arm].append(tune.candidates[arm][place] | outcome | promotion)
        rounds.append({"steps": tuning_round.steps, "arms": arms})
    return rounds


@dataclass(frozen=True)
class DownloadsView(View):
    """What to take along: the page's buttons, which its script makes work."""

    id = "data"
    title = "Data"


def downloads_view(study: Source) -> DownloadsView:
    """The downloads: equal for every study."""
    return DownloadsView()
