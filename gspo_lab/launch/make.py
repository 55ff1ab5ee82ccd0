"""A launcher by its name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.launch import ADDRESSED, LAUNCHERS
from gspo_lab.launch.base import Launcher, Slot
from gspo_lab.registry import check_callable, check_made, look_up

LOCAL = "local"
METHODS = ("slots", "start", "find")


def make_launcher(
    name: str, jobs: int | None = None, options: Mapping[str, Mapping[str, Any]] | None = None
) -> Launcher:
    """The launcher `name`: of the table, with an address behind it ("ray:HOST:PORT") where it takes one, or an
    outsider's "module:attribute". `options` are a study's, by launchers' names. LabError where there is no such one."""
    own, colon, address = name.partition(":")
    given = dict((options or {}).get(own, {}))
    if own in LAUNCHERS and colon:
        if own not in ADDRESSED:
            raise LabError(f"--on {name}: the launcher '{own}' takes no address; use --on {own}")
        if not address:
            raise LabError(
                f"--on {name}: an address is missing behind the colon, such as {own}:10.0.0.1:6379; "
                f"--on {own} finds the cluster that this machine belongs to"
            )
        name, given = own, given | {"address": address}
    kind = look_up("launcher", name, LAUNCHERS, Path())
    check_callable("launcher", name, kind, ("jobs",), METHODS, given)
    with _named(name):
        made: Launcher = kind(jobs, **given)
    check_made("launcher", name, made, METHODS)
    return made


def slots_of(name: str, launcher: Launcher, device: str) -> list[Slot]:
    """The launcher's slots for workers on `device`."""
    with _named(name):
        return launcher.slots(device)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """A bug in an outsider's launcher keeps its traceback, which then ends in the launcher's name."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        if name.partition(":")[0] not in LAUNCHERS:
            error.add_note(f"This is a bug in the launcher '{name}', named by --on.")
        raise
