#!/usr/bin/env python3
"""torchrun on two hosts: unmodified programs give the bits that they give on one.

The hosts are network namespaces joined by a veth pair, each with a /dev/shm of its own (label netns:
root and iproute2 are needed).
"""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

import programs_test

ADDRESS = "10.231.78.1"  # of the first host
PORT = 29511
INTERFACE = "oar1"
LIMIT = 240  # seconds for one job


def exchange_in_groups(rank):
    """Groups within a host and across both, of all sizes, and messages between any two ranks."""
    world = dist.get_world_size()
    seen = []
    for members in ([0, 1], [world - 2, world - 1], [0, world - 1], [1, 2, 3], list(range(world))):
        group = dist.new_group(members)
        if rank in members:
            total = torch.full((1001,), float(rank + 1))
            dist.all_reduce(total, group=group)
            parts = [torch.empty(3) for _ in members]
            dist.all_gather(parts, torch.full((3,), float(rank)), group=group)
            assert [int(part[0]) for part in parts] == members
            seen.append(total[0].item())
    received = torch.empty(5, dtype=torch.int64)
    pending = dist.isend(torch.full((5,), rank), (rank + 1) % world)
    dist.recv(received, (rank - 1) % world)
    pending.wait()
    return seen + received.tolist()


PROGRAMS = (programs_test.ddp, programs_test.ddp_uneven_inputs, programs_test.fsdp2, programs_test.fsdp2_bf16,
            programs_test.fsdp2_hybrid, programs_test.tensor_parallel_of_fsdp2,
            programs_test.dtensor_redistribution, exchange_in_groups)


def work(folder):
    """What torchrun starts: every program, its results in a file of the rank's."""
    import trireme_torch  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group("trireme")
    rank = dist.get_rank()
    results = {program.__name__: program(rank) for program in PROGRAMS}
    dist.destroy_process_group()
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(results, file)


def lose_a_rank(folder):
    """The last rank dies; the others say what they were told."""
    import trireme_torch  # noqa: F401
    dist.init_process_group("trireme")
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(10))
        error = "none"
    except dist.DistBackendError as caught:
        error = str(caught)
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(error, file)


def miss_a_barrier(folder):
    """The last rank stays away from the second monitored barrier; the others say what they were told."""
    import trireme_torch
    dist.init_process_group("trireme")
    rank, world = dist.get_rank(), dist.get_world_size()
    trireme_torch.monitored_barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank < world - 1:
        try:
            trireme_torch.monitored_barrier(timeout=datetime.timedelta(seconds=1 if rank == 0 else 60))
            error = "none"
        except dist.DistBackendError as caught:
            error = str(caught)
        with open(os.path.join(folder, f"{rank}.json"), "w") as file:
            json.dump(error, file)
    else:
        while store.add("told", 0) < world - 1:
            time.sleep(0.01)
    store.add("told", 1)
    while rank == 0 and store.add("told", 0) < world:  # its process is the store's
        time.sleep(0.01)


class Hosts:
    """Two namespaces, gone at the end; the first has ADDRESS."""

    def __enter__(self):
        self.spaces = [f"trireme-{os.getpid()}-py{host}" for host in (0, 1)]
        for space in self.spaces:
            self.ip("netns", "add", space)
        self.ip("-n", self.spaces[0], "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE,
                "netns", self.spaces[1])
        for host, space in enumerate(self.spaces):
            self.ip("-n", space, "link", "set", "lo", "up")
            self.ip("-n", space, "address", "add", f"10.231.78.{host + 1}/24", "dev", INTERFACE)
            self.ip("-n", space, "link", "set", INTERFACE, "up")
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            self.ip("netns", "delete", space)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def torchrun(self, ranks_of, mode, folder):
        """Exit codes of torchrun on each host that has ranks."""
        hosts = [host for host, ranks in enumerate(ranks_of) if ranks > 0]
        return self.execute(folder, {
            host: [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(hosts)), "--node-rank", str(node),
                   "--nproc-per-node", str(ranks_of[host]), "--master-addr", ADDRESS, "--master-port", str(PORT),
                   os.path.abspath(__file__), mode, folder]
            for node, host in enumerate(hosts)})

    def plain(self, ranks_of, mode, folder):
        """The same without a launcher that ends a host's ranks when one of them dies: it is this script again."""
        return self.execute(folder, {
            host: [sys.executable, os.path.abspath(__file__), "start", mode, folder, str(sum(ranks_of[:host])),
                   str(ranks), str(sum(ranks_of))]
            for host, ranks in enumerate(ranks_of)})

    def execute(self, folder, commands):
        nodes = []
        for host, command in commands.items():
            within = ["ip", "netns", "exec", self.spaces[host], "unshare", "--mount", "sh", "-c",
                      'mount -t tmpfs -o size=256m tmpfs /dev/shm && exec "$@"', "sh", *command]
            with open(os.path.join(folder, f"host{host}.log"), "w") as log:
                environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": folder}  # torchrun's logs
                nodes.append(subprocess.Popen(within, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            return [node.wait(LIMIT) for node in nodes]
        finally:
            for node in nodes:
                node.kill()
                node.wait()


def start(mode, folder, first, ranks, world):
    """Starts `ranks` ranks of this host, waits for all, and fails when one ends unlike those that die by plan."""
    processes = []
    for rank in range(int(first), int(first) + int(ranks)):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": world, "MASTER_ADDR": ADDRESS,
                       "MASTER_PORT": str(PORT)}
        processes.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), mode, folder], env=environment))
    codes = [process.wait(LIMIT) for process in processes]
    sys.exit(any(code not in (0, -signal.SIGKILL) for code in codes))


def run(hosts, ranks_of, start):
    """What each rank wrote; `start` is a method of Hosts and its arguments before the folder."""
    with tempfile.TemporaryDirectory(prefix="trireme-hosts-") as folder:
        codes = start[0](hosts, ranks_of, *start[1:], folder)
        logs = [path.read_text()[-3000:] for path in sorted(pathlib.Path(folder).glob("*.log"))]
        if any(codes):
            raise AssertionError(f"{start[1]} on {ranks_of} ended with {codes}:\n" + "\n".join(logs))
        return [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))]


class TwoHosts(unittest.TestCase):
    def test_programs_give_the_bits_of_one_host(self):
        with Hosts() as hosts:
            expected = run(hosts, [4, 0], (Hosts.torchrun, "work"))
            self.assertEqual(len(expected), 4)
            for spread in ([2, 2], [1, 3]):
                found = run(hosts, spread, (Hosts.torchrun, "work"))
                for rank in range(4):
                    for program in PROGRAMS:
                        name = program.__name__
                        self.assertEqual(found[rank][name], expected[rank][name], f"{name} on {spread}, rank {rank}")

    def test_a_dead_rank_is_an_error_on_both_hosts(self):
        with Hosts() as hosts:
            errors = run(hosts, [2, 2], (Hosts.plain, "lose_a_rank"))
            self.assertEqual(len(errors), 3)
            for error in errors:
                self.assertRegex(error, r"^\[trireme\] Connection closed by peer: all_reduce.*rank 3")

    def test_a_monitored_barrier_names_the_late_rank_of_another_host(self):
        with Hosts() as hosts:
            monitor, *others = run(hosts, [2, 2], (Hosts.plain, "miss_a_barrier"))
            self.assertRegex(monitor, r"^\[Rank 0\]: Rank 3 failed to pass monitoredBarrier in 1000 ms: ")
            self.assertEqual(len(others), 2)
            for error in others:
                self.assertRegex(error, "successfully reached monitoredBarrier, but received errors .*rank 3")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        {"work": work, "lose_a_rank": lose_a_rank, "miss_a_barrier": miss_a_barrier, "start": start}[sys.argv[1]](*sys.argv[2:])
        sys.exit()
    sys.exit(unittest.main(verbosity=1))
