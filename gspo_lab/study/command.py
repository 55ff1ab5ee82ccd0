"""What to type to get a study again."""

from collections.abc import Sequence
from pathlib import Path


def command_of(
    path: Path,
    overrides: Sequence[str],
    seeds: Sequence[int] | None,
    steps: int | None,
    arms: Sequence[str] | None,
    name: str | None,
) -> tuple[str, ...]:
    """The words behind `gspo-lab run` that say the same; a file named by its whole path is said to lie in studies/."""
    words = [f"studies/{path.name}" if path.is_absolute() else path.as_posix()]
    for override in overrides:
        if override.startswith(("launch.", "record.mirror=")):  # no part of a study: who starts workers, who looks on
            continue
        words += ["--set", override]
    if seeds is not None:
        counted = list(seeds) == list(range(len(seeds)))
        if len(seeds) == 1 and not counted:  # --seeds 7 would be a count
            words += ["--set", f"seeds={list(seeds)}"]
        else:
            words += ["--seeds", str(len(seeds)) if counted else ",".join(map(str, seeds))]
    words += [] if steps is None else ["--steps", str(steps)]
    words += [] if arms is None else ["--arms", ",".join(arms)]
    words += [] if name is None else ["--name", name]
    return tuple(words)


def without(words: Sequence[str], *options: str) -> tuple[str, ...]:
    """The same words but for these options and their values."""
    pairs = zip(words[1::2], words[2::2], strict=False)
    return (*words[:1], *(word for pair in pairs if pair[0] not in options for word in pair))
