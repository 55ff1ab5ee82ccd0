"""Commands and options under their earlier names: accepted for one release, with one line of warning each."""

from collections.abc import Sequence

from gspo_lab.cli.shared_options import tell

COMMANDS = {"why": "diff", "grade": "regrade"}
_RUN = {"--yes": "--ignore-memory-check", "--reports": "--output-dir"}
OPTIONS = {
    "run": _RUN,
    "replicate": {**_RUN, "--another": "--new"},
    "advise": {"--yes": "--ignore-memory-check", "--share": "--clip-target"},
    "report": {"--to": "--output-dir", "--with": "--include"},
    "export": {"--to": "--output-dir"},
    "calibrate": {"--studies": "--simulations"},
    "certify": {"--regrade": "--regrade-sample"},
    "eval": {"--at-once": "--concurrency", "--plain": "--raw-prompts", "--key-env": "--api-key-env"},
    "import": {"--program": "--logged-by", "--score": "--score-metric", "--name": "--run-pattern"},
    "check": {"--write": "--write-config"},
}


def current_spelling(words: Sequence[str]) -> list[str]:
    """The words of a command line with each earlier name replaced by the present one."""
    if not words:
        return []
    command = COMMANDS.get(words[0], words[0])
    present = [command]
    for word in words[1:]:
        name, equals, value = word.partition("=")
        present.append(OPTIONS.get(command, {}).get(name, name) + equals + value)
    for before, now in zip(words, present, strict=True):
        if before != now:
            tell(f"{before.partition('=')[0]} is now {now.partition('=')[0]}; the old name will be removed")
    return present
