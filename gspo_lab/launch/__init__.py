"""The launch room: who starts workers, and where. A launcher is one file here and one line in this table."""

LAUNCHERS = {"local": "gspo_lab.launch.local:LocalPool"}
"""Name -> a class called as `(jobs)`: how many workers at once, None for as many as there are places."""
