"""When a clip binds, written once: for tensors and numpy arrays alike. Shapes as in ratios.py."""

from gspo_lab.objectives.ratios import Array


def binds(ratio: Array, adv: Array, mask: Array, clip_low: Array, clip_high: Array) -> tuple[Array, Array]:
    """(low, high): where the clip takes the gradient, below the range with A < 0 and above it with A > 0.

    The range is two numbers, or two for each token. Nothing binds with A = 0 or off the mask, nor both at once.
    """
    return mask & (adv < 0) & (ratio < 1 - clip_low), mask & (adv > 0) & (ratio > 1 + clip_high)
