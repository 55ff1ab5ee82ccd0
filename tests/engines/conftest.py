import json
from pathlib import Path

import pytest
from lottery import GRADER, STUDY, MakeRun

from gspo_lab.study import Run, load_study


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run("gspo", "model=tiny-qwen3-moe")`: that arm's run, with settings overridden."""
    (tmp_path / "lottery.py").write_text(GRADER)
    prompts = [{"prompt": "?" * (1 + i % 5) + chr(97 + i), "reference": ""} for i in range(24)]
    (tmp_path / "problems.jsonl").write_text("\n".join(json.dumps(p) for p in prompts))
    (tmp_path / "study.toml").write_text(STUDY)

    def make(arm: str = "gspo", *overrides: str, seed: int = 0) -> Run:
        runs = load_study(tmp_path / "study.toml", overrides=overrides, seeds=[seed]).runs()
        return next(run for run in runs if run.arm == arm)

    return make
