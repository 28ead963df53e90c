"""`trireme network`: hosts with slow lines between them, made up on this one. Label netns: root and /dev/net/tun."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from program import PROGRAM, TIMEOUT, ProgramTest, is_running

USER = 2  # exit code
DELAY = 0.02  # seconds, one way
RATE = 20e6  # bits per second
NUM_BYTES = 2_000_000
NETWORK = f"""
[network]
hosts = ["paris", "tokyo"]
[default]
rate = {RATE:.0f}
delay_ms = {DELAY * 1000:.0f}
queue_bytes = 16e6
"""
# Host 0 echoes bytes and then takes NUM_BYTES. Host 1 measures round trips and the whole, and how many packets TCP
# has sent again (tcp_info.tcpi_total_retrans).
PING = f"""
import json, socket, sys, time
index, first = int(sys.argv[1]), sys.argv[2]
if index == 0:
    with socket.create_server((first, 7000)) as server:
        peer, _ = server.accept()
        for _ in range(5):
            peer.sendall(peer.recv(1))
        left = {NUM_BYTES}
        while left:
            left -= len(peer.recv(1 << 16))
        peer.sendall(b"x")
        peer.recv(1)
    sys.exit()
while True:
    try:
        peer = socket.create_connection((first, 7000))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
trips = []
for _ in range(5):
    start = time.monotonic()
    peer.sendall(b"x")
    peer.recv(1)
    trips.append(time.monotonic() - start)
start = time.monotonic()
peer.sendall(bytes({NUM_BYTES}))
peer.recv(1)
seconds = time.monotonic() - start
again = int.from_bytes(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[100:], sys.byteorder)
print(json.dumps({{"trips": trips, "seconds": seconds, "again": again}}))
"""
# Sends datagrams to nobody.
DATAGRAMS = """
import socket, sys
if sys.argv[1] == "1":
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(300):
        sender.sendto(bytes(100), (sys.argv[2], 7000))
"""


def marked(process):
    """The processes of a network, alive or not yet collected by init."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or of another container
            continue
        if any(v.startswith(b"TRIREME_NETWORK=") and v.split(b"-")[1] == str(process.pid).encode() for v in variables):
            found.append(int(folder.name))
    return found


def is_used(namespace):
    """Whether any process is in a network namespace, by its link in /proc."""
    for path in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if os.readlink(path) == namespace:
                return True
        except OSError:  # gone, or of another container
            continue
    return False


class NetworkTest(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "wan.toml").write_text(NETWORK)

    def prepare(self):
        """No data."""

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def report_of(self, *command, network="wan.toml"):
        """The report, and what the commands have printed."""
        result = self.run_program("network", network, "--json", "--", *command)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return json.loads(result.stdout), result.stderr

    def links(self, report):
        return {(link["from"], link["to"]): link for link in report["links"]}


class Lines(NetworkTest):
    def test_round_trips_and_bytes(self):
        self.write("ping.py", PING)
        report, output = self.report_of("python3", "-B", "ping.py", "{index}", "{first}")
        measured = json.loads(output)
        for trip in measured["trips"]:
            self.assertGreaterEqual(trip, 2 * DELAY)
        self.assertGreaterEqual(measured["seconds"], 8 * NUM_BYTES / RATE + 2 * DELAY)
        there = self.links(report)["tokyo", "paris"]
        self.assertGreaterEqual(there["bytes"], NUM_BYTES)
        # Headers are 52 of 1,500 bytes.
        self.assertLessEqual(there["bytes"], 1.05 * NUM_BYTES + 1500 * measured["again"])
        self.assertGreaterEqual(there["packets"], NUM_BYTES / 1448)
        self.assertEqual((there["lost"], there["dropped"]), (0, 0))
        self.assertEqual([(host["name"], host["address"], host["exit_code"]) for host in report["hosts"]],
                         [("paris", "10.231.80.1", 0), ("tokyo", "10.231.80.2", 0)])

    def test_losses_are_those_of_the_seed(self):
        self.write("send.py", DATAGRAMS)
        self.write("lossy.toml", NETWORK + "loss = 0.3\n")
        counts = []
        for _ in range(2):
            report, _ = self.report_of("python3", "-B", "send.py", "{index}", "{first}", network="lossy.toml")
            there = self.links(report)["tokyo", "paris"]
            self.assertEqual(there["packets"], 300)
            counts.append(there["lost"])
        self.assertEqual(counts[0], counts[1])
        # 90 of 300; eight standard deviations are 63.
        self.assertGreater(counts[0], 27)
        self.assertLess(counts[0], 153)

    def test_a_host_without_a_line_cannot_be_reached(self):
        self.write("three.toml", """
            [network]
            hosts = ["paris", "lyon", "tokyo"]
            [[link]]
            between = ["paris", "lyon"]
            rate = 1e9
            """)
        self.write("send.py", DATAGRAMS)
        report, _ = self.report_of("python3", "-B", "send.py", "{index}", "10.231.80.3", network="three.toml")
        links = self.links(report)
        self.assertEqual(set(links), {("paris", "lyon"), ("lyon", "paris")})
        self.assertEqual(links["lyon", "paris"]["packets"], 0)

    def test_hosts_have_names_and_memory_of_their_own(self):
        script = "touch /dev/shm/{host}; echo $(hostname) {index}/{hosts} $(ls /dev/shm) $PET_NODE_RANK $PET_NNODES"
        result = self.succeed("network", "wan.toml", "--", "sh", "-c", script)
        lines = sorted(line for line in result.splitlines() if not line.startswith("network"))
        self.assertEqual(lines, ["paris 0/2 paris 0 2", "tokyo 1/2 tokyo 1 2"])
        self.assertIn("network paris to tokyo: ", result)

    def test_exit_code_of_the_first_that_fails(self):
        result = self.run_program("network", "wan.toml", "--", "sh", "-c",
                                  "test {index} = 1 && exit 7; while [ ! -e go ]; do sleep 0.01; done & exit 0")
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertIn("network tokyo (10.231.80.2): exit code 7", result.stdout)
        result = self.run_program("network", "wan.toml", "--", "sh", "-c", "test {index} = 0 || kill -9 $$")
        self.assertEqual(result.returncode, 128 + 9, result.stderr)
        self.assertIn("network tokyo (10.231.80.2): killed by signal 9", result.stdout)


class Training(ProgramTest):
    def test_run_on_two_hosts_is_that_on_one(self):
        (self.folder / "wan.toml").write_text(NETWORK)
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=3", "--output.folder=one")
        output = self.succeed("network", "wan.toml", "--", "trireme", "run", "--nproc-per-node", 1, "--log-dir",
                              "log-{host}", "--", "trireme", "train", "tiny.toml", "--train.steps=3",
                              "--output.folder=two")
        self.assertIn("2 hosts", output)
        self.assertEqual(self.curve("two"), self.curve("one"))


class Faults(NetworkTest):
    def test_delay_loss_and_partition_need_no_netem(self):
        faults = ["delay host=tokyo by 100ms for 300ms", "loss host=paris by 5% for 200ms after 500ms",
                  "partition host=tokyo for 200ms after 1s"]
        output = self.succeed("network", "wan.toml", "--", "trireme", "run", "--nproc-per-node", 1, "--log-dir",
                              "log-{host}", "--inject", "; ".join(faults), "--", "sleep", 3)
        for fault in faults:
            self.assertIn(f"inject  {fault}: changed trireme0\n", output)
            self.assertIn(f"inject  {fault}: is over\n", output)


class Endings(NetworkTest):
    # One process of each host leaves its group and session.
    SCRIPT = "readlink /proc/self/ns/net > space-{index}; setsid sleep 1000 & echo ready; sleep 1000"

    def start_network(self):
        """A network whose commands run, and its network namespaces."""
        process = self.start("network", "wan.toml", "--", "sh", "-c", self.SCRIPT)
        self.addCleanup(self.end_marked, process)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "ready\n")
        while len(marked(process)) < 6:  # the shell, and two that sleep, of each
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        return process, [(self.folder / f"space-{index}").read_text().strip() for index in range(2)]

    @staticmethod
    def end_marked(process):
        for pid in marked(process):
            os.kill(pid, signal.SIGKILL)

    def expect_nothing(self, process, spaces):
        self.assertEqual(marked(process), [])
        for space in spaces:
            self.assertFalse(is_used(space))

    def test_signals_end_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process, spaces = self.start_network()
            process.send_signal(number)
            output, errors = process.communicate(timeout=TIMEOUT)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertIn("network tokyo to paris: ", output)
            self.expect_nothing(process, spaces)

    def test_commands_that_ignore_the_signal_are_killed(self):
        process = self.start("network", "wan.toml", "--grace", 0.2, "--", "sh", "-c",
                             "trap '' TERM; echo ready; while true; do sleep 1; done")
        self.addCleanup(self.end_marked, process)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.expect_nothing(process, [])

    def test_a_killed_command_ends_with_what_it_started(self):
        process, spaces = self.start_network()
        shells = []
        while len(shells) != 2:  # until what a shell starts is no copy of it any more
            with contextlib.suppress(OSError):
                shells = [pid for pid in marked(process)
                          if b"readlink" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        for pid in shells:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)
        self.expect_nothing(process, spaces)

    def test_the_next_start_removes_what_a_killed_one_left(self):
        process, spaces = self.start_network()
        process.kill()
        process.wait()
        while len([pid for pid in marked(process) if is_running(pid)]) > 2:
            time.sleep(0.01)  # the kernel and the guard kill all but what has left its group
        result = self.run_program("network", "wan.toml", "--", "true")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("network removed 2 processes of an earlier network that was killed\n", result.stderr)
        self.expect_nothing(process, spaces)

    def test_two_networks_at_a_time(self):
        process, _ = self.start_network()
        self.write("ping.py", PING)
        self.report_of("python3", "-B", "ping.py", "{index}", "{first}")
        self.assertEqual(len(marked(process)), 6)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)


class Refusals(NetworkTest):
    def test_files(self):
        for text, expected in [
                ("[network]\nhosts = 3\n", ["bad.toml:2", "network.hosts is 3", "names of hosts"]),
                ("[network\n", ["bad.toml:1"]),
                (NETWORK.replace("delay_ms", "delay_m"), ["default.delay_m is not a key", 'did you mean "delay_ms"']),
                (NETWORK.replace("delay_ms = 20", "delay_ms = -1"), ["default.delay_ms is -1", "at least 0"]),
                (NETWORK.replace("rate = 20000000", "rate = 0"), ["default.rate is 0", "at least 1000"]),
                (NETWORK + '[[link]]\nbetween = ["paris", "toky"]\n', ['"toky"', 'did you mean "tokyo"']),
                (NETWORK + '[[link]]\nbetween = ["paris", "tokyo"]\n[[link]]\nbetween = ["tokyo", "paris"]\n',
                 ["bad.toml:11", "second link of tokyo and paris"]),
                (f"[network]\nhosts = {[f'h{i}' for i in range(65)]}\n", ["has 65 names", "2 to 64"])]:
            self.write("bad.toml", text)
            self.fail_with(USER, expected, "network", "bad.toml", "--", "true")
        self.fail_with(USER, ["missing.toml", "--example"], "network", "missing.toml", "--", "true")
        self.fail_with(USER, ["a network file is missing"], "network")
        self.fail_with(USER, ["a command is missing"], "network", "wan.toml")

    def test_the_example_is_a_network(self):
        self.write("example.toml", self.succeed("network", "--example"))
        output = self.succeed("network", "example.toml", "--", "true")
        self.assertEqual(output.count("0 packets, 0 B, 0 lost, 0 dropped"), 6)

    def refused(self, *prefix):
        result = subprocess.run([*prefix, PROGRAM, "network", "wan.toml", "--", "true"], cwd=self.folder, text=True,
                                capture_output=True, env=self.environment, timeout=TIMEOUT)
        self.assertEqual(result.returncode, USER, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Atrireme: [^\n]+\n\Z")
        return result.stderr

    def test_without_the_right_or_the_device(self):
        self.assertIn("expected root", self.refused("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"))
        self.assertIn("CAP_NET_ADMIN", self.refused("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"))
        hidden = 'mount -t tmpfs none /dev/net && exec "$@"'
        self.assertIn("cannot open /dev/net/tun", self.refused("unshare", "--mount", "sh", "-c", hidden, "sh"))


if __name__ == "__main__":
    unittest.main()
