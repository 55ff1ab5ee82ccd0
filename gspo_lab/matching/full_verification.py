"""The checks that only `gspo-lab certify` makes: whether files and database are unchanged, and grades reproducible."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gspo_lab.matching.certificate import JOURNALS, REGRADED, SIGNATURE, Certificate
from gspo_lab.matching.run_pair import EQUAL, NOT_VERIFIED, UNKNOWN, Check, Fault, differs, first_few
from gspo_lab.paths import STUDY
from gspo_lab.store.audit import (
    check_signature,
    journals_changed,
    models_changed,
    runs_at_fault,
    runs_left_out,
    study_at_fault,
)
from gspo_lab.store.traces import read_starts
from gspo_lab.study import Declaration

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

SHOWN = 6
"""Faults that the detail of a check describes; its parts name them all."""


Regraded = tuple[int, Sequence[Fault], Sequence[str]]
"""The regraded answers of one run: their number, the changed grades, and why other answers were skipped."""


def verify_record(evidence: "Evidence", certificate: Certificate, regraded: Mapping[str, Regraded]) -> Certificate:
    """The certificate with the checks of the complete record. `regraded`: per run id its regraded answers."""
    study = certificate.study
    checks = (_journals(evidence, study), _grades(regraded), _signature(evidence, study))
    return replace(certificate, of_the_study=checks)


def _journals(evidence: "Evidence", study: str) -> Check:
    """Whether every journal is complete and as sealed, and the database holds what the files hold."""
    faults: list[Fault] = []
    sealed, unsealed = 0, []
    if wrong := study_at_fault(evidence.runs_folder, study, evidence.study(study)):
        faults.append((STUDY, wrong))
    tune = Declaration.parse(evidence.study(study), study).tune
    changed = [] if tune is None else journals_changed(evidence.runs_folder, tune.journals)
    faults += [(run, f"{run}: its journal is not what the arms chose on") for run in changed]
    runs = [run.id for run in evidence.chosen(study)]
    faults += [(_short(run), f"{run}: {why}") for run, why in runs_left_out(evidence.runs_folder, study, set(runs))]
    for run, whole, odd in runs_at_fault(evidence.iter_rows, evidence.runs_folder, runs):
        sealed += whole is True
        if whole is None:
            unsealed.append(_short(run))
        faults += [(_short(run), f"{run}: {fault}") for fault in odd]
    starts = {row["run_id"]: row["facts"] for row in read_starts(evidence, study).to_dict("records") if row["facts"]}
    for run in runs:
        start = json.loads(starts.get(run, "{}")).get("start")
        faults += [(_short(run), f"{run}: {why}") for why in models_changed(evidence.runs_folder / run, start)]
    if faults:
        return differs(JOURNALS, faults, limit=SHOWN)
    agree = "the database holds what the files do"
    if unsealed:
        return Check(JOURNALS, UNKNOWN, f"{agree}; not sealed: {first_few(unsealed, ', ', SHOWN)}")
    return Check(JOURNALS, EQUAL, f"{sealed} sealed journals, line by line; {agree}")


def _grades(regraded: Mapping[str, Regraded]) -> Check:
    """Whether regraded answers get their stored grades from the grader that graded them."""
    by_run = regraded.items()
    faults = [(f"{_short(run)}: {part}", f"{run}: {text}") for run, (_, odd, _) in by_run for part, text in odd]
    if faults:
        return differs(REGRADED, faults, limit=SHOWN)
    skipped = dict.fromkeys(why for *_, reasons in regraded.values() for why in reasons)
    detail = f"{sum(count for count, *_ in regraded.values())} answers graded again, all as they were"
    return Check(REGRADED, NOT_VERIFIED if skipped or not regraded else EQUAL, "; ".join([detail, *skipped]))


def _signature(evidence: "Evidence", study: str) -> Check:
    """Who signed the record, and whether it is unchanged since. LabError for a damaged signature."""
    signer, changed = check_signature(evidence.runs_folder / study)
    if signer is None:
        return Check(SIGNATURE, NOT_VERIFIED, "nobody has signed this record")
    if changed:
        return differs(SIGNATURE, [(part, part) for part in changed], limit=SHOWN)
    return Check(SIGNATURE, EQUAL, f"signed by {signer}")


def _short(run: str) -> str:
    return run.partition("/")[2]
