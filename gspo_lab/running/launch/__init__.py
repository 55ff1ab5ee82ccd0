"""Launchers start workers on this machine or a cluster.

Each is one file here and one line in `LAUNCHERS`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.registry import check_callable, check_made, look_up
from gspo_lab.running.launch.base import Launcher, Slot

LAUNCHERS = {
    "local": "gspo_lab.running.launch.local:LocalPool",
    "ray": "gspo_lab.running.launch.ray:RayCluster",
    "slurm": "gspo_lab.running.launch.slurm:SlurmCluster",
}
"""Name -> a class called as `(jobs, **options)`. `jobs`: workers at once, None: one per slot. The
options are those of the study's table `[launch.NAME]`."""

LOCAL = "local"
ADDRESSED = ("ray",)
"""Launchers with an address after their name, `--on ray:HOST:PORT`; it becomes the option
`address`.
"""
METHODS = ("slots", "start", "find_worker")


def make_launcher(
    name: str, jobs: int | None = None, options: Mapping[str, JsonMapping] | None = None
) -> Launcher:
    """The launcher `name`: a built-in one, perhaps with an address ("ray:HOST:PORT"), or a plugin's
    "module:attribute".

    `options`: launcher -> options of the study. LabError for an unknown name.
    """
    kind_name, colon, address = name.partition(":")
    chosen = dict((options or {}).get(kind_name, {}))
    if kind_name in LAUNCHERS and colon:
        if kind_name not in ADDRESSED:
            raise LabError(
                f"--on {name}: the launcher '{kind_name}' takes no address; use --on {kind_name}"
            )
        if not address:
            raise LabError(
                f"--on {name}: an address is missing behind the colon, such as"
                f" {kind_name}:10.0.0.1:6379; --on {kind_name} finds the cluster that this machine"
                " belongs to"
            )
        name = kind_name
        chosen = chosen | {"address": address}
    kind = look_up("launcher", name, LAUNCHERS, Path())
    check_callable("launcher", name, kind, ("jobs",), METHODS, chosen)
    with _naming_plugin(name):
        launcher: Launcher = kind(jobs, **chosen)
    check_made("launcher", name, launcher, METHODS)
    return launcher


def slots_of(name: str, launcher: Launcher, device: str) -> list[Slot]:
    """The launcher's slots for workers on `device`."""
    with _naming_plugin(name):
        return launcher.slots(device)


@contextmanager
def _naming_plugin(name: str) -> Iterator[None]:
    """Add the launcher's name to the traceback of a bug in a plugin."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, LabError) and name.partition(":")[0] not in LAUNCHERS:
            error.add_note(f"This is a bug in the launcher '{name}', named by --on.")
        raise
