"""The built-in claims: the entries of library.toml, which says how to add one, and the functions that they name."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gspo_lab.claims.claim import Claim, Counter
from gspo_lab.claims.clipping import clip_gap, gap_on_the_grid, grows_with_minibatch
from gspo_lab.claims.grammar import Evaluate, Identity, Read, Row, all_of
from gspo_lab.claims.learning import band_insensitive, more_efficient, precursors
from gspo_lab.claims.mismatch import entropy_falls_first, tolerates_precision
from gspo_lab.claims.needs import NEEDS
from gspo_lab.claims.routing import expert_change, fewer_collapses, gained_by_grpo_alone

CODE: Mapping[str, Evaluate] = {
    read.__name__: read
    for read in (
        clip_gap,
        gap_on_the_grid,
        grows_with_minibatch,
        expert_change,
        more_efficient,
        tolerates_precision,
        band_insensitive,
        precursors,
    )
}
"""What reads a whole claim."""

BESIDE_ROWS: Mapping[str, Read] = {
    read.__name__: read for read in (entropy_falls_first, fewer_collapses, gained_by_grpo_alone)
}
"""What stands in the place of a row."""


def _library() -> dict[str, Claim]:
    entries = tomllib.loads(Path(__file__).with_name("library.toml").read_text(encoding="utf-8"))
    counter = {name: Counter(**one) for name, one in entries.pop("counter").items()}
    return {name: _claim(name, counter, **entries[name]) for name in sorted(entries)}


def _claim(
    name: str,
    known: Mapping[str, Counter],
    *,
    needs: Iterable[str] = (),
    counter: Iterable[str] = (),
    roles: Iterable[str] = (),
    code: str | None = None,
    rows: Iterable[Any] | None = None,
    also: Iterable[Any] = (),
    notes: Iterable[str] = (),
    **published: Any,
) -> Claim:
    evaluate = None if rows is None else all_of([*_rows(rows)], [*_rows(also)], notes)
    return Claim(
        id=name,
        roles=tuple(roles),
        needs=tuple(NEEDS[one] for one in needs),
        counter=tuple(known[one] for one in counter),
        evaluate=evaluate if code is None else CODE[code],
        **published,
    )


def _rows(rows: Iterable[Any]) -> Iterator[Read]:
    for row in rows:
        if isinstance(row, str):
            yield BESIDE_ROWS[row]
        else:
            yield (Identity if "at_most" in row else Row)(**row)


LIBRARY: Mapping[str, Claim] = _library()
"""By name, in the order of the names."""
