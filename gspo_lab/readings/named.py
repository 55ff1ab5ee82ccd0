"""Readings that several pages show: one definition for each."""

from gspo_lab.readings.reading import Minibatch, Reading, Reduce, Steps, Window

LATER = Window(minibatch=Minibatch.LATER)

CLIP_EVERYWHERE = Reading("clip_fraction_tokens")
"""The share of response tokens that the clip binds, over all mini-batches."""
CLIP = Reading("clip_fraction_tokens", LATER)
"""The same of mini-batches >= 1: on the first one all ratios are 1. What a page calls "clipped" without more."""
CLIP_ACTIVE = Reading("clip_fraction_active_tokens", LATER)
"""The share of the tokens with an advantage, by which saturation is judged."""
WOULD_CLIP = {rule: Reading(f"would_clip_fraction_tokens_{rule}", LATER) for rule in ("grpo", "gspo")}
"""Per rule the share that it would have clipped on the same batches."""
CHANGE_LATER = Reading("expert_change", LATER)
"""The share of activated experts that the router would choose differently by now."""

REWARD = Reading("reward_mean", Window(Steps.ALL), Reduce.LAST_FIFTH)
"""The mean training reward over the last fifth of the steps."""
LATEST_REWARD = Reading("reward_mean", Window(Steps.ALL), Reduce.LATEST)
"""The mean training reward where a run stands."""
DEVICE_SECONDS = Reading("device_seconds_total", Window(Steps.LAST))
"""The seconds of all devices together up to a run's planned end."""
PEAK_MEMORY = Reading("peak_memory_bytes", Window(Steps.ALL), Reduce.LARGEST)
"""The peak memory of any step."""
