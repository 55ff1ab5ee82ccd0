"""Values that the papers give for what a figure shows, to be drawn into it; `claims/library.toml` has their sources."""

from gspo_lab.report.chart import Reference

CLIPPED = (Reference(0.15, "paper, GSPO: 15 %"), Reference(0.0013, "paper, GRPO: 0.13 %"))
CLIPPED_ABOUT = "Dotted: the GSPO paper's values, read off a bar chart (2507.18071, sec. 5.2: 30B-A3B, 4 mini-batches)."
"""Of all response tokens (claim C04)."""

EXPERT_CHANGE = (Reference(0.10, "paper: about 10 %"),)
EXPERT_CHANGE_ABOUT = "Dotted: the GSPO paper's value after one update (2507.18071, sec. 5.3: 30B-A3B, 48 layers)."
"""Claim C09."""

CURVES = (
    "In the paper (2507.18071, Fig. 1: 30B-A3B, one run per arm) GSPO learns more than GRPO with routing replay from "
    "equal compute; it gives no end figures."
)
"""What is published of the reward against compute (claim C14)."""
