"""What the arms share, and what they differ in by declaration."""

import json
from typing import TYPE_CHECKING, Any

from gspo_lab.matching.settings import flat, undeclared
from gspo_lab.report.frames import arms
from gspo_lab.report.markup import Html, h, markdown_table, table
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

ABSENT = "unset"


def settings(evidence: "Evidence", study: str) -> Section | None:
    """Each arm's own settings in a table, the shared ones folded."""
    content = evidence.study(study)
    order = arms(evidence, study)
    resolved = {arm: flat(content["arms"][arm]["settings"]) for arm in order}
    keys = sorted({key for one in resolved.values() for key in one})
    values = {key: [resolved[arm].get(key) for arm in order] for key in keys}
    shared = {key: row[0] for key, row in values.items() if all(entry == row[0] for entry in row)}
    odd = {key for i, one in enumerate(order) for other in order[i + 1 :] for key in undeclared(content, one, other)}
    differing = [
        [key, *(shown(entry) for entry in values[key]), h("span", "no", class_="differs") if key in odd else "yes"]
        for key in keys
        if key not in shared
    ]
    head = ["setting", *order, "declared"]
    body: list[Html] = []
    if differing:
        body.append(table(head, differing, caption="What the arms differ in, and whether an arm states it"))
    listing = table(["setting", "all arms"], [[key, shown(entry)] for key, entry in shared.items()])
    body.append(h("details", h("summary", f"The {len(shared)} settings that all arms share"), listing))
    data = {
        "shared": shared,
        "arms": {arm: {key: values[key][i] for key in keys if key not in shared} for i, arm in enumerate(order)},
        "undeclared": sorted(odd),
    }
    plain_rows = [[*row[:-1], "no" if row[0] in odd else "yes"] for row in differing]
    return Section("settings", "Settings", tuple(body), data, markdown_table(head, plain_rows) if differing else "")


def shown(entry: Any, absent: str = ABSENT) -> str:
    """A setting or a fact in a table's cell."""
    if entry is None:
        return absent
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    return f"{entry:g}" if isinstance(entry, float) else entry if isinstance(entry, str) else json.dumps(entry)
