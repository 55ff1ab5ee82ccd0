"""The launch room: who starts workers, and where. A launcher is one file here that does what `base` asks."""
