from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.shared_options import RUNS, Json, Runs, UnsafeNoSandbox, evidence_of, study_named
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.evaluation.spot_check import SpotCheck
    from gspo_lab.matching import Certificate
    from gspo_lab.store import Evidence

EXAMPLES = (
    "gspo-lab certify quickstart",
    "gspo-lab certify moe_stability --sign ~/.ssh/id_ed25519",
)


def certify(
    study: Annotated[str | None, typer.Argument(help="A study. Default: the latest.")] = None,
    regrade_sample: Annotated[
        int, typer.Option(min=0, help="Grade this many randomly drawn answers of each run again.")
    ] = 100,
    sign: Annotated[Path | None, typer.Option(metavar="KEY", help="Sign the record with this private SSH key.")] = None,
    unsafe: UnsafeNoSandbox = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Check that a study's runs are matched and unchanged.

    Reads the journals again and grades a sample of answers again. Exit with code 1 if a check fails.
    """
    from gspo_lab.cli.output import print_json, print_lines
    from gspo_lab.errors import LabError
    from gspo_lab.matching import certificate
    from gspo_lab.matching.verified import verified
    from gspo_lab.readings import Source
    from gspo_lab.store.signature import sign as put_signature

    with evidence_of(runs) as evidence:
        named = study_named(evidence, study, runs)
        found: Certificate = certificate(evidence, Source(evidence, named).declaration)
        # Drawn anew each time, so that nobody knows beforehand which answers are.
        again = graded_again(evidence, named, runs, regrade_sample, unsafe=unsafe, chance=SystemRandom())
        found = verified(evidence, found, again)
        if sign is not None:
            if not found.ok:
                raise LabError(f"--sign: not signed, {found.headline}", details=found.open)
            put_signature(runs / named, sign)
            found = verified(evidence, found, again)
    if json:
        print_json(found.to_json())
    else:
        print_lines(found.lines())
    raise typer.Exit(Exit.FINISHED if found.ok else Exit.INCOMPLETE)


def graded_again(
    evidence: "Evidence", study: str, runs: Path, most: int, *, unsafe: bool, chance: Random
) -> "dict[str, SpotCheck]":
    """Per run a sample of its own answers, graded again."""
    from gspo_lab.evaluation.regrade import Stored
    from gspo_lab.evaluation.spot_check import spot_check
    from gspo_lab.progress import counting
    from gspo_lab.runfolder import RunFolder
    from gspo_lab.store.answers import questions, stored

    out: dict[str, SpotCheck] = {}
    made: dict[str, Any] = {}
    ids = [run.id for run in evidence.chosen(study)]
    with counting(f"certify {study}", {"runs graded again": len(ids)}) as advance:
        for run in ids:
            own = [Stored(*row) for row in stored(evidence, run).get("", [])]
            folder = RunFolder(runs / run)
            if own:
                out[run] = spot_check(folder, own, questions(evidence, run), most, chance, made, unsafe=unsafe)
            advance("runs graded again", 1)
    return out
