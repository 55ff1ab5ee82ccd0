"""Sessions: `nox` runs tests, lint and types; `nox -s slow` the tests that take minutes; `nox -s study` a study."""

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "tests"]


@nox.session
def tests(session: nox.Session) -> None:
    """All but the slow tests, on two processes."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", "-n", "2", "-m", "not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take minutes: whole studies, the README's blocks."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", "-m", "slow", *session.posargs)


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
def study(session: nox.Session) -> None:
    """The README's main job, whole."""
    session.install("-c", "constraints.txt", "-e", ".[train]")
    session.run("gspo-lab", "run", "studies/moe_stability.toml", *session.posargs)
