"""Start a one-node Slurm cluster on this machine, with all its files in one folder."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
DAEMONS = ("munged", "slurmctld", "slurmd")
CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MinJobAge=600
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """The reason why no cluster can be started here, or "" if it can."""
    missing = [name for name in (*DAEMONS, "sbatch") if not shutil.which(name, path=PATH)]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)} missing; slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root"


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def cluster(folder: Path):
    """Start the daemons and give the environment in which Slurm's commands find them."""
    host = socket.gethostname().partition(".")[0]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 // 2
    settings = {"host": host, "folder": folder, "ports": free_ports(2), "cpus": os.cpu_count()}
    settings["memory"] = memory  # in MiB; half, as the node may not have less than it says
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**settings))
    # Snakemake's plugin drops SLURM_CONF before it starts a step of a job, since a cluster has its
    # configuration in /etc/slurm
    srun = f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n'
    (folder / "bin").mkdir()
    (folder / "bin" / "srun").write_text(srun)
    (folder / "bin" / "srun").chmod(0o755)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{folder}/bin:{PATH}",
    }
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munge += [f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid"]
    munge += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    commands = [munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", host]]
    started = []
    try:
        for command in commands:
            log = (folder / f"{command[0]}.out").open("w")
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        wait_until_idle(folder, environment)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=30)


def wait_until_idle(folder: Path, environment: dict[str, str]) -> None:
    """Wait until the node takes jobs; RuntimeError with the logs if it does not."""
    for _ in range(120):
        found = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], env=environment, capture_output=True, text=True
        )
        if found.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.out")))
    raise RuntimeError(f"the node is {found.stdout.strip() or 'not reached'}: {logs}")
