"""Built-in models of two layers, which runs take as their warm start.

They train in half the time.
"""

import tempfile
from functools import cache
from pathlib import Path

from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.models.check import EMBEDDED
from gspo_lab.training.models.load import silence_transformers

MODELS = tempfile.TemporaryDirectory(prefix="gspo-lab-tests-")


@cache
def small_start(name: str) -> Path | None:
    """A folder like that of a warm start: the embedded model at two layers of width 64.

    None for any other model.
    """
    if name not in EMBEDDED:
        return None
    folder = Path(MODELS.name) / name
    with silence_transformers():  # of this seed some updates of two steps clip under either rule
        build(name, 11, {"layers": 2, "width": 64}).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
