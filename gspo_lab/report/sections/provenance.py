"""Where the numbers come from: versions, hardware, what to type to get them again, and the numbers to take along."""

import json
import shlex
from typing import Any

from gspo_lab.readings import Source
from gspo_lab.report.markup import NOT_MEASURED, Html, fenced, h, plain, setting, table
from gspo_lab.report.section import Section
from gspo_lab.report.series import records
from gspo_lab.store.damage import END_LOST, FOREIGN
from gspo_lab.study import Declaration, Origin, flat
from gspo_lab.study.origin import ORIGIN


def provenance(found: Source) -> Section | None:
    """Commands, the declaration's digest and its edits, versions and device."""
    declared = found.declaration
    commands = reproduce(declared)
    body: list[Html] = [h("h3", "To reproduce"), h("pre", h("code", "\n".join(commands)), tabindex="0")]
    if declared.comment:
        body.append(h("p", declared.comment, class_="soft"))
    if declared.digest:
        body.append(h("p", "Digest of the declared study: ", h("code", declared.digest)))
    body += [h("p", f"Changed after it was declared: {edit}", class_="warn") for edit in declared.edits]
    origins = _origins(found)
    body += [h("p", f"{one}: taken on trust.", class_="warn") for one in origins]
    damaged, gaps, ends, foreign = (_damaged(found, gap) for gap in (0, 1, END_LOST, FOREIGN))
    told = [
        *(f"Damaged and left out: line {', '.join(map(str, lines))} of {path}" for path, lines in damaged.items()),
        *(f"A line is missing before line {', '.join(map(str, lines))} of {path}" for path, lines in gaps.items()),
        *(f"Gone, or damaged: the end of {path}, from line {lines[0]} on" for path, lines in ends.items()),
        *(f"Recorded for another run and left out: {path}" for path in foreign),
    ]
    body += [
        h("p", f"{one}. What was recorded there is missing from every number above.", class_="warn") for one in told
    ]
    known, varying = _facts(found)
    if known:
        rows = [[key, setting(entry, NOT_MEASURED)] for key, entry in known.items()]
        body.append(table(["fact", "all runs"], rows, caption="Versions and device"))
    else:
        body.append(h("p", f"Versions and device: {NOT_MEASURED}", class_="missing"))
    if varying:
        rows = [
            [key, "; ".join(f"{run}: {setting(entry, NOT_MEASURED)}" for run, entry in runs.items())]
            for key, runs in varying.items()
        ]
        listing = table(["fact", "by run"], rows)
        body.append(h("details", h("summary", f"{len(varying)} facts in which runs differ"), listing))
    data = {
        "facts": known,
        "facts_by_run": varying,
        "commands": commands,
        "digest": declared.digest,
        "origins": origins,
        "damaged": damaged,
        "gaps": gaps,
        "ends": ends,
        "foreign": foreign,
    }
    gist = "".join(f"{plain(one)}\n\n" for one in (*origins, *told))
    return Section("provenance", "Provenance", tuple(body), data, f"{gist}{fenced(commands)}")


def downloads(found: Source) -> Section | None:
    """What to take along. The buttons are the script's; the line says where the same numbers are without it."""
    buttons = [
        h("button", label, type="button", data_save=kind, hidden=True)
        for kind, label in (("json", "All figures and tables, JSON"), ("csv", "All figures, CSV"))
    ]
    buttons.append(h("button", "Print the whole page", type="button", data_print="all", hidden=True))
    told = (
        "Each figure and table has its own CSV button. Printing gives two sheets of the sections that decide; the "
        "button here prints all. The report's .json beside this file holds the same numbers with "
        "six digits and stable keys, and gspo-lab export writes every record."
    )
    return Section("data", "Data", (h("p", told), h("p", *buttons, class_="downloads")))


def reproduce(declared: Declaration) -> list[str]:
    """The command lines that run the study again, check its pairs and render this page.

    A study that grew has a line for each start that let it; one declared before commands were kept has none. A
    replication is begun from the study that it replicates.
    """
    starts = [["run", *command] for command in declared.commands]
    if declared.replicates is not None:
        starts = [["replicate", declared.replicates.name]]
    after = (["certify", declared.name], ["report", declared.name])
    return [shlex.join(["gspo-lab", *words]) for words in (*starts, *after)]


def _origins(found: Source) -> dict[str, list[str]]:
    """Per origin, in words, the runs that another program recorded."""
    runs: dict[str, list[str]] = {}
    for run in records(found.evidence.runs(found.study)):
        told = json.loads(run["facts"]).get(ORIGIN) if isinstance(run["facts"], str) else None
        if told is not None:
            one = Origin.told(told, run["run_id"])
            changed = f" ({'; '.join(one.converted)})" if one.converted else ""
            runs.setdefault(f"Recorded by {one.recorder}, read from {one.source}{changed}", []).append(run["run_id"])
    return runs


def _damaged(found: Source, gap: int) -> dict[str, list[int]]:
    """By journal the lines that are damaged, those before which one is missing, or that from which on all are."""
    lines: dict[str, list[int]] = {}
    of_it = f"FROM chosen JOIN damaged USING (run_id) WHERE COALESCE(gap, 0) = {gap}"
    query = f"SELECT path, line {of_it} ORDER BY path, line"
    for row in records(found.evidence.select(found.study, query)):
        lines.setdefault(row["path"], []).append(int(row["line"]))
    return lines


def _but_metrics(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts without the definitions of an imported run's metrics, which have a section of their own."""
    return {key: value for key, value in facts.items() if not key.startswith(f"{ORIGIN}.metrics.")}


def _facts(found: Source) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What all runs' workers found alike, and what they found differently, by run."""
    by_run = {
        run["run_id"].removeprefix(f"{found.study}/"): _but_metrics(flat(json.loads(run["facts"])))
        for run in records(found.evidence.runs(found.study))
        if isinstance(run["facts"], str)
    }
    known: dict[str, Any] = {}
    varying: dict[str, dict[str, Any]] = {}
    for key in sorted({key for facts in by_run.values() for key in facts}):
        entries = {run: facts.get(key) for run, facts in by_run.items()}
        values = list(entries.values())
        if all(entry == values[0] for entry in values):
            known[key] = values[0]
        else:
            varying[key] = entries
    return known, varying
