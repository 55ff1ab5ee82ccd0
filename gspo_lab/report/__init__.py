"""The report room: evidence into one HTML file, its numbers as JSON and its gist as Markdown."""

from gspo_lab.report.files import write
from gspo_lab.report.page import Report, Source, render, render_all

__all__ = ["Report", "Source", "render", "render_all", "write"]
