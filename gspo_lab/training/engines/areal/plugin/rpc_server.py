"""AReaL's RPC server, in which its scheduler has the actor, and beside it the rollouts' engine.

It is started by `python -m` this module, with the words of `areal.infra.rpc.rpc_server`. Every
update of the actor is recorded. The process and all that it has started end with AReaL's main
process, however that ends."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from areal.engine.fsdp_engine import FSDPPPOActor
from areal.infra.platforms import current_platform
from areal.infra.rpc import rpc_server
from areal.infra.utils.proc import kill_process_tree

from gspo_lab.training.engines.areal import MAIN
from gspo_lab.training.engines.areal.plugin.actor_recorder import one_response_a_row, watch
from gspo_lab.training.engines.external.attempt import UPDATES, current

LOOK_SECONDS = 0.5


def end_with(process: int) -> None:
    """Wait until the process has ended; then end this one, with whatever it has started."""
    with suppress(OSError):
        while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(LOOK_SECONDS)
    kill_process_tree(os.getpid(), graceful=False, include_parent=True)


def main() -> None:
    """Serve until the main process has gone."""
    threading.Thread(target=end_with, args=(int(os.environ[MAIN]),), daemon=True).start()
    attempt = current()
    first_update = attempt.first_step * attempt.run.settings.update.per_rollout_batch
    initialize = FSDPPPOActor.initialize

    def watched(actor: FSDPPPOActor, *args: Any, **kwargs: Any) -> None:
        initialize(actor, *args, **kwargs)
        if current_platform.device_type == "cpu":
            one_response_a_row(actor.config.mb_spec.max_tokens_per_mb)
        watch(actor, attempt.run, attempt.path / UPDATES, first_update)

    FSDPPPOActor.initialize = watched
    rpc_server.main()


if __name__ == "__main__":
    main()
