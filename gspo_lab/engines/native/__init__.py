"""The native engine: the only home of torch training code."""

from gspo_lab.engines.native.loop import NativeEngine

__all__ = ["NativeEngine"]
