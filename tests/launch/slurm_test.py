#!/usr/bin/env python3
"""A real Slurm of three hosts, all on this one: what processes of its jobs read, and the batch file that we write.

TRIREME_JOB_TOOL: jobs/job_tool.cc. Needs Debian's slurm-wlm and munge (tools/setup.sh clusters).
"""

import json
import os
import pwd
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TOOL = os.path.abspath(os.environ["TRIREME_JOB_TOOL"])
TIMEOUT = 120  # seconds; only a hang reaches it

CONFIG = """ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# The agent of a batch file: says where it is, waits for the notice, and ends as one that has saved the run.
PROGRAM = """#!/bin/bash
{tool} hosts >>"$0.hosts" || exit 2
printf '%s\\n' "$@" >"$0.arguments"
trap 'echo "$SLURM_NODEID" >>"$0.noticed"; exit 0' USR1
echo "$SLURM_NODEID" >>"$0.ready"
for ((i = 0; i < 1200; ++i)); do sleep 0.1; done
exit 1
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(condition, what):
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"no {what} in {TIMEOUT} s")


class Slurm(unittest.TestCase):
    daemons = []

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trireme-slurm-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.folder.chmod(0o755)  # munged insists on it
        ports = free_ports(4)
        nodes = "\n".join(f"NodeName=node{i:02} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[i]} CPUs=2 "
                          "Gres=gpu:1 State=UNKNOWN" for i in (1, 2, 3))
        for name in ("state", "spool.node01", "spool.node02", "spool.node03"):
            (cls.folder / name).mkdir()
        (cls.folder / "slurm.conf").write_text(CONFIG.format(controller=ports[0], folder=cls.folder, nodes=nodes,
                                                             user=pwd.getpwuid(os.getuid()).pw_name))
        (cls.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        (cls.folder / "munge.key").touch(mode=0o600)
        (cls.folder / "munge.key").write_bytes(os.urandom(128))
        cls.environment = {key: value for key, value in os.environ.items()
                           if not key.startswith(("SLURM_", "SBATCH_", "PMI"))}
        cls.environment["SLURM_CONF"] = f"{cls.folder}/slurm.conf"
        cls.addClassCleanup(cls.stop)
        munge = [f"--{name}-file={cls.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        cls.start("munged", "--foreground", "--force", f"--socket={cls.folder}/munge.sock", *munge)
        wait_for((cls.folder / "munge.sock").exists, "socket of munged")
        cls.start("slurmctld", "-D")
        for i in (1, 2, 3):
            cls.start("slurmd", "-D", "-N", f"node{i:02}")
        wait_for(lambda: cls.run_command("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "3", "idle hosts")

    @classmethod
    def start(cls, *command):
        log = open(cls.folder / f"{command[0]}{len(cls.daemons)}.log", "w")
        with log:
            cls.daemons.append(subprocess.Popen(command, env=cls.environment, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=subprocess.STDOUT))

    @classmethod
    def stop(cls):
        cls.run_command("scancel", "--partition=all")
        try:
            wait_for(lambda: not cls.run_command("squeue", "-h").stdout.strip(), "empty queue")
        finally:
            for daemon in reversed(cls.daemons):
                daemon.terminate()
            for daemon in cls.daemons:
                daemon.wait(timeout=TIMEOUT)

    @classmethod
    def run_command(cls, *command, **more):
        return subprocess.run(command, env=cls.environment, cwd=cls.folder, capture_output=True, text=True,
                              timeout=TIMEOUT, **more)

    def emit(self, *settings, overrides=()):
        result = self.run_command(TOOL, "emit", "slurm", *settings, "--", *overrides)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_every_agent_of_a_step_reads_its_place(self):
        result = self.run_command("srun", "-Q", "-N3", "--ntasks-per-node=1", TOOL, "hosts")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        agents = sorted(map(json.loads, result.stdout.splitlines()), key=lambda agent: agent["node_rank"])
        self.assertEqual([agent.pop("node_rank") for agent in agents], [0, 1, 2])
        self.assertEqual([host["name"] for host in agents[0]["hosts"]], ["node01", "node02", "node03"])
        self.assertEqual(agents[0]["head"], "node01")
        self.assertEqual(agents, agents[:1] * 3)

    def test_a_step_on_part_of_the_job_has_its_own_hosts(self):
        command = f"srun -N2 -r1 -n2 --ntasks-per-node=1 {shlex.quote(TOOL)} hosts"
        result = self.run_command("salloc", "-Q", "-N3", "--ntasks-per-node=1", "bash", "-c", command)
        self.assertEqual(result.returncode, 0, result.stderr)
        agents = list(map(json.loads, result.stdout.splitlines()))
        self.assertEqual({agent["node_rank"] for agent in agents}, {0, 1})
        for agent in agents:
            self.assertEqual([host["name"] for host in agent["hosts"]], ["node02", "node03"])

    def test_several_agents_on_a_host_are_refused(self):
        result = self.run_command("srun", "-N2", "--ntasks-per-node=2", TOOL, "hosts")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn('SLURM_STEP_TASKS_PER_NODE is "2(x2)"; expected one agent on each of 2 hosts', result.stderr)

    def test_a_batch_script_and_an_allocation_are_no_agents(self):
        result = self.run_command("sbatch", "--wait", "-N2", "-o", "batch.out", input=f"#!/bin/sh\n{shlex.quote(TOOL)} hosts\n")
        self.assertEqual(result.returncode, 2, result.stderr)
        expected = 'SLURM_JOB_NODELIST is "node[01-02]", 2 hosts, and no step of srun started this process'
        self.assertIn(expected, (self.folder / "batch.out").read_text())
        result = self.run_command("salloc", "-Q", "-N2", TOOL, "hosts")
        self.assertEqual(result.returncode, 2)
        self.assertIn(expected, result.stderr)

    def test_a_batch_script_on_one_host_is_the_only_agent(self):
        result = self.run_command("sbatch", "--wait", "-N1", "-o", "one.out", input=f"#!/bin/sh\n{shlex.quote(TOOL)} hosts\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(json.loads((self.folder / "one.out").read_text())["hosts"]), 1)

    def test_sbatch_accepts_the_batch_file(self):
        for settings in ([], ["nnodes=3", "min_nnodes=2", "time=3600", "cpus=2", "gpus=1", "partition=all"]):
            result = self.run_command("sbatch", "--test-only", input=self.emit(*settings))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stderr, "Job [0-9]+ to start at")
        # Of two to three hosts, as many as are idle.
        for settings in (["cpus=2"], ["cpus=1"], []):
            result = self.run_command("sbatch", "--test-only", input=self.emit("nnodes=3", "min_nnodes=2", *settings))
            self.assertRegex(result.stderr, r"on nodes node\[01-03\] ", settings)
        for settings in (["nnodes=4"], ["partition=other"]):  # the test can fail
            self.assertNotEqual(self.run_command("sbatch", "--test-only", input=self.emit(*settings)).returncode, 0)

    def test_after_the_notice_the_job_is_queued_again(self):
        # No blank in the name itself: proctrack/linuxproc would lose the process, and with it the signal.
        (self.folder / "it's $here").mkdir()
        program = self.folder / "it's $here" / "trireme"
        program.write_text(PROGRAM.format(tool=shlex.quote(TOOL)))
        program.chmod(0o755)
        (self.folder / "token").write_text("0123456789abcdef")
        ready, noticed = Path(f"{program}.ready"), Path(f"{program}.noticed")
        text = self.emit("nnodes=3", "nproc=2", f"program={program}", "name=galley", overrides=["$HOME x"])
        result = self.run_command("sbatch", "-o", "galley.out",
                                  f"--export=ALL,TRIREME_TOKEN_FILE={self.folder}/token", input=text)
        self.assertEqual(result.returncode, 0, result.stderr)
        job = re.search(r"\d+", result.stdout).group()
        wait_for(lambda: ready.exists() and len(ready.read_text().split()) == 3, "agents")
        self.assertEqual(Path(f"{program}.arguments").read_text().splitlines(),
                         ["run", "--nproc-per-node", "2", "--", str(program), "train", "run.toml", "$HOME x"])
        agents = list(map(json.loads, Path(f"{program}.hosts").read_text().splitlines()))
        self.assertEqual({agent["node_rank"] for agent in agents}, {0, 1, 2})
        # As Slurm does before the limit.
        self.run_command("scancel", "--signal=USR1", "--batch", job)

        def is_queued_again():
            shown = self.run_command("scontrol", "show", "job", job).stdout
            return "JobState=PENDING" in shown and "Restarts=1" in shown

        wait_for(is_queued_again, "second place in the queue")
        self.assertEqual(sorted(noticed.read_text().split()), ["0", "1", "2"])


if __name__ == "__main__":
    sys.exit(unittest.main())
