"""The launch room: who starts workers, and where. A launcher is one file here and one line in this table."""

LAUNCHERS = {"local": "gspo_lab.launch.local:LocalPool"}
