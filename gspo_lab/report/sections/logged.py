"""What imported runs' numbers are, as their programs define them: which are the lab's, which not, and why."""

from dataclasses import asdict
from typing import Any

from gspo_lab.findings.logged import logged as logged_of
from gspo_lab.readings import Source
from gspo_lab.report.markup import Html, h, markdown_table, number, plain, table
from gspo_lab.report.section import Section

INTRODUCTION = (
    "These runs were recorded by other programs. A number is a column of the lab, and stands in the figures below, "
    "only where its program defines it as the lab does; all others keep their own name here and are compared with "
    "nothing. A row of a log is a mean over its program's own interval, so that nothing here speaks of single updates."
)
UNKNOWN = "not understood"


def logged(found: Source) -> Section | None:
    """What spoils the comparison, what is defined differently, and every name with its definition and its last mean."""
    known = logged_of(found)
    if known is None:
        return None
    every = {(one.name, one.meaning, one.column) for names in known.names.values() for one in names}
    rows = [
        [name, meaning or UNKNOWN, column or "–", *(_value(found, arm, name, meaning) for arm in found.arms)]
        for name, meaning, column in sorted(every, key=lambda one: (one[1] is None, one[2] is None, one[0]))
    ]
    head = ["name in the log", "what it is", "column", *(f"{arm}, last fifth" for arm in found.arms)]
    told = [*known.warnings, *known.apart]
    body: list[Html] = [h("p", INTRODUCTION), *(h("p", line, class_="warn") for line in told)]
    body.append(h("details", h("summary", f"The {len(rows)} names in the logs"), table(head, rows, class_="prose")))
    data: dict[str, Any] = {
        "warnings": list(known.warnings),
        "not_compared": list(known.apart),
        "not_understood": known.strange,
        "names": {arm: {one.name: _plain(asdict(one)) for one in names} for arm, names in known.names.items()},
    }
    markdown = "\n".join(f"- {plain(line)}" for line in told)
    return Section(
        "logged", "As logged", tuple(body), data, f"{markdown}\n\n{markdown_table(head, rows)}".strip(), tuple(told)
    )


def _value(found: Source, arm: str, name: str, meaning: str | None) -> str:
    known = logged_of(found)
    assert known is not None
    own = [one for one in known.names[arm] if (one.name, one.meaning) == (name, meaning)]
    if not own:
        return "–"
    return "in the figures" if own[0].column else number(own[0].value)


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "name" and value is not None}
