"""verl's replay buffer in the order of asking; by itself it hands on responses as they are
finished.
"""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class OrderedReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """Prompts as the data has them, each one's responses side by side: the lab's mini-batches."""

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], *args: Any
    ) -> Any:
        place_of = {uid: place for place, uid in enumerate(self.prompt_global_steps[partition_id])}
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, *args)

        def position(index: int) -> tuple[int, int, int]:
            uid, sample, part = batch.keys[index].rsplit("_", 2)
            return place_of[uid], int(sample), int(part)

        batch.reorder(sorted(range(len(batch.keys)), key=position))
        return batch
