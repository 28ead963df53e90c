#!/usr/bin/env python3
"""CPU time that a split tensor adds to an operator: ours beside DTensor, in one run.

    benchmarks/spmd_overhead.py build/release/bin/spmd_overhead_benchmark

Both split [4, 4] by rows over two ranks of which nobody sends anything. A line has the operator, what plain eager takes
in C++ and in Python, and what each split tensor adds to its own plain one, in microseconds of CPU.
"""
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

ROUNDS, CALLS = 20, 300


def microseconds(call):
    least = float("inf")
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(CALLS):
            call()
        least = min(least, (time.thread_time() - begin) / CALLS * 1e6)
    return least


def ours(program):
    """{(mode, operator): (plain, added)}"""
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    found, mode = {}, ""
    for line in lines[1:]:
        words = line.split()
        if len(words) == 1:
            mode = words[0]
        else:
            found[mode, words[0]] = float(words[1]), float(words[3])
    return found


def dtensors():
    """The same of DTensor. The group is torch's fake one: the second rank need not exist."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    mesh = init_device_mesh("cpu", (2,))
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)
    y = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)
    w = DTensor.from_local(torch.ones(4, 4), mesh, [Replicate()], run_check=False)
    calls = {
        "add": lambda p, q, m: p + q, "mm": lambda p, q, m: p.mm(m), "detach": lambda p, q, m: p.detach(),
        "view": lambda p, q, m: p.view(4, 2, 2), "gelu": lambda p, q, m: torch.nn.functional.gelu(p),
        "sum": lambda p, q, m: p.sum(1),
    }
    found = {}
    for mode in ("no_grad", "graph"):
        a.requires_grad_(mode == "graph")
        x = x.detach().requires_grad_(mode == "graph")
        with torch.set_grad_enabled(mode == "graph"):
            for name, call in calls.items():
                plain = microseconds(lambda: call(a, b, b))
                found[mode, name] = plain, microseconds(lambda: call(x, y, w)) - plain
    dist.destroy_process_group()
    return found


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    theirs, own = dtensors(), ours(sys.argv[1])
    print("mode operator plain_cpp plain_python added added_by_dtensor ratio")
    for key, (plain, added) in own.items():
        plain_python, added_python = theirs[key]
        print(*key, f"{plain:.2f} {plain_python:.2f} {added:.2f} {added_python:.2f} {added_python / max(added, 1e-3):.1f}")


if __name__ == "__main__":
    main()
