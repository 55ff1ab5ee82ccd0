"""Ray, where there is none: refused in one line and at once."""

import socket
from importlib.util import find_spec
from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.running.launch import make_launcher
from gspo_lab.running.launch.ray import probe_recorded

installed = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: pip install 'gspo-lab[ray]'"
)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_the_package_the_extra_is_named() -> None:
    with lab_error(r"--on ray needs the package ray: pip install 'gspo-lab\[ray\]'"):
        make_launcher("ray").slots("cpu")


@installed
def test_an_address_that_is_none_or_closed_is_refused_at_once() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = "{}:{}".format(*used.getsockname())
        with lab_error(f"nobody listens at {address}: start Ray there"):
            make_launcher(f"ray:{address}").slots("cpu")
    for address in ("ray://127.0.0.1:10001", "127.0.0.1", "here:there"):
        with lab_error("is HOST:PORT, that of its head"):
            make_launcher(f"ray:{address}").slots("cpu")


def test_the_address_of_a_cluster_that_has_gone_is_named(tmp_path: Path) -> None:
    """Ray's own file outlives its cluster, and Ray would wait for that in silence."""
    recorded = tmp_path / "ray_current_cluster"
    probe_recorded(recorded)
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*used.getsockname())
        recorded.write_text(f"{address}\n")
        with lab_error(f"nobody listens at {address}, which {recorded} names: delete that file"):
            probe_recorded(recorded)
        used.listen()
        probe_recorded(recorded)


@installed
def test_no_cluster_on_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if any(
        "gcs_server" in process.read_text(errors="replace")
        for process in Path("/proc").glob("[0-9]*/comm")
    ):
        pytest.skip("a Ray cluster runs on this machine")
    with lab_error("--on ray: no Ray cluster runs on this machine: start one"):
        make_launcher("ray").slots("cpu")
