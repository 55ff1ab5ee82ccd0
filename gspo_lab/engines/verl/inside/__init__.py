"""What runs inside verl's own processes, in verl's environment, and nowhere else.

verl imports this package at the end of `import verl`, in each of its processes (VERL_USE_EXTERNAL_MODULES): on a
machine without GPUs it then knows a platform. `policy`, with the lab's losses and engines, `asking` and `order` are
named in its configuration and imported by those who need them; `main` is the program that the lab starts.
"""

import os

if os.environ.get("VERL_PLATFORM") == "cpu":
    import gspo_lab.engines.verl.inside.platform  # noqa: F401
