"""A launcher by its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.launch import ADDRESSED, LAUNCHERS
from gspo_lab.launch.base import Launcher
from gspo_lab.registry import check_callable, check_made, look_up

LOCAL = "local"
METHODS = ("slots", "start", "find")


def make_launcher(
    name: str, jobs: int | None = None, options: Mapping[str, Mapping[str, Any]] | None = None
) -> Launcher:
    """The launcher `name`: of the table, with an address behind it ("ray:HOST:PORT") where it takes one, or an
    outsider's "module:attribute". `options` are a study's, by launchers' names. LabError where there is no such one."""
    own, _, address = name.partition(":")
    given = dict((options or {}).get(own, {}))
    if own in LAUNCHERS and address:
        if own not in ADDRESSED:
            raise LabError(f"--on {name}: the launcher '{own}' takes no address; use --on {own}")
        name, given = own, given | {"address": address}
    kind = look_up("launcher", name, LAUNCHERS, Path())
    check_callable("launcher", name, kind, ("jobs",), METHODS, given)
    made: Launcher = kind(jobs, **given)
    check_made("launcher", name, made, METHODS)
    return made
