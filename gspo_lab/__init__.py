"""gspo-lab: matched comparisons of GRPO and GSPO, with a verdict that a sceptic can trust."""

__version__ = "0.1.0"
