"""Evaluate models on benchmarks: while a run trains, and later its checkpoints."""

from gspo_lab.tasks.evaluation.run_benchmark import answer_record, evaluate

__all__ = ["answer_record", "evaluate"]
