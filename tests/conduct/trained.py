"""The smallest study that really trains, and what its runs have recorded but for times and machines."""

from pathlib import Path
from typing import Any

from counting import conducted

from gspo_lab.records import is_time
from gspo_lab.runfolder import run_folders
from gspo_lab.study import load_study

TOML = """
question = "Does it matter who starts the workers?"
model = "tiny-qwen3"
task = "addition"
device = "cpu"
steps = 2
seeds = [0]

[warm_start]
steps = 2
batch_size = 4

[rollout]
prompts_per_step = 4
group_size = 2
max_tokens = 8

[update]
minibatches = 2
checkpoint_every = 1

[[bench]]
name = "addition"
problems = 4

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""


def recorded(folder: Path, on: str) -> dict[str, list[dict[str, Any]]]:
    """Train it by this launcher; by arm every record without its times, and of the statuses the states."""
    toml = folder / "tiny.toml"
    toml.write_text(TOML)
    study, runs = load_study(toml), folder / on.partition(":")[0]
    found, shown = conducted(study, runs, on=on)
    assert found.exit_code == 0, shown
    return {one.path.parent.name: [timeless(record) for record in one.records()] for one in run_folders(runs / "tiny")}


TIMED = ("at", "facts", "journal")
"""Fields of a status that times and machines make: the last is a digest of lines that hold times."""


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what times and machines make."""
    return {key: value for key, value in record.items() if not is_time(key) and key not in TIMED}
