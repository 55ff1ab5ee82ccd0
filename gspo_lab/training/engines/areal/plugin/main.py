"""AReaL's training loop on a run that the lab wrote: `python -m` this module `--config FILE`, in
AReaL's environment.

The prompts are the lab's, in its order; answers are graded by the task. What AReaL counts of a
rollout batch is also appended to the attempt's log.
"""

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from areal import PPOTrainer
from areal.api.cli_args import GRPOConfig, load_expr_config
from areal.trainer import rl_trainer
from areal.utils.recover import RecoverHandler
from areal.utils.stats_logger import StatsLogger
from datasets import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from gspo_lab.training.engines.areal import DATA, MAIN, PLUGIN, SAVING
from gspo_lab.training.engines.external.attempt import LOG, WORKER, current, end_with_parent
from gspo_lab.training.engines.external.records import append

START_SECONDS = 600.0
"""For which AReaL's local scheduler waits for a process to begin; its own 30 are few on a busy
machine.
"""


def main(words: Sequence[str]) -> None:
    """Train what the configuration among the command line's words names."""
    attempt = current()
    os.environ[MAIN] = str(os.getpid())
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )
    config, _ = load_expr_config(list(words), GRPOConfig)
    commit = StatsLogger.commit
    dump = RecoverHandler.dump
    saving = Path(config.cluster.fileroot) / SAVING

    def recorded(logger: Any, epoch: int, step: int, global_step: int, data: Any) -> Any:
        append(
            attempt.path / LOG, json.dumps({"step": global_step + 1, "data": data}, default=float)
        )
        if WORKER in os.environ:  # or else it was started by hand
            # the lab has recorded the step, and evaluated its model where a benchmark is due
            sys.stdin.readline()
        return commit(logger, epoch, step, global_step, data)

    def marked(*args: Any, **kwargs: Any) -> None:
        saving.touch()  # AReaL writes each checkpoint over the one before
        dump(*args, **kwargs)
        saving.unlink()

    plain = PPOTrainer._init_rollout

    def without_validation(trainer: PPOTrainer, *args: Any, is_eval: bool, **kwargs: Any) -> Any:
        return None if is_eval else plain(trainer, *args, is_eval=is_eval, **kwargs)

    StatsLogger.commit = recorded
    RecoverHandler.dump = marked
    PPOTrainer._init_rollout = (
        without_validation  # for which there is nothing to be asked, and a process less
    )
    rl_trainer.LocalScheduler = partial(rl_trainer.LocalScheduler, startup_timeout=START_SECONDS)
    # AReaL's checkpoint skips the prompts that it had read ahead: here those of the first step to
    # be made come first.
    StatefulDataLoader.load_state_dict = lambda *_: None
    prompts = json.loads((attempt.path / DATA).read_text())
    begin = attempt.first_step * config.train_dataset.batch_size
    rows = Dataset.from_list(prompts[begin:] + prompts[:begin])
    workflow_kwargs = {"gconfig": config.gconfig, "tokenizer": config.tokenizer_path}
    with PPOTrainer(config, train_dataset=rows, valid_dataset=None) as trainer:
        trainer.train(
            workflow=f"{PLUGIN}.rollout_workflow.LabWorkflow", workflow_kwargs=workflow_kwargs
        )


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1:])
