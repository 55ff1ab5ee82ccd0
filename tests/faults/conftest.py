"""A study that only counts, for each test."""

from counting import bench, starts  # noqa: F401
