#!/usr/bin/env python3
"""A real mpirun that starts an agent on each of two hosts, namespaces of this one with names of their own.

TRIREME_JOB_TOOL: jobs/job_tool.cc. Needs root, for the namespaces.
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = os.path.abspath(os.environ["TRIREME_JOB_TOOL"])
TIMEOUT = 120  # seconds; only a hang reaches it

# In place of ssh: ssh [OPTIONS] HOST WORDS.
REMOTE_SHELL = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
exec unshare --uts bash -c 'hostname "$1"; shift; exec bash -c "$*"' _ "$host" "$@"
"""


class Mpirun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trireme-mpirun-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shell = self.folder / "remote_shell"
        shell.write_text(REMOTE_SHELL)
        shell.chmod(0o755)
        # Names that this host resolves without a name server.
        (self.folder / "hosts").write_text("127.0.0.2 slots=4\n127.0.0.3 slots=4\n")

    def mpirun(self, *options, **variables):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder), **variables}
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        command = ["mpirun", "--mca", "plm_rsh_agent", f"{self.folder}/remote_shell", *options, TOOL, "hosts"]
        result = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True,
                                timeout=TIMEOUT)
        agents = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        return result, sorted(agents, key=lambda agent: agent["node_rank"])

    def test_agents_read_the_default_hostfile(self):
        result, agents = self.mpirun("--default-hostfile", "hosts", "--map-by", "ppr:1:node")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([agent.pop("node_rank") for agent in agents], [0, 1])
        self.assertEqual(agents[0]["hosts"], [{"name": "127.0.0.2", "slots": 4}, {"name": "127.0.0.3", "slots": 4}])
        self.assertEqual(agents[0], agents[1])

    def test_agents_are_told_the_first_host(self):
        result, agents = self.mpirun("--hostfile", "hosts", "--map-by", "ppr:1:node", "-x", "MASTER_ADDR",
                                     MASTER_ADDR="127.0.0.2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([(agent["node_rank"], agent["head"]) for agent in agents], [(0, "127.0.0.2"), (1, "127.0.0.2")])
        result, agents = self.mpirun("--hostfile", "hosts", "--map-by", "ppr:1:node")
        self.assertEqual((result.returncode, agents), (2, []))
        self.assertIn("OMPI_COMM_WORLD_SIZE is 2 and no variable lists the hosts; name the first host", result.stderr)

    def test_several_agents_on_a_host_are_refused(self):
        result, agents = self.mpirun("--default-hostfile", "hosts", "--map-by", "ppr:2:node")
        self.assertEqual((result.returncode, agents), (2, []))
        self.assertIn("OMPI_COMM_WORLD_LOCAL_SIZE is 2; expected one agent per host", result.stderr)


if __name__ == "__main__":
    unittest.main()
