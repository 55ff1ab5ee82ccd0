"""verl's trainer as a program that ends with the worker that started it, as Ray's processes end
with their driver: `python -m` this module."""

from typing import Any

import ray
from verl.trainer.main_ppo import main

from gspo_lab.training.engines.external.attempt import end_with_parent

TRIES = 5
"""Ray gives its first node 30 seconds, which are few on a busy machine."""


def init_with_retries(*args: Any, **kwargs: Any) -> Any:
    """As ray.init, begun again where Ray's own patience ends."""
    for _ in range(TRIES - 1):
        try:
            return init(*args, **kwargs)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return init(*args, **kwargs)


if __name__ == "__main__":
    end_with_parent()
    init = ray.init
    ray.init = init_with_retries
    main()
