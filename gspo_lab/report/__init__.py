"""The report room: findings into one HTML file, its numbers as JSON and its gist as Markdown."""

from gspo_lab.report.page import Report, render, write

__all__ = ["Report", "render", "write"]
