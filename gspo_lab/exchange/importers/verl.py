"""verl: the JSON Lines of its file logger, `{"step": n, "data": {...}}`, and the output of its
console logger.

The console prints `step:3 - actor/pg_clipfrac:0.01 - ...`, perhaps in colour and with a prefix of
Ray. The configuration is printed before the first step, or is in Hydra's `.hydra/config.yaml`
beside the log.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.importers.base import (
    JSON_TEXT,
    Log,
    LoggedRow,
    RunSpec,
    check_file,
    head_of,
    open_text,
    parse_int,
)
from gspo_lab.exchange.importers.config import LARGEST, read_config
from gspo_lab.exchange.importers.tables import LONGEST, entries

CONSOLE = re.compile(r"(?:^|[\s)])step:(\d+) - (\S.*)")
PLANNED = re.compile(r"Total training steps: (\d+)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PAIR = re.compile(r"^(.+):([^:]+)$")
WRAPPED = re.compile(r"^(?:np\.\w+\()?([^()]*)\)?$")
"""A number as NumPy's repr prints it, `np.float64(0.5)`."""
HYDRA = Path(".hydra", "config.yaml")
PROCESS = re.compile(r"^\(\w+ pid=\d+[^)]*\) ?")
"""Ray's prefix of a worker's line."""


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The file of either logger."""
    check_file(path, "verl's JSON Lines or console log")
    is_json = JSON_TEXT.match(head_of(path))  # a Python dict is a configuration
    hydra = path.parent / HYDRA
    if hydra.is_file():
        log = Log("verl", (), (path, hydra), settings=read_config(hydra))
    else:
        log = Log("verl", (), (path,), settings={} if is_json else _shown_config(path))
    log.rows = _json(path) if is_json else _console(path, log)
    return log


def _json(path: Path) -> Iterator[LoggedRow]:
    for where, entry in entries(path):
        data = entry.get("data")
        if "step" not in entry or not isinstance(data, dict):
            raise LabError(
                f"{where}: not a line of verl's file logger, which has 'step' and 'data'"
            )
        yield parse_int(entry["step"], where), data


def _shown_config(path: Path) -> JsonObject:
    """The configuration as the console prints it, a Python dict on many lines; empty if there is
    none.
    """
    text = ""
    with open_text(path) as file:
        while (line := file.readline(LONGEST)) and len(text) < LARGEST:
            line = PROCESS.sub("", COLOUR.sub("", line))
            if CONSOLE.search(line):
                break
            if text or line.startswith("{'"):
                text += line
            if text.rstrip().endswith("}") and text.count("{") == text.count("}"):
                try:
                    return dict(ast.literal_eval(text.strip()))
                except (ValueError, SyntaxError, RecursionError):
                    text = ""
    return {}


def _console(path: Path, log: Log) -> Iterator[LoggedRow]:
    empty = True
    with open_text(path) as file:
        while line := file.readline(LONGEST):
            match = CONSOLE.search(COLOUR.sub("", line.rstrip("\n")))
            if match is None:
                planned = PLANNED.search(line)
                log.planned = int(planned[1]) if planned else log.planned
                continue
            empty = False
            pairs = (PAIR.match(part) for part in match[2].split(" - "))
            numbers = ((pair[1], WRAPPED.match(pair[2])) for pair in pairs if pair is not None)
            yield int(match[1]), {name: number[1] for name, number in numbers if number}
    if empty:
        raise LabError(
            f"{path}: no line is of verl's form, 'step:N - name:value - ...'; of rows that"
            " TRL prints give its trainer_state.json"
        )
