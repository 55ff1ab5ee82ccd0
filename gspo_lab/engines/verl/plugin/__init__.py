"""What runs inside verl's own processes, in verl's environment, and nowhere else.

verl imports this package at the end of `import verl`, in each of its processes (VERL_USE_EXTERNAL_MODULES): on a
machine without GPUs it then knows a platform. verl's configuration names `recorded_losses`, `agent_loop` and
`ordered_batch`, and the processes that need them import them. `main` is the program that the lab starts.
"""

import os

if os.environ.get("VERL_PLATFORM") == "cpu":
    import gspo_lab.engines.verl.plugin.cpu_platform  # noqa: F401
