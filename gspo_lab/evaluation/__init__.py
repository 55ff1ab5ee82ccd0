"""Asking benchmarks: while a run trains, and afterwards of its checkpoints."""

from gspo_lab.evaluation.ask import answer_record, evaluate

__all__ = ["answer_record", "evaluate"]
