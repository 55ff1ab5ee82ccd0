"""accepted.json: the mismatches that a person took upon themselves, each with its reason, beside the study's runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.files import write_json
from gspo_lab.layout import ACCEPTED


@dataclass(frozen=True)
class Acceptance:
    """`differences` are those that were there when the reason was given; later ones are not covered."""

    reason: str
    at: str
    differences: tuple[str, ...]


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
