"""Write the pages that are made from the code: `python docs/make_reference.py`. A test fails if one
is out of date.

`PAGES` names every page and the function that writes it. Edit the descriptions in the code, never
the pages.
"""

import inspect
import re
import types
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from gspo_lab.analysis.claims import LIBRARY, UNTESTED, Claim
from gspo_lab.analysis.claims.published import CounterEvidence
from gspo_lab.analysis.stats.calibration import STUDIES, CalibrationRow, recorded_rates
from gspo_lab.cli import PANELS
from gspo_lab.cli import command as command_line
from gspo_lab.common.keys import table_of
from gspo_lab.common.text import tenth_percent
from gspo_lab.recording.records import RECORDS, Record, is_time
from gspo_lab.recording.store.schema import Column, field_columns
from gspo_lab.study import load_study
from gspo_lab.study.claim_validation import CLAIM_ROLES
from gspo_lab.study.lints import WAIVABLE
from gspo_lab.study.runtime_tables import LaunchTable, MirrorTable
from gspo_lab.study.schema import (
    ARM_KEYS,
    KEYS,
    BenchTable,
    RecordTable,
    Settings,
)
from gspo_lab.study.tune import TuneTable
from gspo_lab.study.verdict_tables import ClaimTable, VerdictTable
from gspo_lab.training.objectives.losses import LOSSES, Loss
from gspo_lab.training.objectives.presets import PRESETS, Objective

HERE = Path(__file__).parent
LAUNCH_TABLES = {name: type(getattr(LaunchTable(), name)) for name in LaunchTable.model_fields}
"""Every launcher's own table, by its name."""

METRICS_INTRODUCTION = """\
# What is recorded

Made by `python docs/make_reference.py`. Each record is a row of a table of `runs/lab.db`, each field a column, a number if not TEXT or JSON. NULL means *not
measured*; it is never 0. A mean over several rows weighs each by `X` where a column is "by `X`" or a "share of `X`";
else rows count alike. `*` marks columns that measure time or the machine: two runs with the same seed and settings on
one machine differ in these only.

## Symbols

`l_t`, `w_t`, `s` and `A` are those of [objectives](objectives.md#notation).

- `m`: 1 at response tokens, the end-of-sequence token included; 0 at prompt and padding
- `r`: the ratio that an arm uses: `w_t`, or `s` at every token of its response
- `binds`: (A > 0 and r > 1 + clip_high) or (A < 0 and r < 1 - clip_low): the clip takes the token's gradient away
- `e_y`, `p`: the token's one-hot vector; the policy's probabilities

## The headline clip fraction

`clip_fraction_tokens` = sum of m x binds / sum of m: the share of **response tokens** whose gradient the clip removes.
Every objective has this denominator, so GRPO and GSPO can be compared. With one ratio per response, all of its tokens
bind or none. `would_clip_*` apply *both* rules, with the study's reference ranges, to every arm's batches.

`clip_fraction_gradient` is the share of the **gradient** that the clip removes. Certain tokens have almost no gradient, so a
rule may clip few tokens and much gradient.

## Mini-batches, sums and means

On the first of N mini-batches (`minibatch` = 0) nothing binds, with the trainer's old log-probs (the default). So a mean
over all N updates is about (N - 1)/N of the mean over the later ones. For any set of
updates the clip fraction is sum of `clipped_tokens` / sum of `response_tokens`. Columns named `*_total` are running sums.
"""


def metrics_markdown() -> str:
    """docs/reference/metrics.md: an introduction and one list per record."""
    table_of_item: dict[str, str] = {}
    sections = [_record_section(record, table_of_item) for record in RECORDS.values()]
    return "\n".join([METRICS_INTRODUCTION, *sections])


def _record_section(record: type[Record], table_of_item: dict[str, str]) -> str:
    """A record's columns; those that an earlier table also has, by their names and that table."""
    doc = (record.__doc__ or "").split("\n\n")[0]
    columns = {_column_item(column): column.name for column in field_columns(record)}
    repeated: dict[str, list[str]] = {}
    for item, name in columns.items():
        if item in table_of_item:
            repeated.setdefault(table_of_item[item], []).append(name)
    items = [item for item in columns if item not in table_of_item]
    table_of_item.update(dict.fromkeys(items, record.table))
    also = [f"As in `{table}`: {_listed(names)}." for table, names in repeated.items()]
    doc = " ".join([*doc.split(), *also])
    return "\n".join([f"## `{record.table}`", "", doc, "", *items]) + "\n"


def _column_item(column: Column) -> str:
    star = "*" if is_time(column.name) else ""
    unit = _kind_and_unit(column)
    return f"- `{column.name}`{star}{f' ({unit})' if unit else ''}: {column.meaning}"


def _kind_and_unit(column: Column) -> str:
    """The type if it is no number, the unit, and the column that weighs a row in a mean."""
    words = ["JSON"] if column.json else ["TEXT"] if column.type == "TEXT" else []
    if column.per is not None and column.unit == f"share of {column.per.replace('_', ' ')}":
        return f"share of `{column.per}`"
    if column.unit != "-":
        words.append(column.unit)
    if column.per is not None:
        words.append(f"by `{column.per}`")
    return ", ".join(words)


STUDIES_INTRODUCTION = """\
# Every key of a study file

Made by `python docs/make_reference.py`. A study is one TOML file. Unknown keys are errors. In parentheses stands a key's
default, in bold among several values. A key with a type may be left out ("unset").

All arms share a table's keys and other engines than `native` obey them, unless the table's last lines say otherwise.
`[tune]` is choice on trials. An engine refuses a study in which a key that it does not obey is not at its default.
"""

ARMS = """\
## `[arm.NAME]`

A study has at least one arm. It holds the keys in which it differs from the study:
`objective` (a preset's name), any key of `[objective]` written flat, and {keys}.
A table changes only the keys that it names. An arm's name has letters, digits, `-`, `_` and `.`.
"""

SWEEP = """\
## `[sweep]`

A dotted setting and the values at which every arm runs, at least two different numbers above 0:
`update.learning_rate = [2e-4, 5e-4, 1e-3]` ([sweeps](../how-to/write-a-study.md#sweeps)).
"""

WAIVE = """\
## `[waive]`

Errors of `gspo-lab plan` that the study accepts, each with the reason as text: {names}.
"""


def studies_markdown() -> str:
    """docs/reference/study-keys.md: every table of a study, key by key."""
    top = [
        "## Top level",
        "",
        "- `question` (text, needed): the question that the study asks",
        "- `seeds` (3): how many seeds, or which; every arm runs with each",
        (
            "- `compares_engines` (false): whether the study compares engines; else all"
            " arms share `engine`"
        ),
    ]
    plain: list[str] = []
    tables: list[str] = []
    for name, entry in Settings.model_fields.items():
        inner = table_of(entry.annotation)
        if name == "objective":
            tables.append(_objective_section())
        elif inner is BenchTable:
            tables.append(_model_section("[[bench]]", BenchTable, within="bench"))
        elif inner is not None:
            more = (MirrorTable,) if inner is RecordTable else ()
            tables.append(_model_section(f"[{name}]", inner, *more, within=name))
        else:
            top.append(_item(name, entry, name))
            plain.append(name)
    top += ["", *_traits(plain)]
    arms = ARMS.replace("{keys}", ", ".join(f"`{key}`" for key in ARM_KEYS))
    launchers = [_model_section(f"[launch.{key}]", table) for key, table in LAUNCH_TABLES.items()]
    tune = _model_section("[tune]", TuneTable)
    waive = WAIVE.replace("{names}", ", ".join(f"`{name}`" for name in WAIVABLE))
    claims = _model_section("[[claim]]", ClaimTable)
    last = (_model_section("[verdict]", VerdictTable), SWEEP, tune, claims, waive, *launchers)
    parts = [STUDIES_INTRODUCTION, "\n".join(top), arms, *tables, *last]
    return "\n".join(parts)


CLAIMS_INTRODUCTION = """\
# The library of claims

Made by `python docs/make_reference.py`.
[Claims](claims.md) explains how claims are declared and judged. The roles of arms:

{roles}

If a study has dense and routed models, claims about experts use the routed arms only. If an arm has unstable runs, no
rule keeps alpha; `gspo-lab certify --rule` states the measured rate. A number that is held against nothing is labelled
*measured*.

## Claims that a study can test

A claim needs 3 seeds and 2 updates per rollout batch if it states nothing else. "Against" are numbers of the
[evidence below](#published-evidence-against).
"""

COUNTER_HEAD = "## Published evidence against\n"

UNTESTABLE = """\
## What no study here can test

These published statements need a probe, a method or a grid that no run records. A study may declare them: the report
lists them with the reason, and Holm's rule leaves them out.
"""


def claims_markdown() -> str:
    """docs/reference/claim-library.md: every built-in claim, with published evidence against it."""
    roles = "\n".join(f"- `{role}`: {meaning}" for role, meaning in CLAIM_ROLES.items())
    counter = [report for claim in LIBRARY.values() for report in claim.counter]
    counter = list(dict.fromkeys(counter))
    numbered = [f"{n}. {report.text} ({report.source})" for n, report in enumerate(counter, 1)]
    untested = [f"- `{name}`: {lacking}." for name, lacking in UNTESTED.items()]
    sections = [_claim_section(claim, counter) for claim in LIBRARY.values()]
    introduction = CLAIMS_INTRODUCTION.replace("{roles}", roles)
    lines = [introduction, *sections, COUNTER_HEAD, *numbered, "", UNTESTABLE, *untested]
    return "\n".join(lines) + "\n"


USUAL_NEEDS = ["3 seeds", "2 updates per rollout batch"]


def _claim_section(claim: Claim, counter: list[CounterEvidence]) -> str:
    numbers = [str(counter.index(report) + 1) for report in claim.counter]
    needs = claim.presupposed
    label = "needs"
    if needs[:2] == USUAL_NEEDS:
        needs = needs[2:]
        label = "also needs"
    lines = [
        f"### `{claim.id}`",
        "",
        f"{claim.statement} Grade {claim.grade}. Published ({claim.source}): {claim.published}.",
        "",
        f"- criterion: {claim.criterion}",
        *([f"- {label}: {'; '.join(needs)}"] if needs else []),
        *([f"- against: {', '.join(numbers)}"] if numbers else []),
    ]
    return "\n".join(lines) + "\n"


def _model_section(title: str, *models: type[BaseModel], within: str | None = None) -> str:
    """The keys of a table; those of the run's table `within` with what the lab knows of them."""
    doc = " ".join((models[0].__doc__ or "").split())
    prefix = "" if within is None else f"{within}."
    entries = [
        (prefix + key, entry) for model in models for key, entry in model.model_fields.items()
    ]
    rows = [_item(key.removeprefix(prefix), entry, key) for key, entry in entries]
    traits = _traits([key for key, _ in entries]) if within is not None else []
    return "\n".join([f"## `{title}`", "", doc, "", *rows, "", *traits])


def _objective_section() -> str:
    """The objective's keys; the presets by what they change of them; the policy losses."""
    rows = []
    for name, preset in PRESETS.items():
        changed = {
            key: value
            for key, value in preset.model_dump().items()
            if value != getattr(Objective(), key)
        }
        told = ", ".join(
            f"{key}={_value(value)}" for key, value in changed.items() if key != "preset"
        )
        rows.append(f"- `{name}`: {told or 'the defaults'}")
    losses = [LOSSES_INTRODUCTION, *map(_loss_item, LOSSES.values())]
    return "\n".join(
        [
            _model_section("[objective]", Objective, within="objective"),
            PRESETS_HEAD,
            *rows,
            "",
            *losses,
            "",
        ]
    )


PRESETS_HEAD = """\
### Presets

`objective = "NAME"` in an arm, or `preset` under `[objective]`, changes these defaults.
"""

LOSSES_INTRODUCTION = """\
### `policy_loss`

The term of token t, in the symbols of [objectives](objectives.md#notation), with W = exp(sum of l_t) and q the token's old
probability. A loss without a clip has `gate_mean` ([metrics](metrics.md)) in place of clip fractions. A loss of your own:
`policy_loss = "my_loss.py:LOSS"` ([extending](../development/extend.md#a-loss)). The [presets](objectives.md#presets) have
the sources.
"""


def _loss_item(loss: Loss[Any]) -> str:
    clips = f"clips {loss.clips}" if loss.clips else "no clip"
    differs = f". Not as in its paper: {loss.differs}" if loss.differs else ""
    return f"- `{loss.name}` ({clips}): {loss.formula}{differs}"


def _item(name: str, entry: Any, key: str) -> str:
    return f"- `{name}` ({_type_and_default(entry)}): {entry.description}{_unread(key)}"


def _type_and_default(entry: Any) -> str:
    """The type and the default; of several values the default is bold."""
    if get_origin(entry.annotation) is Literal:
        values = get_args(entry.annotation)
        return ", ".join(
            f"**{_value(value)}**" if value == entry.default else _value(value) for value in values
        )
    kind = _type(entry.annotation)
    if entry.default is None:
        return kind
    if entry.default is PydanticUndefined:
        return f"{kind}, needed"
    default = _value(entry.default)
    # Another default shows its type.
    return f"{kind}, {default}" if isinstance(entry.default, (list, dict)) else default


def _unread(key: str) -> str:
    """Where a key has no effect. A sentence with a value in it is of one run."""
    read = KEYS[key].read if key in KEYS else None
    if read is None or "{" in read.otherwise or read.otherwise.startswith("without policy_loss"):
        return ""
    table = KEYS.get(key.rpartition(".")[0])
    if table is not None and table.read is read:  # its description says so
        return ""
    return f"; {_needed(read.otherwise)}"


def _needed(otherwise: str) -> str:
    """`without X`, where a key does nothing, as what the key needs."""
    needed = otherwise.removeprefix("without ")
    return f"no effect {otherwise}" if needed == otherwise else f"needs {needed}"


ARMS_TRAITS = {
    "study": "All arms share these keys",
    "vary": "Arms may differ in these keys",
    "choose": "Arms may differ in these keys and choose them in `[tune]`",
}


ENGINES = ["areal", "trl", "verl"]


def _traits(names: list[str]) -> list[str]:
    """Whether arms may differ in a table's keys, and the other engines that obey them, as lines."""
    keys = [key for key in names if key in KEYS]  # the others are no part of what a run is
    of_arms = {key: KEYS[key].arms or "study" for key in keys}
    usual = Counter(of_arms.values()).most_common(1)[0][0]
    lines = [ARMS_TRAITS[usual]]
    for trait in ARMS_TRAITS:
        exceptions = [key for key in keys if of_arms[key] == trait != usual]
        if exceptions:
            lines[0] += f"; {_exception(usual, trait)} {_listed(exceptions)}"
    lines[0] += "."
    obeyed: dict[str, list[str]] = {}
    for engine in ENGINES:
        own = [key for key in keys if _obeys(engine, key)]
        rest = [key for key in keys if key not in own]
        words = _listed(own) if len(own) <= len(rest) else f"all but {_listed(rest)}"
        if own:
            obeyed.setdefault(words if rest else "all", []).append(engine)
    lines += [f"{_listed(engines)}: {words}." for words, engines in obeyed.items()]
    if lines[0] == f"{ARMS_TRAITS['study']}." and obeyed in ({}, {"all": ENGINES}):
        return []  # as the introduction says
    return [" ".join(lines), ""]


def _exception(usual: str, trait: str) -> str:
    if trait == "study":
        return "all share"
    if trait == "choose":
        return "`[tune]` may choose"
    return "they may differ in" if usual == "study" else "`[tune]` does not take"


def _obeys(engine: str, key: str) -> bool:
    """Whether another engine obeys a key, or the whole table of it."""
    table = KEYS.get(key.rpartition(".")[0])
    return engine in KEYS[key].names or (table is not None and engine in table.names)


def _listed(keys: list[str]) -> str:
    return ", ".join(f"`{key.rpartition('.')[2]}`" for key in keys)


def _type(annotation: Any) -> str:
    names = {int: "integer", float: "number", str: "text", bool: "boolean", Path: "path"}
    origin = get_origin(annotation)
    args = get_args(annotation)
    if origin is Annotated:
        return _type(args[0])
    if origin is Literal:
        return ", ".join(_value(arg) for arg in args)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(arg) for arg in args if arg is not types.NoneType)
    if origin is dict:
        return "table" if args[1] is Any else f"table of {_type(args[1])}"
    if origin is list:
        return f"list of {_type(args[0])}"
    if table_of(annotation) is not None:
        return "text or table"
    return names[annotation]


def _value(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


COMMANDS_INTRODUCTION = """\
# The command line

Made by `python docs/make_reference.py`. `gspo-lab COMMAND --help` prints the same.
Exit codes: 0 finished, 1 incomplete or a check failed, 2 a mistake that you can correct, 130 interrupted.

## Options of several commands
"""


def commands_markdown() -> str:
    """docs/reference/commands.md: the options that commands share, and each command with the
    others and examples.
    """
    panels = {panel: list(map(_subcommands, names)) for panel, names in PANELS.items()}
    commands = [entry for panel in panels.values() for entries in panel for entry in entries]
    counts = Counter(row for _, command in commands for row in _rows(command))
    shared = [row for row, count in counts.items() if count > 1 and row.startswith("- `--")]
    lines = [COMMANDS_INTRODUCTION, *sorted(shared), ""]
    for panel, groups in panels.items():
        lines += [f"## {panel}", ""]
        for entries in groups:
            for name, command in entries:
                lines += _command(name, command, shared)
    return "\n".join(lines).rstrip() + "\n"


def _subcommands(name: str) -> list[tuple[str, Any]]:
    """A command and the commands within it, by what a user types."""
    command = command_line().commands[name]
    inner = getattr(command, "commands", {})
    subcommands = [(f"gspo-lab {name} {word}", subcommand) for word, subcommand in inner.items()]
    return [(f"gspo-lab {name}", command), *subcommands]


def _rows(command: Any) -> list[str]:
    return [_parameter(entry) for entry in command.params if entry.name != "help"]


def _command(name: str, command: Any, shared: list[str]) -> list[str]:
    text = re.sub(r"\s*\n\s*\n\s*", "\n\n", inspect.cleandoc(command.help))
    lines = [f"### {name}", "", text, ""]
    own = [row for row in _rows(command) if row not in shared]
    if own:
        lines += [*own, ""]
    names = [entry.opts[0] for entry in command.params if _parameter(entry) in shared]
    if names:
        lines += [f"Also: {', '.join(f'`{option}`' for option in names)}.", ""]
    examples = (command.epilog or "").split("\n\n")[1:]
    return [*lines, *(["```", *examples, "```", ""] if examples else [])]


def _parameter(entry: Any) -> str:
    """An item: the name with the kind of its value, the meaning with the default."""
    is_option = entry.param_type_name == "option"
    if is_option and entry.is_flag:
        return f"- `{entry.opts[0]}`: {entry.help}"
    name = entry.metavar or entry.name.upper()
    if is_option:
        name = f"{entry.opts[0]} {entry.metavar or _placeholder(entry.type_descriptor.annotation)}"
    default = (
        ""
        if entry.required or entry.default in (None, "")
        else f" Default: `{_plain(entry.default)}`."
    )
    return f"- `{name}`: {entry.help}{default}"


def _placeholder(annotation: Any) -> str:
    """What stands for an option's value; a repeatable option names one of its values."""
    args = get_args(annotation)
    if get_origin(annotation) is Literal:
        return "|".join(map(str, args))
    return _type(args[0] if get_origin(annotation) is list else annotation).upper()


def _plain(default: Any) -> str:
    return " ".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)


def calibration_markdown() -> str:
    """docs/results/calibration-table.md: what error_rates.csv holds, and the rows that matter most."""
    rates = {(row.cell, row.n, row.method): row for row in recorded_rates()}
    rows = [_rate_row(rates[key]) for key in CALIBRATION_ROWS]
    return CALIBRATION_INTRODUCTION + "\n".join(rows) + "\n"


def _rate_row(row: CalibrationRow) -> str:
    shares = (row.share, row.rate.low, row.rate.high)
    rate, low, high = (tenth_percent(share).removesuffix(" %") for share in shares)
    cells = (row.cell, row.n, row.method, row.expectation, f"{rate} ({low} to {high})")
    return f"| {' | '.join(map(str, cells))} |"


CALIBRATION_ROWS = (
    ("score, normal", 5, "paired t over seeds"),
    ("5 arms against one", 5, "any arm better or worse, Holm"),
    ("2 x 2, normal", 5, "contrast, better or worse"),
    ("stability: 3 of 7 runs of either arm unstable", 7, "more or less stable"),
    ("seed sd 0.3, answers' sd 0.5 margins", 8, "equivalent, truth: the margin"),
    ("seed sd 0.3, answers' sd 0.5 margins", 8, "equivalent, truth: no difference"),
    ("score, normal", 3, "bootstrap over seeds"),
    ("benchmark 400 x 4", 3, "items only, seeds pooled"),
    ("score, one arm skewed", 5, "paired t over seeds"),
    ("4 claims, 10 % of one arm's runs fall by 12 sd", 8, "4 claims, any with a word, Holm"),
)

CALIBRATION_INTRODUCTION = f"""\
# Error rates of the verdict, row by row

Made by `python docs/make_reference.py`.
[The table](../../gspo_lab/analysis/stats/error_rates.csv) has all {len(recorded_rates())} rows. `gspo-lab certify --rule` measures them on
{STUDIES:,} simulated studies each. [Calibration](../explanation/calibration.md) explains them.

A row is one kind of study (`cell`), its number of seeds or pairs (`n`) and one analysis (`method`).

- `false_words`: studies with an untrue verdict, or an interval without the true difference. With `power`: studies with the true answer
- `for_baseline`, `for_treatment`: studies whose verdict favours that side
- `expectation`: where the rate must lie. `inside the band`: the exact 99 % band of 5 %. `at most the band`: up to its end. `at most half`: the same of 2.5 %. `must fail`: a common analysis, above 7.5 %. `stated`: one side is unstable, skewed or noisier, no rule keeps 5 %, and reports state the rate. `power`: no limit

The rows that matter most:

| study | n | analysis | expectation | rate in % (99 % interval) |
|---|---|---|---|---|
"""


def shipped_studies_markdown() -> str:
    """docs/reference/studies.md: each file of `studies/` with its question and its size."""
    rows = []
    for path in sorted((HERE.parent / "studies").glob("*.toml")):
        study = load_study(path)
        model = next(iter(study.arms.values())).settings.model
        link = f"[{path.stem}](../../studies/{path.name})"
        rows.append(
            f"| {link} | {study.question} | {model} | {len(study.arms) * len(study.seeds)} |"
        )
    return SHIPPED_INTRODUCTION + "\n".join(rows) + "\n"


SHIPPED_INTRODUCTION = """\
# The studies in `studies/`

Made by `python docs/make_reference.py`. Each file says at its top what to expect and how long it takes
([findings](../results/findings.md)). `smollm2` and `smollm2_variants` ran on CPU cores, in an hour each. The Qwen3 models were
never run.

| file | question | model | runs |
|---|---|---|---|
"""

PAGES = {
    "reference/commands.md": commands_markdown,
    "reference/metrics.md": metrics_markdown,
    "reference/studies.md": shipped_studies_markdown,
    "reference/study-keys.md": studies_markdown,
    "reference/claim-library.md": claims_markdown,
    "results/calibration-table.md": calibration_markdown,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
