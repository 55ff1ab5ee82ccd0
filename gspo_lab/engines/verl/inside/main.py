"""verl's trainer as a program that ends with the worker that started it, however that ends: `python -m` this module."""

import ctypes
import os
import signal
import sys

from verl.trainer.main_ppo import main

if __name__ == "__main__":
    parent = os.getppid()
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1  # prctl(2); Ray's processes follow their driver in the same way
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the worker is gone")
    main()
