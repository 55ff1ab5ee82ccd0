"""The report: what was found in a study as one HTML page, its numbers as JSON, its gist as
Markdown."""

from gspo_lab.report.page import Report, render, render_models, write

__all__ = ["Report", "render", "render_models", "write"]
