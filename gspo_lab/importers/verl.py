"""verl: its file logger's JSON Lines, `{"step": n, "data": {...}}`, and what its console logger prints.

`step:3 - actor/pg_clipfrac:0.01 - ...`, whatever a process or Ray puts before it, also in colour. The configuration is
what the console shows before the first step, or Hydra's `.hydra/config.yaml` beside the log.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.config import LARGEST, read_config
from gspo_lab.importers.log import Log, Row, Wish, a_file, logged, numbers, rising, whole_number
from gspo_lab.importers.tables import LONGEST, entries

CONSOLE = re.compile(r"(?:^|[\s)])step:(\d+) - (\S.*)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PAIR = re.compile(r"^(.+):([^:]+)$")
WRAPPED = re.compile(r"^(?:np\.\w+\()?([^()]*)\)?$")
"""A number as NumPy's own repr has it, `np.float64(0.5)`."""
HYDRA = Path(".hydra", "config.yaml")
PROCESS = re.compile(r"^\(\w+ pid=\d+[^)]*\) ?")
"""What Ray puts before a line of a worker."""


def read(path: Path, run: str, wish: Wish) -> Log:
    """The file, whichever of the two it is."""
    a_file(path, "verl's JSON Lines or console log")
    with path.open("rb") as file:
        lines = file.read(1) == b"{"
    rows, hydra = rising(_json(path) if lines else _console(path), str(path)), path.parent / HYDRA
    if hydra.is_file():
        return Log("verl", rows, (path, hydra), settings=read_config(hydra))
    return Log("verl", rows, (path,), settings={} if lines else _shown_config(path))


def _json(path: Path) -> Iterator[Row]:
    for where, entry in entries(path):
        data = entry.get("data")
        if "step" not in entry or not isinstance(data, dict):
            raise LabError(f"{where}: no line of verl's file logger, which has 'step' and 'data'")
        yield whole_number(entry["step"], where), numbers(data)


def _shown_config(path: Path) -> dict[str, Any]:
    """The configuration as the console shows it, a Python dict over many lines; empty where there is none."""
    text = ""
    with path.open(encoding="utf-8", errors="replace") as file:
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


def _console(path: Path) -> Iterator[Row]:
    found = False
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(LONGEST):
            told = CONSOLE.search(COLOUR.sub("", line.rstrip("\n")))
            if told is None:
                continue
            found = True
            pairs = [PAIR.match(part) for part in told[2].split(" - ")]
            values = {
                pair[1]: value
                for pair in pairs
                if pair is not None and (inner := WRAPPED.match(pair[2])) and (value := logged(inner[1])) is not None
            }
            yield int(told[1]), values
    if not found:
        raise LabError(f"{path}: no line of it is one of verl's, 'step:N - name:value - ...'")
