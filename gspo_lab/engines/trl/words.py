"""What the worker says to rank 0, beside reading its records."""

WRITTEN = "written"
"""The records of the last line are on the disk."""
STOP = "stop"
"""End after this step."""
