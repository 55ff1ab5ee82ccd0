"""The smallest study that really trains, and the records of its runs.

Times and machines are left out.
"""

import hashlib
import json
from pathlib import Path

from counting import conducted

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import is_time
from gspo_lab.recording.runfolder import run_folders
from gspo_lab.study import load_study

TOML = """
question = "Does it matter who starts the workers?"
model = "tiny-qwen3"
device = "cpu"
steps = 3
seeds = [0]

[task]
name = "patient.py:grade"
problems = "train.jsonl"
held_out = "held-out.jsonl"
max_tokens = 8

[warm_start]
steps = 2
batch_size = 4

[rollout]
prompts_per_step = 4
group_size = 2

[update]
minibatches = 2
checkpoint_every = 1

[[bench]]
name = "sums"
task = {name = "patient.py:grade", problems = "train.jsonl", held_out = "held-out.jsonl", max_tokens = 8}
problems = 4

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""  # noqa: E501


GRADER = """
import os
import time
from pathlib import Path

HERE = Path(__file__).parent
graded = 0

def grade(problem, answer):
    global graded
    graded += problem.id.startswith("train")
    if graded == 9 and (HERE / "hold").exists():
        (HERE / f"held-{os.getpid()}").touch()
        while (HERE / "hold").exists():
            time.sleep(0.02)
    return float(sum(answer.encode()) % 3 == 0)
"""
"""A grader by chance that waits during the second step, of 8 responses each.

It waits for as long as there is a file `hold`.
"""


def tiny(folder: Path) -> Path:
    """The study, as a file."""
    (folder / "patient.py").write_text(GRADER)
    for name, initial, count in (("train", 0, 12), ("held-out", 12, 4)):
        sums = [
            {
                "id": f"{name}-{i}",
                "prompt": f"{i}+{i}=",
                "reference": "",
                "demonstration": str(2 * i),
            }
            for i in range(initial, initial + count)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, sums)))
    toml = folder / "tiny.toml"
    toml.write_text(TOML)
    return toml


def recorded(folder: Path, on: str) -> dict[str, list[JsonObject]]:
    """Train the study by this launcher, or resume it.

    By arm every record without its times, of the statuses the states, and the weights.
    """
    study = load_study(tiny(folder))
    runs = folder / on.partition(":")[0]
    result, output = conducted(study, runs, on=on)
    assert result.exit_code == 0, output
    out = {}
    for entry in run_folders(runs / "tiny"):
        (weights,) = entry.final.glob("*.safetensors")
        digest = {"kind": "weights", "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
        out[entry.path.parent.name] = [*(timeless(record) for record in entry.records()), digest]
    return out


TIMED = ("at", "facts", "journal")
"""Fields of a status that times and machines make: the last is a digest of lines that hold times.
"""


def timeless(record: JsonObject) -> JsonObject:
    """A record without what times and machines make."""
    return {key: value for key, value in record.items() if not is_time(key) and key not in TIMED}
