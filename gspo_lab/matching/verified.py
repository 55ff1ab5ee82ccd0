"""What only `gspo-lab certify` looks at: whether files and database are what was recorded, and grades what they say."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gspo_lab.layout import STUDY
from gspo_lab.matching.certificate import JOURNALS, REGRADED, SIGNATURE, Certificate
from gspo_lab.matching.pairing import EQUAL, NOT_VERIFIED, UNDECLARED, UNKNOWN, Check
from gspo_lab.store.audit import journals_changed, models_changed, runs_at_fault, runs_left_out, study_at_fault
from gspo_lab.store.signature import check as check_signature
from gspo_lab.store.traces import read_starts
from gspo_lab.study import Declaration

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

SHOWN = 6
"""Faults that are told in words; the parts name them all."""


Again = tuple[int, Sequence[tuple[str, str]], Sequence[str]]
"""Of one run: answers graded again; by a name and in words what was then otherwise; why others were left."""


def verified(evidence: "Evidence", found: Certificate, again: Mapping[str, Again]) -> Certificate:
    """The certificate with the checks of the whole record. `again`: per run id its answers graded again."""
    return replace(
        found, of_the_study=(_journals(evidence, found.study), _regraded(again), _signed(evidence, found.study))
    )


def _journals(evidence: "Evidence", study: str) -> Check:
    """Whether every journal is whole and what its run sealed, and the database holds what the files do."""
    odd: list[tuple[str, str]] = []
    sealed, unsealed = 0, []
    if wrong := study_at_fault(evidence.runs_folder, study, evidence.study(study)):
        odd.append((STUDY, wrong))
    odd += _other_trials(evidence, study)
    runs = [run.id for run in evidence.chosen(study)]
    odd += [(_short(run), f"{run}: {why}") for run, why in runs_left_out(evidence.runs_folder, study, set(runs))]
    for run, whole, faults in runs_at_fault(evidence.each, evidence.runs_folder, runs):
        sealed += whole is True
        if whole is None:
            unsealed.append(_short(run))
        odd += [(_short(run), f"{run}: {fault}") for fault in faults]
    starts = {row["run_id"]: row["facts"] for row in read_starts(evidence, study).to_dict("records") if row["facts"]}
    for run in runs:
        start = json.loads(starts.get(run, "{}")).get("start")
        odd += [(_short(run), f"{run}: {why}") for why in models_changed(evidence.runs_folder / run, start)]
    if odd:
        return _failed(JOURNALS, odd)
    agree = "the database holds what the files do"
    if unsealed:
        return Check(JOURNALS, UNKNOWN, f"{agree}; not sealed: {_some(unsealed, ', ')}")
    return Check(JOURNALS, EQUAL, f"{sealed} sealed journals, line by line; {agree}")


def _other_trials(evidence: "Evidence", study: str) -> list[tuple[str, str]]:
    """The trials whose journals are there and not what they were when the study's arms chose."""
    tune = Declaration.parse(evidence.study(study), study).tune
    changed = [] if tune is None else journals_changed(evidence.runs_folder, tune.journals)
    return [(run, f"{run}: its journal is not what the arms chose on") for run in changed]


def _regraded(again: Mapping[str, Again]) -> Check:
    """Whether answers that are graded again are as they were stored, by the grader that graded them."""
    odd = [(f"{_short(run)}: {part}", f"{run}: {said}") for run, (_, ones, _) in again.items() for part, said in ones]
    if odd:
        return _failed(REGRADED, odd)
    left = dict.fromkeys(why for *_, reasons in again.values() for why in reasons)
    told = f"{sum(graded for graded, *_ in again.values())} answers graded again, all as they were"
    return Check(REGRADED, NOT_VERIFIED if left or not again else EQUAL, "; ".join([told, *left]))


def _signed(evidence: "Evidence", study: str) -> Check:
    """Who signed the record, and whether it is what was signed. LabError for a signature that is none."""
    signer, changed = check_signature(evidence.runs_folder / study)
    if signer is None:
        return Check(SIGNATURE, NOT_VERIFIED, "nobody has signed this record")
    if changed:
        return _failed(SIGNATURE, [(said, said) for said in changed])
    return Check(SIGNATURE, EQUAL, f"signed by {signer}")


def _failed(name: str, odd: Sequence[tuple[str, str]]) -> Check:
    parts = tuple(dict.fromkeys(part for part, _ in odd))
    return Check(name, UNDECLARED, _some([words for _, words in odd], "; "), parts)


def _some(said: Sequence[str], mark: str) -> str:
    """The first few, and how many more there are: a study may have a thousand runs."""
    return mark.join([*said[:SHOWN], *([f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else [])])


def _short(run: str) -> str:
    return run.partition("/")[2]
