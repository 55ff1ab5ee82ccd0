"""What engines share whose training is another program in its own environment.

Begin with `engine.py`."""
