"""AReaL's training loop on a run that the lab wrote: `python -m` this module `--config FILE`.

The prompts are the lab's, in its order; the reward is the task's grader; what AReaL counts of a rollout batch is also
appended to `stats.jsonl` beside the configuration.
"""

import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from gspo_lab.engines.areal.prepare import DATA, RUN
from gspo_lab.files import read_json
from gspo_lab.study import Run
from gspo_lab.tasks import Task, build_task
from gspo_lab.tasks.base import Problem

HOME = "GSPO_LAB_AREAL"
"""Environment variable with the folder, for the processes that grade."""


@cache
def _task() -> Task:
    run = Run.from_json(read_json(Path(os.environ[HOME]) / RUN) or {})
    return build_task(run.settings.task.name, run.settings.task.options, Path(run.base))


def reward(prompt: str, completions: str, *_: Any, id: str, answer: str, messages: Any, **__: Any) -> float:
    """The task's grade of one answer; 0 where its grader fails."""
    grade = _task().grade(Problem(id, messages[0]["content"], answer), completions)
    return 0.0 if grade.reward is None else grade.reward


def main(words: list[str]) -> None:
    """Train what the configuration among the command line's words names."""
    from areal import PPOTrainer
    from areal.api.cli_args import GRPOConfig, load_expr_config
    from areal.utils.stats_logger import StatsLogger
    from datasets import Dataset

    home = Path(words[words.index("--config") + 1]).parent
    os.environ[HOME] = str(home)
    config, _ = load_expr_config(words, GRPOConfig)
    commit = StatsLogger.commit

    def told(logger: Any, epoch: int, step: int, global_step: int, data: Any) -> Any:
        with (home / "stats.jsonl").open("a") as file:
            line = {"step": global_step, "at": time.time(), "data": data}
            file.write(json.dumps(line, default=float) + "\n")
        return commit(logger, epoch, step, global_step, data)

    StatsLogger.commit = told
    rows = Dataset.from_list(json.loads((home / DATA).read_text()))
    asking = {
        "reward_fn": f"{__spec__.name}.reward",
        "gconfig": config.gconfig,
        "tokenizer": config.tokenizer_path,
        "enable_thinking": False,
    }
    with PPOTrainer(config, train_dataset=rows, valid_dataset=None) as trainer:
        trainer.train(workflow="areal.workflow.rlvr.RLVRWorkflow", workflow_kwargs=asking)


if __name__ == "__main__":
    main(sys.argv[1:])
