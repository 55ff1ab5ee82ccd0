"""What the arms share, and what they differ in by declaration."""

from gspo_lab.matching.settings import undeclared
from gspo_lab.readings import Source
from gspo_lab.report.markup import Html, h, markdown_table, setting, table
from gspo_lab.report.section import Section
from gspo_lab.study import flat
from gspo_lab.study.origin import ABSENT


def settings(found: Source) -> Section | None:
    """Each arm's own settings in a table, the shared ones folded."""
    arms = found.declaration.arms
    order = found.arms
    told = found.declaration.told
    resolved = {name: {k: v for k, v in flat(arm.resolved).items() if told(name, k)} for name, arm in arms.items()}
    keys = sorted({key for one in resolved.values() for key in one})
    unknown = None if found.declaration.recorded is None else ABSENT
    values = {key: [resolved[arm].get(key, unknown) for arm in order] for key in keys}
    shared = {key: row[0] for key, row in values.items() if all(entry == row[0] for entry in row)}
    odd = {key for i, one in enumerate(order) for other in order[i + 1 :] for key in undeclared(arms[one], arms[other])}
    differing = [
        [key, *(setting(entry) for entry in values[key]), h("span", "no", class_="differs") if key in odd else "yes"]
        for key in keys
        if key not in shared
    ]
    head = ["setting", *order, "declared"]
    body: list[Html] = []
    if found.declaration.recorded is not None:
        body.append(h("p", "Imported runs: what is missing here was not recorded.", class_="warn"))
    if differing:
        body.append(table(head, differing, caption="What the arms differ in, and whether an arm states it"))
    listing = table(["setting", "all arms"], [[key, setting(entry)] for key, entry in shared.items()])
    body.append(h("details", h("summary", f"The {len(shared)} settings that all arms share"), listing))
    data = {
        "shared": shared,
        "arms": {arm: {key: values[key][i] for key in keys if key not in shared} for i, arm in enumerate(order)},
        "undeclared": sorted(odd),
    }
    plain_rows = [[*row[:-1], "no" if row[0] in odd else "yes"] for row in differing]
    return Section("settings", "Settings", tuple(body), data, markdown_table(head, plain_rows) if differing else "")
