"""Saves and loads of checkpoints beside dd and torch.distributed.checkpoint, in turns.

Forty fp32 tensors, rows split over two ranks: threads here, processes over Gloo there (FSDP2's DTensors). Each round runs
`checkpoint_benchmark` and the peer on the same folder; the table has the medians.

    benchmarks/checkpoint.py --folder /tmp [--mebibytes 1024] [--rounds 5]
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from trireme_runs import ROOT, add_arguments, write_note

sys.path.insert(0, str(ROOT / "benchmarks/train_vs_pytorch"))
from report import machine  # noqa: E402

TENSORS = 40


def drop_cache(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peer_rank(rank, folder, mebibytes, port, result):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    rows = mebibytes * 256 // TENSORS // 2 * 2
    state = {f"w{i}": DTensor.from_local(torch.randn(rows // 2, 1024), mesh, [Shard(0)]) for i in range(TENSORS)}
    times = {}

    def timed(name, work):
        dist.barrier()
        start = time.perf_counter()
        value = work()
        dist.barrier()
        times[name] = time.perf_counter() - start
        return value

    timed("save", lambda: dcp.save(state, checkpoint_id=folder / "a"))
    start = time.perf_counter()
    future = timed("stall", lambda: dcp.async_save(state, checkpoint_id=folder / "b"))
    future.result()
    dist.barrier()
    times["background"] = time.perf_counter() - start
    if rank == 0:
        drop_cache(folder / "a")
    timed("load", lambda: dcp.load(state, checkpoint_id=folder / "a"))
    if rank == 0:
        result.put(times)
    dist.destroy_process_group()


def peer(folder, mebibytes, port):
    import torch.multiprocessing as mp
    result = mp.get_context("spawn").SimpleQueue()
    try:
        mp.spawn(peer_rank, (folder, mebibytes, port, result), nprocs=2)
        return result.get()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/checkpoint_benchmark")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    ours, theirs = [], []
    for i in range(args.rounds):
        text = subprocess.run([args.program, args.folder, str(args.mebibytes)], check=True, capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
        ours.append(json.loads(text))
        theirs.append(peer(args.folder / "dcp-benchmark", args.mebibytes, 29500 + os.getpid() % 400 + i))
        print(f"bench: round {i + 1}: {ours[-1]} {theirs[-1]}", file=sys.stderr)
    median = {key: statistics.median(each[key] for each in ours) for key in ours[0]}
    other = {key: statistics.median(each[key] for each in theirs) for key in theirs[0]}
    if args.json:
        print(json.dumps({"trireme": median, "dcp": other}))
        return
    rate = lambda took: f"{median['bytes'] / took / 1e9:.2f} GB/s"  # noqa: E731
    rows = [("save, training waits", median["save"], other["save"], median["dd_write"]),
            ("stall of a save in the background", median["stall"], other["stall"], None),
            ("the whole of it", median["background"], other["background"], median["dd_write"]),
            ("save of which a tenth has changed", median["save_tenth"], None, None),
            ("load, cold", median["load"], other["load"], median["dd_read"]),
            ("load, warm, both ranks want all", median["load_replicated"], None, None)]
    lines = [f"| {name} | {took:.3f} s | {rate(took)} | {f'{peer_took:.3f} s' if peer_took else ''} | "
             f"{f'{peer_took / took:.2f}' if peer_took else ''} | {f'{dd / took:.2f}' if dd else ''} |"
             for name, took, peer_took, dd in rows]
    text = f"""# Checkpoints beside dd and torch.distributed.checkpoint, {datetime.date.today().isoformat()}

Machine: {machine()}. {median['bytes'] / 2**20:.0f} MiB in {TENSORS} fp32 tensors, rows split over two ranks (threads here,
processes over Gloo there), one thread each, fsync. dd: `oflag=direct conv=fsync`, and a read with a cold page cache.
Medians of {args.rounds} rounds, alternating.

| | Trireme | | DCP | DCP / Trireme | dd / Trireme |
|---|---|---|---|---|---|
{chr(10).join(lines)}

The stall is {median['stall'] / median['save']:.1%} of a save for which training waits.

Repeat: `benchmarks/checkpoint.py --folder {args.folder} --mebibytes {args.mebibytes}`.
"""
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today().isoformat()}-checkpoint.md", text)


if __name__ == "__main__":
    main()
