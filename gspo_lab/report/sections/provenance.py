"""Where the numbers come from: versions, hardware, what to type to get them again, and the numbers to take along."""

import json
import shlex
from typing import TYPE_CHECKING, Any

from gspo_lab.matching.settings import flat
from gspo_lab.report.frames import records
from gspo_lab.report.markup import NOT_MEASURED, Html, h, plain, table
from gspo_lab.report.section import Section
from gspo_lab.report.sections.settings import shown

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


def provenance(evidence: "Evidence", study: str) -> Section | None:
    """Commands, the declaration's digest and its edits, versions and device."""
    content = evidence.study(study)
    commands = reproduce(study, content)
    body: list[Html] = [h("h3", "To reproduce"), h("pre", h("code", "\n".join(commands)), tabindex="0")]
    if content.get("comment"):
        body.append(h("p", content["comment"], class_="soft"))
    if content.get("digest"):
        body.append(h("p", "Digest of the declared study: ", h("code", content["digest"])))
    body += [
        h("p", f"Changed after it was declared: {_edit(edit)}", class_="warn") for edit in content.get("edits") or []
    ]
    damaged = _damaged(evidence, study)
    body += [
        h(
            "p",
            f"Damaged and left out: line {', '.join(map(str, lines))} of {path}. What was recorded there is missing "
            "from every number above.",
            class_="warn",
        )
        for path, lines in damaged.items()
    ]
    known, varying = _facts(evidence, study)
    if known:
        rows = [[key, shown(entry, NOT_MEASURED)] for key, entry in known.items()]
        body.append(table(["fact", "all runs"], rows, caption="Versions and device"))
    else:
        body.append(h("p", f"Versions and device: {NOT_MEASURED}", class_="missing"))
    if varying:
        rows = [
            [key, "; ".join(f"{run}: {shown(entry, NOT_MEASURED)}" for run, entry in runs.items())]
            for key, runs in varying.items()
        ]
        listing = table(["fact", "by run"], rows)
        body.append(h("details", h("summary", f"{len(varying)} facts in which runs differ"), listing))
    data = {
        "facts": known,
        "facts_by_run": varying,
        "commands": commands,
        "digest": content.get("digest"),
        "damaged": damaged,
    }
    code = "\n".join(plain(command) for command in commands)
    gist = "".join(f"Damaged and left out: line {lines} of {path}\n\n" for path, lines in damaged.items())
    return Section("provenance", "Provenance", tuple(body), data, f"{gist}```\n{code}\n```")


def downloads(evidence: "Evidence", study: str) -> Section | None:
    """What to take along. The buttons are the script's; the line says where the same numbers are without it."""
    buttons = [
        h("button", label, type="button", data_save=kind, hidden=True)
        for kind, label in (("json", "All figures and tables, JSON"), ("csv", "All figures, CSV"))
    ]
    told = (
        "Each figure and table has its own CSV button. The report's .json beside this file holds the same numbers with "
        "six digits and stable keys, and gspo-lab export writes every record."
    )
    return Section("data", "Data", (h("p", told), h("p", *buttons, class_="downloads")))


def reproduce(study: str, content: dict[str, Any]) -> list[str]:
    """The command lines that run the study again, check its pairs and render this page.

    A study that grew has a line for each start that let it; one declared before commands were kept has none.
    """
    starts = [["run", *command] for command in content.get("commands") or []]
    return [shlex.join(["gspo-lab", *words]) for words in (*starts, ["certify", study], ["report", study])]


def _damaged(evidence: "Evidence", study: str) -> dict[str, list[int]]:
    """By journal the lines that could not be read."""
    found: dict[str, list[int]] = {}
    query = "SELECT path, line FROM chosen JOIN damaged USING (run_id) ORDER BY path, line"
    for row in records(evidence.select(study, query)):
        found.setdefault(row["path"], []).append(int(row["line"]))
    return found


def _facts(evidence: "Evidence", study: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What all runs' workers found alike, and what they found differently, by run."""
    found = {
        run["run_id"].removeprefix(f"{study}/"): flat(json.loads(run["facts"]))
        for run in records(evidence.runs(study))
        if isinstance(run["facts"], str)
    }
    known: dict[str, Any] = {}
    varying: dict[str, dict[str, Any]] = {}
    for key in sorted({key for facts in found.values() for key in facts}):
        entries = {run: facts.get(key) for run, facts in found.items()}
        values = list(entries.values())
        if all(entry == values[0] for entry in values):
            known[key] = values[0]
        else:
            varying[key] = entries
    return known, varying


def _edit(edit: Any) -> str:
    return f"{edit.get('at', '')} {edit.get('what', '')}".strip() if isinstance(edit, dict) else str(edit)
