"""Times torch.distributed's Gloo, for `trireme bench comm --compare gloo`.

Runs as one rank with torchrun's variables (RANK, WORLD_SIZE; TRIREME_JOB names the job):
  gloo_peer.py --operation all_reduce,barrier --dtype fp32 --sizes 4,65536 --seconds 0.5
Rank 0 prints one JSON object per case. The calls are those of a PyTorch user, in place where
trireme's are. Blocks of gather-like operations must be equal, so elements are rounded up to a multiple
of the ranks. Cases that Gloo refuses (sums of bf16 in some versions) are left out, with the reason on
stderr.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings

DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int64": "int64",
          "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8"}
BATCH_SECONDS = 20e-6  # as in trireme, so that reading the clock does not matter
WARM_UP_SHARE = 0.2


def call_of(operation, num_bytes, dtype):
    """The operation as a function without arguments, on zeros of its own."""
    size, rank = dist.get_world_size(), dist.get_rank()
    count = num_bytes // dtype.itemsize
    block = math.ceil(count / size)

    def zeros(elements):
        return torch.zeros(elements, dtype=dtype).fill_(0)  # gives it its own pages; fresh zeros share one

    def halves(elements):
        return list(zeros(elements * size).chunk(size)) if elements else [zeros(0)] * size

    if operation == "all_reduce":
        data = zeros(count)
        return lambda: dist.all_reduce(data)
    if operation == "reduce":
        data = zeros(count)
        return lambda: dist.reduce(data, 0)
    if operation == "broadcast":
        data = zeros(count)
        return lambda: dist.broadcast(data, 0)
    if operation == "all_gather":
        output, data = zeros(block * size), zeros(block)
        return lambda: dist.all_gather_into_tensor(output, data)
    if operation == "reduce_scatter":
        output, data = zeros(block), zeros(block * size)
        return lambda: dist.reduce_scatter_tensor(output, data)
    if operation == "all_to_all":
        output, data = zeros(block * size), zeros(block * size)
        return lambda: dist.all_to_all_single(output, data)
    if operation == "gather":
        data, outputs = zeros(block), halves(block) if rank == 0 else None
        return lambda: dist.gather(data, outputs, 0)
    if operation == "scatter":
        output, inputs = zeros(block), halves(block) if rank == 0 else None
        return lambda: dist.scatter(output, inputs, 0)
    if operation == "send_recv":
        output, data = zeros(count), zeros(count)

        def exchange():
            sent = dist.isend(data, (rank + 1) % size)
            dist.recv(output, (rank - 1) % size)
            sent.wait()
        return exchange
    if operation == "barrier":
        return dist.barrier
    raise ValueError(f"unknown operation {operation}")


def largest(values):
    """The largest value of all ranks: an operation takes as long as on its slowest rank."""
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.tolist()


def run(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start


def measure(call, seconds):
    """Microseconds of one call, (median, 99th percentile), by the method of trireme's bench_comm.h."""
    call()
    count, elapsed = 1, 0.0
    while elapsed <= WARM_UP_SHARE * seconds / 2:
        dist.barrier()
        (elapsed,) = largest([run(call, count)])
        one, count = elapsed / count, count * 2
    batch = min(max(math.ceil(BATCH_SECONDS / one), 1), 1000)
    num_batches = min(max(round((1 - WARM_UP_SHARE) * seconds / (one * batch)), 5), 20000)
    times = []
    for _ in range(num_batches):
        dist.barrier()
        times.append(1e6 * run(call, batch) / batch)
    times = sorted(largest(times))
    return statistics.median(times), times[math.ceil(0.99 * len(times)) - 1]


def run_cases(arguments):
    for operation in arguments.operation.split(","):
        for dtype in arguments.dtype.split(",") if operation != "barrier" else ["fp32"]:
            for size in map(int, arguments.sizes.split(",")) if operation != "barrier" else [0]:
                try:
                    median, p99 = measure(call_of(operation, size, getattr(torch, DTYPES[dtype])),
                                          arguments.seconds)
                except (RuntimeError, ValueError) as error:  # on every rank, before anything is sent
                    if dist.get_rank() == 0:
                        print(f"gloo: {operation} {dtype}: {error}".splitlines()[0], file=sys.stderr)
                    continue
                if dist.get_rank() == 0:
                    print(json.dumps({"operation": operation, "transport": "gloo", "memory": "ordinary",
                                      "dtype": dtype, "bytes": size, "ranks": dist.get_world_size(),
                                      "microseconds": median, "p99_microseconds": p99}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--operation", default="all_reduce")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--sizes", default="4,65536,1048576,16777216")
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    # One host: loopback, where Gloo would otherwise ask for the host's name.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = os.path.join(tempfile.gettempdir(), f"trireme-gloo-peer-{os.environ['TRIREME_JOB']}")
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]))
        run_cases(arguments)
        dist.barrier()
        dist.destroy_process_group()
    finally:
        if os.environ["RANK"] == "0" and os.path.exists(store):
            with contextlib.suppress(FileNotFoundError):  # the last rank to let go of it removes it
                os.unlink(store)


def tell_launcher(line):
    """The launcher shows what a rank leaves on this descriptor."""
    os.write(int(os.environ.get("TRIREME_ERROR_FD", 2)), line.encode())


if __name__ == "__main__":
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        tell_launcher(f"--compare gloo: {sys.executable} has no torch ({error}); pip install torch, or give "
                      "--python")
        sys.exit(2)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore", FutureWarning)  # names that change between torch's versions
    main()
