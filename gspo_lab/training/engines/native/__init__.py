"""The native engine: the only home of torch training code.

Its door imports none of it: checks look here.
"""

from pathlib import Path
from typing import ClassVar

from gspo_lab.common.registry import look_up
from gspo_lab.study import Run
from gspo_lab.training.engines.base import Capabilities, Sink, Stop
from gspo_lab.training.objectives import PRESETS, loss_of
from gspo_lab.training.objectives.ratios import RULES

LOOP = {"native": "gspo_lab.training.engines.native.loop:train"}


class NativeEngine:
    """Trains a transformers model in this process, on a CPU or one GPU.

    It can do all that a study can say.
    """

    capabilities = Capabilities()
    losses: ClassVar = {rule: loss_of(PRESETS[rule]) for rule in RULES}

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train the run in this process; whether it came to its end.

        LabError where a package is missing.
        """
        # By its name, so that a missing package is one line that says what to install.
        return bool(look_up("engine", "native", LOOP)(run, sink, folder, stop))
