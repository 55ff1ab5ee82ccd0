"""The certificate: for every two arms and every seed, whether the two runs are a matched pair.

An undeclared difference forbids a verdict, unless a person accepted it with a reason. The report
then prints the reason beside the verdict.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, combinations, product
from pathlib import Path

from gspo_lab.analysis.matching.checks import all_checks
from gspo_lab.analysis.matching.record_checks import record_faults
from gspo_lab.analysis.matching.run_pair import (
    OWN_RECORD,
    Check,
    Fault,
    Match,
    differs,
    format_value,
    run_pair,
)
from gspo_lab.analysis.matching.trace import Trace, traces
from gspo_lab.analysis.matching.tuning_check import tuning_check
from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import ACCEPTED, STUDY
from gspo_lab.common.plain_data import Integers, JsonObject, Strings
from gspo_lab.common.text import counted, first_few, listed, seeds_text
from gspo_lab.recording.store import Evidence, audit
from gspo_lab.recording.store.traces import read_starts
from gspo_lab.study import Declaration, flat
from gspo_lab.study.dotted_keys import read

SHOWN = 3
"""Differing parts that a reason names; the certificate names them all."""
DETAILS = 6
"""Different details of one check and state that are printed; a sweep has hundreds of pairs."""
DECIDING = (OWN_RECORD, "weights", "prompts", "first rollout")
"""Checks that prove a match: the lab recorded the runs, and they share starting weights, prompts
and first responses. Without them, equal settings are only a claim."""
RUNS = "declared runs"
JOURNALS = "journals"
REGRADED = "regraded"
UNVERIFIED = tuple(
    Check(name, Match.NOT_VERIFIED, "not verified here; gspo-lab certify does")
    for name in (RUNS, JOURNALS, REGRADED)
)
"""The checks of a complete record, which only `gspo-lab certify` makes: they read every file again.
"""
AS_LOGGED = ("prompts", "code", "weights")
"""Checks that are named beside the verdict of imported runs if their data were not recorded."""


@dataclass(frozen=True)
class Pair:
    """The checks of two arms' runs with one seed."""

    arms: tuple[str, str]
    seed: int
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        """The pair as text. The names of accepted differences begin with it."""
        return f"{self.arms[0]} / {self.arms[1]}, seed {self.seed}"


PairCheck = tuple[Pair | None, Check]
"""A check, and the pair that it is of; None: of the study."""


@dataclass(frozen=True)
class Acceptance:
    """The undeclared differences that a person accepted, with the reason and the time."""

    reason: str
    time: str
    differences: Strings


@dataclass(frozen=True)
class Certificate:
    """All checks of a study's runs.

    `lock` checks the declaration that all pairs share, `tuning` the tuning trials.
    """

    study: str
    baseline: str
    lock: Check
    pairs: tuple[Pair, ...]
    acceptances: tuple[Acceptance, ...] = ()
    of_the_study: tuple[Check, ...] = UNVERIFIED
    """Checks of the complete record, which `gspo-lab certify` makes (`verify_record`)."""
    tuning: Check | None = None

    def checks(self) -> Iterator[PairCheck]:
        """Every check: those of the declaration, of each pair, and of the whole record; only a
        pair's has one.
        """
        yield from ((None, check) for check in (self.lock, self.tuning) if check is not None)
        for pair in self.pairs:
            yield from ((pair, check) for check in pair.checks)
        yield from ((None, check) for check in self.of_the_study)

    @cached_property
    def undeclared(self) -> Strings:
        """Every undeclared difference by the name under which it can be accepted."""
        return tuple(name for name, _, _, _ in self._mismatches)

    @cached_property
    def open(self) -> Strings:
        """The undeclared differences that were not accepted."""
        covered = set(chain.from_iterable(entry.differences for entry in self.acceptances))
        return tuple(name for name in self.undeclared if name not in covered)

    @cached_property
    def unproven(self) -> Strings:
        """The deciding checks for which a pair's runs recorded nothing; the verdict then names
        them.
        """
        counts = self.states()
        return tuple(name for name in DECIDING if name in counts and counts[name][Match.UNKNOWN])

    @cached_property
    def on_trust(self) -> Strings:
        """One sentence per program that recorded imported runs; empty if the lab's workers recorded
        all runs.
        """
        return tuple(
            dict.fromkeys(
                check.detail for _, check in self.of(OWN_RECORD) if check.state == Match.UNKNOWN
            )
        )

    @property
    def grade(self) -> str:
        """What imported runs did not record, as text; empty if the lab's workers recorded all
        runs.
        """
        counts = self.states() if self.on_trust else {}
        unknown = [name for name in AS_LOGGED if name in counts and counts[name][Match.UNKNOWN]]
        if not unknown:
            return ""
        verb = "were" if unknown[1:] else "was"
        return f"compared as logged: {listed(unknown)} {verb} not recorded"

    @property
    def ok(self) -> bool:
        """Whether no undeclared difference forbids a verdict."""
        return not self.open

    @property
    def reasons(self) -> dict[str, Strings]:
        """Per arm why a verdict against the baseline is forbidden, for `stats.decide`; allowed arms
        are left out.
        """
        return self.differences_from(self.baseline)

    def differences_from(self, baseline: str) -> dict[str, Strings]:
        """`reasons` with another arm as the baseline."""
        is_open = set(self.open)
        seeds: dict[str, dict[tuple[str, str], list[int]]] = {}
        arms = set(chain.from_iterable(pair.arms for pair in self.pairs)) - {baseline}
        for name, pair, check, part in self._mismatches:
            if name in is_open and (pair is None or baseline in pair.arms):
                for arm in arms if pair is None else set(pair.arms) - {baseline}:
                    differing = seeds.setdefault(arm, {}).setdefault((check.name, part), [])
                    differing += [] if pair is None else [pair.seed]
        return {arm: tuple(_reasons(by_part)) for arm, by_part in sorted(seeds.items())}

    def on(self, seeds: Collection[int]) -> "Certificate":
        """The certificate of the pairs with these seeds."""
        return replace(self, pairs=tuple(pair for pair in self.pairs if pair.seed in seeds))

    @cached_property
    def by_name(self) -> dict[str, list[PairCheck]]:
        """Each check of every pair; a check of the study has no pair.

        The lock comes first, then the order of the checks.
        """
        out: dict[str, list[PairCheck]] = {}
        for pair, check in self.checks():
            out.setdefault(check.name, []).append((pair, check))
        return out

    def states(self) -> dict[str, Counter[Match]]:
        """Per check the number of pairs in each state."""
        return {
            name: Counter([check.state for _, check in checks])
            for name, checks in self.by_name.items()
        }

    def of(self, name: str) -> list[PairCheck]:
        """One check of every pair."""
        return self.by_name.get(name, [])

    @property
    def headline(self) -> str:
        """The study and the summary, in one line."""
        return f"{self.study}: {self.summary}"

    @property
    def summary(self) -> str:
        """Whether the runs are matched, and by how many pairs and checks."""
        if not self.pairs and self.ok:
            return "no two runs with the same seed yet, nothing to match"
        counts = self.states()
        check_count = sum(set(states) != {Match.NOT_VERIFIED} for states in counts.values())
        scale = f"{check_count} checks, {counted(len(self.pairs), 'comparison')} of two runs"
        unknown = [name for name, states in counts.items() if states[Match.UNKNOWN]]
        gaps = f"; not recorded everywhere: {', '.join(unknown)}" if unknown else ""
        gaps = f"; {self.grade}" if self.grade else gaps
        if self.open:
            odd = [name for name, states in counts.items() if states[Match.UNDECLARED]]
            return f"NOT matched ({scale}): {', '.join(odd)}{gaps}"
        judgement = "not proven to be matched" if self.unproven else "matched"
        judgement += "".join(f", {sentence}" for sentence in self.on_trust)
        if self.undeclared:
            judgement += ", with accepted mismatches"
        return f"{judgement} ({scale}{gaps})"

    def lines(self) -> list[str]:
        """The certificate for a terminal: one line per check, or per detail where pairs differ."""
        out = [self.headline]
        for name in self.states():
            for state, detail, where in grouped(self.of(name)):
                mark = state.upper() if state == Match.UNDECLARED else state
                pairs = f"  [{where}]" if where else ""
                out.append(f"  {name:<19} {mark:<19} {detail}{pairs}")
        for accepted in self.acceptances:
            names = "; ".join(accepted.differences) or "nothing"
            out.append(f"  accepted on {accepted.time}: {accepted.reason} ({names})")
        return out

    def to_json(self) -> JsonObject:
        """The certificate as plain data, every check of every pair."""
        data = asdict(self)
        data["accepted"] = data.pop("acceptances")
        if self.tuning is None:
            del data["tuning"]
        if self.grade:
            data["grade"] = self.grade
        return data | {
            "ok": self.ok,
            "undeclared": self.undeclared,
            "open": self.open,
            "unproven": self.unproven,
            "reasons": self.reasons,
        }

    @cached_property
    def _mismatches(self) -> list[tuple[str, Pair | None, Check, str]]:
        out = []
        for pair, check in self.checks():
            for part in check.parts if check.state == Match.UNDECLARED else ():
                subject = pair.name if pair else "study"
                out.append((f"{subject}: {check.name}: {part}", pair, check, part))
        return out


def certificate(evidence: Evidence, declared: Declaration) -> Certificate:
    """Compare every two runs of a seed by their records, and read the acceptances in the study's
    accepted.json.
    """
    bands = flat({rule: list(band) for rule, band in declared.reference_bands.items()})
    seeds: dict[int, dict[str, Trace]] = {}
    begun = traces(evidence, declared.name)
    faults = record_faults(evidence, declared, begun)
    for trace in begun:
        if trace.arm in declared.arms and trace.seed in declared.seeds:
            seeds.setdefault(trace.seed, {})[trace.arm] = trace
    pairs = []
    for names in combinations(declared.arms, 2):
        for seed in declared.seeds:
            runs = seeds.get(seed, {})
            if names[0] in runs and names[1] in runs:
                pair = run_pair(runs[names[0]], runs[names[1]], declared.arms)
                pairs.append(
                    Pair(names, seed, all_checks(evidence, pair, declared.arms, bands, faults))
                )
    accepted = read_accepted(evidence.runs_folder / declared.name)
    tuning = tuning_check(evidence, declared)
    return Certificate(
        declared.name, declared.baseline, _lock(declared), tuple(pairs), accepted, tuning=tuning
    )


def reason_in_words(reason: str) -> str:
    """The reason, stripped. LabError if it is empty: the report prints it."""
    if not reason.strip():
        raise LabError(
            '--accept-mismatch: give the reason in words, e.g. --accept-mismatch "other host, same'
            ' CPU type"'
        )
    return reason.strip()


def read_accepted(home: Path) -> tuple[Acceptance, ...]:
    """The acceptances in a study's folder, oldest first. LabError for a damaged file."""
    path = home / ACCEPTED
    try:
        return read(tuple[Acceptance, ...], json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError) as error:
        raise LabError(f"{path} cannot be read ({error}); delete it and accept again") from error


def write_accepted(home: Path, acceptances: Sequence[Acceptance]) -> None:
    """Write all acceptances of a study atomically."""
    write_json(home / ACCEPTED, list(map(asdict, acceptances)))


def accept_mismatch(evidence: Evidence, declared: Declaration, reason: str) -> Certificate:
    """Accept all present undeclared differences, and write the reason to
    runs/<study>/accepted.json.

    LabError if no difference is open, so that a reason never covers differences that appear later.
    """
    result = certificate(evidence, declared)
    if not result.open:
        raise LabError(
            f"--accept-mismatch: {declared.name} has no undeclared difference; run it without that"
            " option"
        )
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    result = replace(
        result,
        acceptances=(*result.acceptances, Acceptance(reason_in_words(reason), moment, result.open)),
    )
    write_accepted(evidence.runs_folder / declared.name, result.acceptances)
    return result


def grouped(checks: Sequence[PairCheck]) -> list[tuple[Match, str, str]]:
    """(state, detail, pairs) of one check: pairs with equal details are one row, the worst state
    first.

    `pairs` is empty in a row about all pairs. Equal pairs with different details become one row
    with the first detail; any other state has at most DETAILS rows.
    """
    out: list[tuple[Match, str, str]] = []
    for state in Match:
        details: dict[str, list[str]] = {}
        for pair, check in checks:
            if check.state == state:
                details.setdefault(check.detail, []).append(pair.name if pair else "")
        if state == Match.EQUAL and len(details) > 1:
            example = f"e.g. {next(iter(details))} ({len(details)} values, each equal in its pairs)"
            details = {example: list(chain(*details.values()))}
        for detail, names in list(details.items())[:DETAILS]:
            where = "" if len(names) == len(checks) else first_few(names, 1)
            out.append((state, detail, where))
        if len(details) > DETAILS:
            out.append(
                (
                    state,
                    (
                        f"and {len(details) - DETAILS} more that read differently; the JSON has"
                        " them all"
                    ),
                    "",
                )
            )
    return out


def _lock(declared: Declaration) -> Check:
    """Whether study.json still matches its digest, and what later starts added to it."""
    name = "lock"
    locked = declared.digest
    present = declared.content_digest
    if locked is None:
        return Check(name, Match.UNKNOWN, "study.json holds no digest")
    if present != locked:
        digests = f"its digest is {format_value(locked)}, its content's {format_value(present)}"
        return Check(
            name,
            Match.UNDECLARED,
            f"study.json was edited after it was locked: {digests}",
            (STUDY,),
        )
    if declared.superseded and not declared.edits:
        return Check(
            name,
            Match.UNDECLARED,
            "study.json was declared otherwise before, and does not say how",
            (STUDY,),
        )
    if declared.not_grown:
        detail = (
            "study.json did not only grow since it was first declared:"
            f" {'; '.join(declared.not_grown)}"
        )
        return Check(name, Match.UNDECLARED, detail, declared.not_grown)
    edits = [str(edit) for edit in declared.edits]
    if declared.recorded is not None:
        detail = f"declared as its runs were imported, after they were made: {format_value(locked)}"
        return Check(name, Match.UNKNOWN, "; ".join([detail, *edits]), tuple(edits))
    if edits:
        names_only = all(edit.what.startswith("verdict.names") for edit in declared.edits)
        change = "only the display names changed" if names_only else "changed"
        detail = f"{change} after the first step: {'; '.join(edits)}"
        return Check(name, Match.DECLARED, detail, tuple(edits))
    return Check(
        name, Match.EQUAL, f"the study is as declared before its first step: {format_value(locked)}"
    )


def _reasons(seeds_by_part: dict[tuple[str, str], list[int]]) -> Iterable[str]:
    """One line per check: the differing parts and their seeds."""
    lines: dict[tuple[str, Integers], list[str]] = {}
    for (check, part), where in seeds_by_part.items():
        lines.setdefault((check, tuple(where)), []).append(part)
    for (check, seeds), differing in lines.items():
        text = f"undeclared difference in {check}: {first_few(differing, SHOWN)}"
        if seeds:
            text += f" ({seeds_text(seeds)})"
        yield text


FAULTS_SHOWN = 6
"""Faults that the detail of a check of the whole record describes; its parts name them all."""
Regraded = tuple[int, Sequence[Fault], Sequence[str]]
"""The regraded answers of one run: their number, the changed grades, and why other answers were
skipped.
"""


def verify_record(
    evidence: Evidence,
    matched: Certificate,
    regraded: Mapping[str, Regraded],
    seeds: Collection[int] | None = None,
) -> Certificate:
    """The certificate with the checks of the complete record.

    `regraded`: per run id its regraded answers. `seeds` are those that a verdict needs: a look
    may have made the later ones superfluous. None: all that are declared.
    """
    study = matched.study
    declared = Declaration.parse(evidence.study(study), study)
    needed = declared.seeds if seeds is None else seeds
    runs = _runs(evidence, study, declared, needed)
    checks = (runs, check_journals(evidence, study), _grades(regraded))
    return replace(matched, of_the_study=checks)


def _runs(evidence: Evidence, study: str, declared: Declaration, seeds: Collection[int]) -> Check:
    """Whether every declared run has a record, and every record is of a declared run.

    An import cannot tell a run that was lost from one that never was: it names them.
    """
    recorded = [(run.arm, run.seed) for run in evidence.chosen(study)]
    missing = [
        f"{arm}/s{seed}"
        for arm, seed in product(declared.arms, seeds)
        if (arm, seed) not in recorded
    ]
    if declared.recorded is not None and missing:
        names = first_few(missing, FAULTS_SHOWN)
        return Check(RUNS, Match.UNKNOWN, f"not imported: {names}")
    faults = [(run, f"{run} is declared and has no record") for run in missing]
    for arm, seed in recorded:
        if arm not in declared.arms or seed not in declared.seeds:
            run = f"{arm}/s{seed}"
            faults.append((run, f"{run} is recorded and not declared"))
    count = len(declared.arms) * len(seeds)
    equal = f"{count} declared runs, each with a record"
    return differs(RUNS, faults, limit=FAULTS_SHOWN, equal=equal)


def check_journals(evidence: Evidence, study: str) -> Check:
    """Whether every journal is complete and as sealed, and the database holds what the files
    hold.
    """
    faults: list[Fault] = []
    sealed = 0
    unsealed = []
    if fault := audit.study_at_fault(evidence.runs_folder, study, evidence.study(study)):
        faults.append((STUDY, fault))
    tune = Declaration.parse(evidence.study(study), study).tune
    changed = [] if tune is None else audit.journals_changed(evidence.runs_folder, tune.journals)
    faults += [(run, f"{run}: its journal is not what the arms chose on") for run in changed]
    runs = [run.id for run in evidence.chosen(study)]
    faults += [
        (_short(run), f"{run}: {why}")
        for run, why in audit.runs_left_out(evidence.runs_folder, study, set(runs))
    ]
    for run, complete, odd in audit.runs_at_fault(evidence.iter_rows, evidence.runs_folder, runs):
        sealed += complete is True
        if complete is None:
            unsealed.append(_short(run))
        faults += [(_short(run), f"{run}: {fault}") for fault in odd]
    starts = {row["run_id"]: row["facts"] for row in read_starts(evidence, study) if row["facts"]}
    for run in runs:
        start = json.loads(starts.get(run, "{}")).get("start")
        faults += [
            (_short(run), f"{run}: {why}")
            for why in audit.models_changed(evidence.runs_folder / run, start)
        ]
    if faults:
        return differs(JOURNALS, faults, limit=FAULTS_SHOWN)
    agree = "the database holds what the files do"
    if unsealed:
        return Check(
            JOURNALS,
            Match.UNKNOWN,
            f"{agree}; not sealed: {first_few(unsealed, FAULTS_SHOWN)}",
        )
    return Check(JOURNALS, Match.EQUAL, f"{sealed} sealed journals, line by line; {agree}")


def _grades(regraded: Mapping[str, Regraded]) -> Check:
    """Whether regraded answers get their stored grades from the grader that graded them."""
    faults: list[Fault] = []
    skipped: list[str] = []
    total = 0
    for run, (count, changed, reasons) in regraded.items():
        faults += [(f"{_short(run)}: {part}", f"{run}: {text}") for part, text in changed]
        skipped += reasons
        total += count
    if faults:
        return differs(REGRADED, faults, limit=FAULTS_SHOWN)
    detail = f"{total} answers graded again, all as they were"
    state = Match.NOT_VERIFIED if skipped or not regraded else Match.EQUAL
    return Check(REGRADED, state, "; ".join([detail, *dict.fromkeys(skipped)]))


def _short(run: str) -> str:
    return run.partition("/")[2]
