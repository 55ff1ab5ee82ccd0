"""What runs inside verl's own processes. verl imports this package in each of them
(VERL_USE_EXTERNAL_MODULES); the modules are named by its configuration, and `main` is the program
that the lab starts."""

import os

if os.environ.get("VERL_PLATFORM") == "cpu":
    import gspo_lab.training.engines.verl.plugin.cpu_platform  # noqa: F401
