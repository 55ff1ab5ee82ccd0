"""What was run, how to run it again, and what this study cannot say."""

import json
import shlex
from typing import TYPE_CHECKING, Any

from gspo_lab.matching.settings import flat, undeclared
from gspo_lab.report.frames import arms, records
from gspo_lab.report.markup import NOT_MEASURED, Html, h, markdown_table, plain, table
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

ABSENT = "unset"


def settings(evidence: "Evidence", study: str) -> Section | None:
    """Shared settings, each arm's own, versions and device, the command, and the limits in words."""
    content = evidence.study(study)
    order = arms(evidence, study)
    resolved = {arm: flat(content["arms"][arm]["settings"]) for arm in order}
    keys = sorted({key for one in resolved.values() for key in one})
    values = {key: [resolved[arm].get(key) for arm in order] for key in keys}
    shared = {key: row[0] for key, row in values.items() if all(entry == row[0] for entry in row)}
    odd = {key for i, one in enumerate(order) for other in order[i + 1 :] for key in undeclared(content, one, other)}
    differing = [
        [key, *(_shown(entry) for entry in values[key]), h("span", "no", class_="differs") if key in odd else "yes"]
        for key in keys
        if key not in shared
    ]
    head = ["setting", *order, "declared"]
    command = reproduce(study, content)
    body: list[Html] = [h("h3", "To reproduce"), h("pre", h("code", command))]
    if content.get("comment"):
        body.append(h("p", content["comment"], class_="soft"))
    if content.get("digest"):
        body.append(h("p", "Digest of the declared study: ", h("code", content["digest"])))
    body += [
        h("p", f"Changed after it was declared: {_edit(edit)}", class_="warn") for edit in content.get("edits") or []
    ]
    if differing:
        body.append(table(head, differing, caption="What the arms differ in, and whether an arm states it"))
    shown = [[key, _shown(entry)] for key, entry in shared.items()]
    listing = table(["setting", "all arms"], shown)
    body.append(h("details", h("summary", f"The {len(shared)} settings that all arms share"), listing))
    known, varying = _facts(evidence, study)
    if known:
        body.append(
            table(
                ["fact", "all runs"],
                [[key, _shown(entry, NOT_MEASURED)] for key, entry in known.items()],
                caption="Versions and device",
            )
        )
    else:
        body.append(h("p", f"Versions and device: {NOT_MEASURED}", class_="missing"))
    if varying:
        rows = [
            [key, "; ".join(f"{run}: {_shown(entry, NOT_MEASURED)}" for run, entry in runs.items())]
            for key, runs in varying.items()
        ]
        listing = table(["fact", "by run"], rows)
        body.append(h("details", h("summary", f"{len(varying)} facts in which runs differ"), listing))
    said = limits(evidence, study)
    body += [h("h3", "Limits"), h("ul", *(h("li", line) for line in said))]
    data = {
        "shared": shared,
        "arms": {arm: {key: values[key][i] for key in keys if key not in shared} for i, arm in enumerate(order)},
        "undeclared": sorted(odd),
        "facts": known,
        "facts_by_run": varying,
        "command": command,
        "digest": content.get("digest"),
        "limits": said,
    }
    markdown = [f"```\n{plain(command)}\n```"]
    if differing:
        markdown.append(markdown_table(head, [[*row[:-1], "no" if row[0] in odd else "yes"] for row in differing]))
    markdown.append("\n".join(f"- {plain(line)}" for line in said))
    return Section("settings", "Settings and limits", tuple(body), data, "\n\n".join(markdown))


def reproduce(study: str, content: dict[str, Any]) -> str:
    """The command line that runs the study again."""
    words = ["gspo-lab", "run", f"studies/{study}.toml"]
    for override in content.get("overrides") or []:
        words += ["--set", override]
    return shlex.join(words)


def limits(evidence: "Evidence", study: str) -> list[str]:
    """What the reader should not conclude, from what this study is."""
    content = evidence.study(study)
    every = [entry["settings"] for entry in content["arms"].values()]
    seeds = len(content["seeds"])
    out = []
    if seeds < 3:
        out.append(f"{seeds} seed{'' if seeds == 1 else 's'}: no interval can be given; three are the least.")
    elif seeds < 5:
        out.append(f"{seeds} seeds: the spread over seeds, and with it the interval, is itself known only roughly.")
    models = sorted({one["model"] for one in every})
    if any(model.startswith("tiny-") for model in models):
        out.append(
            f"The model ({', '.join(models)}) is tiny and its task is small: what is seen here shows how the "
            "objectives work, not what they do to a large model with long responses."
        )
    tasks = sorted({one["task"]["name"] for one in every})
    out.append(
        f"One task ({', '.join(tasks)}), one set of settings: another learning rate or clip range may turn the order."
    )
    if any(one["rollout"]["coupled"] for one in every):
        out.append(
            "Arms of one seed share their random numbers; that sharpens the comparison and says nothing about other "
            "seeds."
        )
    out.append("Only the declared score carries the verdict; the curves and the other numbers are description.")
    if not any(bench for one in every for bench in one["bench"]):
        out.append("No benchmark was declared: training reward alone cannot tell learning from reward hacking.")
    return out


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


def _shown(entry: Any, absent: str = ABSENT) -> str:
    if entry is None:
        return absent
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    return f"{entry:g}" if isinstance(entry, float) else entry if isinstance(entry, str) else json.dumps(entry)


def _edit(edit: Any) -> str:
    return f"{edit.get('at', '')} {edit.get('what', '')}".strip() if isinstance(edit, dict) else str(edit)
