"""Two hosts, which this one pretends to be.

Each has a /dev/shm of its own, by which hosts are told apart; both share a network namespace with an interface that is
not the loopback, a folder, and this machine's processes. Label netns: root and `ip netns`.
"""
import os
import subprocess

from program import PROGRAM, ProgramTest, end

INTERFACE = "oar3"
ADDRESS = "10.231.79.1"


class TwoHostsTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.space = f"trireme-{os.getpid()}-hosts"
        self.ip("netns", "add", self.space)
        self.addCleanup(self.ip, "netns", "delete", self.space)
        self.ip("-n", self.space, "link", "add", INTERFACE, "type", "veth", "peer", "name", f"{INTERFACE}b")
        self.ip("-n", self.space, "address", "add", f"{ADDRESS}/24", "dev", INTERFACE)
        for link in ("lo", INTERFACE, f"{INTERFACE}b"):
            self.ip("-n", self.space, "link", "set", link, "up")

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def start_host(self, host, ranks, *arguments, memory=None):
        """`trireme train tiny.toml` on `ranks` ranks in a mount namespace of their own; each is a child of the
        returned process. memory: a tmpfs that is the host's /dev/shm, instead of one that ends with it."""
        first = host * ranks
        mount = f"--bind '{memory}'" if memory else "-t tmpfs -o size=256m tmpfs"
        script = f"""mount {mount} /dev/shm
        for local in $(seq 0 {ranks - 1}); do
          RANK=$(({first} + local)) LOCAL_RANK=$local "$@" &
        done
        wait"""
        environment = {**self.environment, "WORLD_SIZE": str(2 * ranks), "LOCAL_WORLD_SIZE": str(ranks),
                       "MASTER_ADDR": ADDRESS, "MASTER_PORT": "29511", "TRIREME_TOKEN": "three banks of oars"}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--mount", "sh", "-c", script, "sh", PROGRAM, "train",
             "tiny.toml", *arguments],
            cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(end, process)
        return process
