"""Which studies are the same by content: whatever they are called, with whichever seeds, whenever declared.

What counts is what the runs are made with and what decides: each arm's settings and the verdict's rule. The question,
claims and waivers are words about it. Where files that a study names by path lie, and what stands in them, does not
count either. An unknown value equals nothing, and logs never hold all of this: no two imported studies are the same.
"""

from collections.abc import Iterator
from typing import Any

from gspo_lab.study.declaration import Arm, Declaration, digest
from gspo_lab.study.dotted import BAND, differing, flat
from gspo_lab.study.schema import KEYS


def identity(declared: Declaration) -> str:
    """The digest of a study's content; equal ones are the same study. A later version may know more settings, so that
    digests are compared only where one version has made both."""
    return digest(content(declared))


def same_content(one: Declaration, other: Declaration) -> bool:
    """Whether two studies are the same by content; False where either was imported."""
    return one.recorded is None and other.recorded is None and identity(one) == identity(other)


def content(declared: Declaration) -> dict[str, Any]:
    """Dotted key -> value of all that makes a study this study."""
    verdict = {**declared.verdict.model_dump(mode="json"), "baseline": declared.baseline, "primary": declared.primary}
    sweep = None if declared.sweep is None else declared.sweep.to_json()
    arms = {f"arm.{name}.{key}": value for name, arm in declared.arms.items() for key, value in _settings(arm)}
    return {**arms, **flat(verdict, "verdict"), **flat(sweep, "sweep")}


def differences(one: Declaration, other: Declaration) -> list[str]:
    """The keys in which two studies differ by content; one that differs in every arm is named once."""
    keys = differing(content(one), content(other))
    arms = one.arms.keys() | other.arms.keys()
    if one.arms.keys() != other.arms.keys():
        return ["arms", *(key for key in keys if not key.startswith("arm."))]
    bare = {key: key.split(".", 2)[2] if key.startswith("arm.") and "@" not in key else key for key in keys}
    everywhere = {name for name in bare.values() if list(bare.values()).count(name) == len(arms)}
    return list(dict.fromkeys(name if name in everywhere else key for key, name in bare.items()))


def _settings(arm: Arm) -> Iterator[tuple[str, Any]]:
    settings = flat(arm.resolved)
    piloted = BAND if settings.get("objective.clip") == "calibrated" else ()
    anywhere = [name for name, key in KEYS.items() if key.anywhere]
    yield from ((key, value) for key, value in settings.items() if key not in (*anywhere, *piloted))
