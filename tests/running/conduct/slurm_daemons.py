"""Slurm on this machine, as root and without systemd.

It has one node, munge, a controller and a daemon of the node.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from waiting import parent_of, until

CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={home}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={port1}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait=5
SlurmdTimeout=5
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
PartitionName=polite Nodes=ALL GraceTime=60 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=9 State=UP
"""

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch")


def missing() -> str | None:
    """Why there can be no Slurm here."""
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root"
    absent = [
        tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    return f"no {absent[0]} on the PATH: apt-get install slurm-wlm munge" if absent else None


class SlurmDaemons:
    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.conf = home / "slurm.conf"
        home.mkdir(exist_ok=True)
        home.chmod(0o755)
        (home / "state").mkdir()
        (home / "spool").mkdir()
        host = os.uname().nodename.partition(".")[0]
        self.conf.write_text(CONF.format(home=home, host=host, port=port, port1=port + 1))
        key = home / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        names = [
            f"--{text}={home}/munge.{text[:3]}" for text in ("seed-file", "log-file", "pid-file")
        ]
        munged = [
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={home}/munge.socket",
            *names,
        ]
        self._running = {"munged": self._start("munged", *munged)}
        until((home / "munge.socket").exists)
        self.whole()

    def whole(self) -> None:
        """Every daemon is there, and the node ready."""
        if "slurmctld" not in self._running:
            self.control()
        if "slurmd" not in self._running:
            self.node()
        until(
            lambda: (
                self.ask("sinfo", "--noheader", "--format=%T", "--partition=main")
                in ("idle", "mixed", "allocated")
            )
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf)}

    def control(self) -> None:
        self._running["slurmctld"] = self._start("slurmctld", "-D")

    def node(self) -> None:
        self._running["slurmd"] = self._start("slurmd", "-D")

    def lose_node(self, *workers: int) -> None:
        """Kill everything that dies with the machine.

        Its daemon, and of each worker the job's daemon, the keeper and the worker itself.
        """
        above = [[worker, keeper := parent_of(worker), parent_of(keeper)] for worker in workers]
        self.end("slurmd")
        for process in (entry for job in above for entry in reversed(job)):
            os.kill(process, signal.SIGKILL)

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True
        ).stdout.strip()

    def end(self, daemon: str) -> None:
        process = self._running.pop(daemon)
        if daemon == "slurmctld":
            process.terminate()  # killed, it would forget the jobs of its last seconds
        else:
            process.kill()
        process.wait()

    def close(self) -> None:
        for job in self.ask("squeue", "--noheader", "--format=%i").split():
            self.ask("scancel", "--signal=KILL", "--full", job)
            self.ask("scancel", job)
        give_up = time.monotonic() + 20
        while self.ask("squeue", "--noheader") and time.monotonic() < give_up:
            time.sleep(0.1)
        for daemon in ("slurmd", "slurmctld", "munged"):
            if daemon in self._running:
                self.end(daemon)

    def _start(self, *command: str) -> "subprocess.Popen[bytes]":
        program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None
        with (self.home / f"{command[0]}.out").open("ab") as out:
            environment = os.environ | self.environment
            return subprocess.Popen(
                [program, *command[1:]], env=environment, stdout=out, stderr=out, process_group=0
            )
