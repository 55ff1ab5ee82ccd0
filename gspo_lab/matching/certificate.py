"""The certificate: for every two arms and every seed, check by check, whether the two runs are a pair.

An undeclared difference forbids a verdict, unless somebody accepted it with a reason; the reason is then shown wherever
the verdict is.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.files import write_json
from gspo_lab.layout import ACCEPTED, STUDY
from gspo_lab.matching.checks import all_checks
from gspo_lab.matching.own import accounts
from gspo_lab.matching.pairing import (
    DECLARED,
    EQUAL,
    NOT_VERIFIED,
    OWN_RECORD,
    UNDECLARED,
    UNKNOWN,
    Check,
    State,
    sides,
)
from gspo_lab.matching.settings import shown
from gspo_lab.matching.trace import Trace, traces
from gspo_lab.matching.tuned import tuning_check
from gspo_lab.store.traces import read_questions
from gspo_lab.study import Arm, Declaration, flat

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

SHOWN = 3
"""Differing parts that a reason names; the certificate names them all."""
SAYINGS = 6
"""Different findings of one check and state that are printed; a sweep has hundreds of pairs."""
DECIDING = (OWN_RECORD, "weights", "prompts", "first rollout")
"""Checks without which equal settings are a promise: that the lab saw the runs, that they started alike, were asked
alike and answered alike."""
JOURNALS, REGRADED, SIGNATURE = "journals", "regraded", "signature"
UNVERIFIED = tuple(
    Check(name, NOT_VERIFIED, "not verified here; gspo-lab certify does") for name in (JOURNALS, REGRADED, SIGNATURE)
)
"""The checks of a whole record that a report leaves to `gspo-lab certify`: they cost as much as reading all again."""
AS_LOGGED = ("prompts", "code", "weights")
"""What a reader must know was not recorded of imported runs, wherever their verdict stands."""
WORST_FIRST: tuple[State, ...] = (UNDECLARED, UNKNOWN, NOT_VERIFIED, DECLARED, EQUAL)


@dataclass(frozen=True)
class Pair:
    """The checks of two arms' runs with one seed."""

    arms: tuple[str, str]
    seed: int
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        """The pair for people, and in the names under which differences are accepted."""
        return f"{self.arms[0]} / {self.arms[1]}, seed {self.seed}"


@dataclass(frozen=True)
class Acceptance:
    """Mismatches that a person took upon themselves: those that were there when the reason was given."""

    reason: str
    at: str
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Certificate:
    """What was checked to say that a study's runs are matched. `lock` is about the declaration that all pairs share,
    `tuning` about the trials on which their arms chose, where they did."""

    study: str
    baseline: str
    lock: Check
    pairs: tuple[Pair, ...]
    acceptances: tuple[Acceptance, ...] = ()
    of_the_study: tuple[Check, ...] = UNVERIFIED
    """What holds of the whole record, for `gspo-lab certify` to find out (`verified`)."""
    tuning: Check | None = None

    @property
    def of_all(self) -> tuple[Check, ...]:
        """What is about the declaration, and so about every pair."""
        return (self.lock,) if self.tuning is None else (self.lock, self.tuning)

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Every undeclared difference by the name under which it can be accepted."""
        return tuple(name for name, _, _, _ in self._mismatches())

    @property
    def open(self) -> tuple[str, ...]:
        """The undeclared differences that nobody has accepted."""
        covered = {name for one in self.acceptances for name in one.differences}
        return tuple(name for name in self.undeclared if name not in covered)

    @property
    def unproven(self) -> tuple[str, ...]:
        """The checks that decide and that some pair's runs recorded nothing for: a verdict then says so."""
        counts = self.states()
        return tuple(name for name in DECIDING if name in counts and counts[name][UNKNOWN])

    @property
    def on_trust(self) -> tuple[str, ...]:
        """In words which other programs recorded the runs of pairs; empty where the lab's own workers did."""
        return tuple(dict.fromkeys(check.detail for _, check in self.of(OWN_RECORD) if check.state == UNKNOWN))

    @property
    def grade(self) -> str:
        """What runs that other programs recorded are compared as, in words; empty where the lab's own workers did."""
        counts = self.states() if self.on_trust else {}
        unknown = [name for name in AS_LOGGED if name in counts and counts[name][UNKNOWN]]
        listed = f"{', '.join(unknown[:-1])} and {unknown[-1]}" if unknown[1:] else "".join(unknown)
        return f"compared as logged: {listed} {'were' if unknown[1:] else 'was'} not recorded" if unknown else ""

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way of a verdict."""
        return not self.open

    @property
    def reasons(self) -> dict[str, tuple[str, ...]]:
        """Per arm what forbids a verdict on it against the baseline, for `stats.decide`; arms without are left out."""
        return self.against(self.baseline)

    def against(self, baseline: str) -> dict[str, tuple[str, ...]]:
        """The same with another arm to compare with."""
        is_open = set(self.open)
        seeds: dict[str, dict[tuple[str, str], list[int]]] = {}
        arms = {arm for pair in self.pairs for arm in pair.arms} - {baseline}
        for name, pair, check, part in self._mismatches():
            if name in is_open and (pair is None or baseline in pair.arms):
                for arm in arms if pair is None else set(pair.arms) - {baseline}:
                    found = seeds.setdefault(arm, {}).setdefault((check.name, part), [])
                    found += [] if pair is None else [pair.seed]
        return {arm: tuple(_reasons(found)) for arm, found in sorted(seeds.items())}

    def on(self, seeds: Collection[int]) -> "Certificate":
        """The same of the pairs with these seeds."""
        return replace(self, pairs=tuple(pair for pair in self.pairs if pair.seed in seeds))

    def states(self) -> dict[str, Counter[State]]:
        """Per check how many pairs are in which state, the lock first, in the order of the checks."""
        out: dict[str, Counter[State]] = {check.name: Counter([check.state]) for check in self.of_all}
        for pair in self.pairs:
            for check in pair.checks:
                out.setdefault(check.name, Counter())[check.state] += 1
        return out | {check.name: Counter([check.state]) for check in self.of_the_study}

    def of(self, name: str) -> list[tuple[Pair | None, Check]]:
        """One check over all pairs; what is about all of them has no pair."""
        if found := [check for check in (*self.of_all, *self.of_the_study) if check.name == name]:
            return [(None, check) for check in found]
        return [(pair, check) for pair in self.pairs for check in pair.checks if check.name == name]

    @property
    def headline(self) -> str:
        """The study and the summary, in one line."""
        return f"{self.study}: {self.summary}"

    @property
    def summary(self) -> str:
        """Matched or not, on how many pairs and checks."""
        if not self.pairs:
            return "no two runs with the same seed yet, nothing to match"
        counts = self.states()
        made = sum(set(states) != {NOT_VERIFIED} for states in counts.values())
        scale = f"{made} checks, {len(self.pairs)} comparison{'s' * (len(self.pairs) > 1)} of two runs"
        unknown = [name for name, states in counts.items() if states[UNKNOWN]]
        gaps = f"; not recorded everywhere: {', '.join(unknown)}" if unknown else ""
        gaps = f"; {self.grade}" if self.grade else gaps
        if self.open:
            odd = [name for name, states in counts.items() if states[UNDECLARED]]
            return f"NOT matched ({scale}): {', '.join(odd)}{gaps}"
        how = "not proven to be matched" if self.unproven else "matched"
        how += "".join(f", {saying}" for saying in self.on_trust)
        if self.undeclared:
            how += ", with accepted mismatches"
        return f"{how} ({scale}{gaps})"

    def lines(self) -> list[str]:
        """The certificate for a terminal: one line a check where all pairs say the same, else one per saying."""
        out = [self.headline]
        for name in self.states():
            for state, detail, where in grouped(self.of(name)):
                mark = state.upper() if state == UNDECLARED else state
                out.append(f"  {name:<19} {mark:<19} {detail}{f'  [{where}]' if where else ''}")
        for one in self.acceptances:
            out.append(f"  accepted on {one.at}: {one.reason} ({'; '.join(one.differences) or 'nothing'})")
        return out

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data, every check of every pair."""
        return {
            "study": self.study,
            "ok": self.ok,
            "baseline": self.baseline,
            "lock": asdict(self.lock),
            **({} if self.tuning is None else {"tuning": asdict(self.tuning)}),
            "of_the_study": [asdict(check) for check in self.of_the_study],
            "pairs": [asdict(pair) for pair in self.pairs],
            "undeclared": list(self.undeclared),
            "open": list(self.open),
            "unproven": list(self.unproven),
            **({"grade": self.grade} if self.grade else {}),
            "reasons": {arm: list(found) for arm, found in self.reasons.items()},
            "accepted": [asdict(one) for one in self.acceptances],
        }

    def _mismatches(self) -> Iterator[tuple[str, Pair | None, Check, str]]:
        everything: list[tuple[Pair | None, Check]] = [(None, check) for check in (*self.of_all, *self.of_the_study)]
        everything += [(pair, check) for pair in self.pairs for check in pair.checks]
        for pair, check in everything:
            if check.state == UNDECLARED:
                for part in check.parts:
                    yield f"{pair.name if pair else 'study'}: {check.name}: {part}", pair, check, part


def certificate(evidence: "Evidence", declared: Declaration) -> Certificate:
    """Hold every two runs of a seed against each other, from what was recorded of them; what `accepted.json` in the
    study's folder says holds."""
    bands = flat({rule: list(band) for rule, band in declared.reference_bands.items()})
    seeds: dict[int, dict[str, Trace]] = {}
    begun = traces(evidence, declared.name)
    told = accounts(evidence, declared, begun)
    for trace in begun:
        if trace.arm in declared.arms and trace.seed in declared.seeds:
            seeds.setdefault(trace.seed, {})[trace.arm] = _as_known(trace, declared.arms[trace.arm])

    def first_item(one: Trace, other: Trace, bench: str, step: int) -> str:
        return _first_item(evidence, one, other, bench, step)

    pairs = []
    for names in combinations(declared.arms, 2):
        for seed in declared.seeds:
            runs = seeds.get(seed, {})
            if names[0] in runs and names[1] in runs:
                pair = sides(runs[names[0]], runs[names[1]], declared.arms)
                pairs.append(Pair(names, seed, all_checks(pair, declared.arms, bands, first_item, told)))
    accepted = read_accepted(evidence.runs_folder / declared.name)
    tuning = tuning_check(evidence, declared)
    return Certificate(declared.name, declared.baseline, _lock(declared), tuple(pairs), accepted, tuning=tuning)


def _as_known(trace: Trace, arm: Arm) -> Trace:
    """An imported run with the settings that were recorded: earlier versions stored defaults beside them."""
    if arm.known is None:
        return trace
    known = flat(arm.resolved)
    return replace(trace, settings={key: value for key, value in trace.settings.items() if key in known})


def reason_in_words(reason: str) -> str:
    """The reason, stripped. LabError where none is given: it is printed in the report."""
    if not reason.strip():
        raise LabError(
            '--accept-mismatch: give the reason in words, e.g. --accept-mismatch "other host, same CPU type"'
        )
    return reason.strip()


def read_accepted(home: Path) -> tuple[Acceptance, ...]:
    """The acceptances in a study's folder, oldest first. LabError where the file is not what was written."""
    path = home / ACCEPTED
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Acceptance(str(one["reason"]), str(one["at"]), tuple(map(str, one["differences"]))) for one in entries
        )
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} cannot be read ({error}); delete it and accept again") from error


def write_accepted(home: Path, acceptances: Sequence[Acceptance]) -> None:
    """Write all acceptances of a study, whole or not at all."""
    write_json(home / ACCEPTED, [asdict(one) for one in acceptances])


def accept_mismatch(evidence: "Evidence", declared: Declaration, reason: str) -> Certificate:
    """Accept every mismatch that is there now, with a reason that is kept in runs/<study>/accepted.json.

    LabError where there is nothing to accept, so that a reason never covers what nobody has seen.
    """
    found = certificate(evidence, declared)
    if not found.open:
        raise LabError(f"--accept-mismatch: {declared.name} has no undeclared difference; run it without that option")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = replace(found, acceptances=(*found.acceptances, Acceptance(reason_in_words(reason), now, found.open)))
    write_accepted(evidence.runs_folder / declared.name, found.acceptances)
    return found


def grouped(found: Sequence[tuple[Pair | None, Check]]) -> list[tuple[State, str, str]]:
    """(state, detail, pairs) of one check: pairs that say the same together, the worst first.

    `pairs` is empty where one line speaks for all; of equal pairs that differ in words only the first is quoted, and of
    others not more than SAYINGS of a state.
    """
    out: list[tuple[State, str, str]] = []
    for state in WORST_FIRST:
        mine = [(pair, check) for pair, check in found if check.state == state]
        sayings: dict[str, list[str]] = {}
        for pair, check in mine:
            sayings.setdefault(check.detail, []).append(pair.name if pair else "")
        if state == EQUAL and len(sayings) > 1:
            sayings = {f"e.g. {mine[0][1].detail}": [name for names in sayings.values() for name in names]}
        said: list[tuple[State, str, str]] = []
        for detail, names in sayings.items():
            everywhere = len(names) == len(found)
            where = "" if everywhere else names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            said.append((state, detail, where))
        out += said[:SAYINGS]
        if len(said) > SAYINGS:
            out.append((state, f"and {len(said) - SAYINGS} more that read differently; the JSON has them all", ""))
    return out


def _lock(declared: Declaration) -> Check:
    """Whether study.json still is what its digest was taken of, and what was added to it by later starts."""
    name, kept, now = "lock", declared.digest, declared.content_digest
    if kept is None:
        return Check(name, UNKNOWN, "study.json holds no digest")
    if now != kept:
        said = f"study.json was edited after it was locked: its digest is {shown(kept)}, its content's {shown(now)}"
        return Check(name, UNDECLARED, said, (STUDY,))
    if declared.superseded and not declared.edits:
        return Check(name, UNDECLARED, "study.json was declared otherwise before, and does not say how", (STUDY,))
    if declared.not_grown:
        said = f"study.json did not only grow since it was first declared: {'; '.join(declared.not_grown)}"
        return Check(name, UNDECLARED, said, declared.not_grown)
    edits = [str(edit) for edit in declared.edits]
    if declared.recorded is not None:
        said = f"declared as its runs were imported, after they were made: {shown(kept)}"
        return Check(name, UNKNOWN, "; ".join([said, *edits]), tuple(edits))
    if edits:
        return Check(name, DECLARED, f"changed after the first step: {'; '.join(edits)}", tuple(edits))
    return Check(name, EQUAL, f"the study is as declared before its first step: {shown(kept)}")


def _first_item(evidence: "Evidence", one: Trace, other: Trace, bench: str, step: int) -> str:
    """The first question in which two evaluations differ, in words."""
    lists = [[row[2:6] for row in read_questions(evidence, run.id) if row[:2] == (bench, step)] for run in (one, other)]
    for place, (a, b) in enumerate(zip(*lists, strict=False)):
        if a[:2] != b[:2]:
            return f"question {place} is {a[0]} #{a[1]} in {one.arm}, {b[0]} #{b[1]} in {other.arm}"
        if a != b:
            what = "text" if a[2] != b[2] else "reference"
            return f"question {place}, {a[0]}, has another {what}"
    return f"{len(lists[0])} answers in {one.arm}, {len(lists[1])} in {other.arm}"


def _reasons(found: dict[tuple[str, str], list[int]]) -> Iterable[str]:
    """One line per check: what differs, and in which seeds."""
    lines: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (check, part), where in found.items():
        lines.setdefault((check, tuple(where)), []).append(part)
    for (check, seeds), parts in lines.items():
        told = f" (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})" if seeds else ""
        more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
        yield f"undeclared difference in {check}: {', '.join(parts[:SHOWN])}{more}{told}"
