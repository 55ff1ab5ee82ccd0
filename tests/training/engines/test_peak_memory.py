"""The estimate of a worker's memory against the memory that a worker needed.

Each worker is in a process of its own.

GSPO_LAB_SMOLLM2 names a folder of SmolLM2-135M-Instruct for the slow cases.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gspo_lab.common.plain_data import Strings
from gspo_lab.study import load_study
from gspo_lab.training.models.builtin_models import config
from gspo_lab.training.models.shapes import estimate, model_shape, shape_of

SMOLLM2 = os.environ.get("GSPO_LAB_SMOLLM2")
STUDY = """
question = "What does it need?"
model = "{model}"
device = "cpu"
seeds = 1
steps = 1
[task]
name = "addition"
digits = 2
[rollout]
prompts_per_step = 8
group_size = 8
max_tokens = 24
[update]
minibatches = 2
skip_zero_advantage = false
[arm.gspo]
objective = "gspo"
"""
TRAINED = """
import json, sys, tempfile
from pathlib import Path
from gspo_lab.training.engines.native.loop import train
from gspo_lab.recording.records import StepRecord
from gspo_lab.study import load_study

(run,) = load_study(Path(sys.argv[1]), overrides=sys.argv[2:]).runs()

class Peak:
    def write(self, records):
        for one in records:
            if isinstance(one, StepRecord):
                print(json.dumps(one.peak_memory_bytes))

with tempfile.TemporaryDirectory() as folder:
    train(run, Peak(), Path(folder), lambda: False)
"""
BFLOAT16 = ("update.dtype=bfloat16", "rollout.dtype=bfloat16")
CASES = [
    pytest.param("tiny-qwen3", (), 6, id="tiny"),
    *(
        pytest.param(
            SMOLLM2,
            overrides,
            48,
            id=name,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(SMOLLM2 is None, reason="GSPO_LAB_SMOLLM2 names no folder"),
            ],
        )
        for name, overrides in {
            "float32": (),
            "bfloat16": BFLOAT16,
            "lora": ("update.lora_rank=16",),
        }.items()
    ),
]


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="only Linux says what a process needed at most",
)
@pytest.mark.parametrize(("model", "overrides", "prompt"), CASES)
def test_the_estimate_is_within_15_percent(
    tmp_path: Path, model: str, overrides: Strings, prompt: int
) -> None:
    path = tmp_path / "peak.toml"
    path.write_text(STUDY.format(model=model))
    shape = model_shape(model) or shape_of(config(model).to_dict())
    settings = load_study(path, overrides=overrides).arms["gspo"].settings
    expected = estimate(
        shape, settings, prompt_tokens=prompt, response_tokens=24, on_gpu=False
    ).total
    process = subprocess.run(
        [sys.executable, "-c", TRAINED, str(path), *overrides],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    peak = json.loads(process.stdout.splitlines()[-1])
    assert expected == pytest.approx(peak, rel=0.15)
