"""The C library's heap, where a model is so large that what it keeps for itself counts."""

import ctypes

M_MMAP_THRESHOLD = -3
"""mallopt(3): from this size on a piece of memory is mapped for itself, and goes back to the system when freed."""

PIECE = 2**20
"""Bytes. Of its own accord glibc raises the threshold to the largest piece that was freed, up to 32 MiB, and keeps
what is smaller: 0.2 to 0.3 GB of activations and logits, in every peak that follows (docs/results/performance.md)."""


def give_back_what_is_freed() -> None:
    """From now on, in this process; other C libraries than glibc do as they do."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, PIECE)
