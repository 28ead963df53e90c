#!/usr/bin/env python3
"""Runs a command in a control group of its own with a memory limit, page cache included.

    benchmarks/memory_limit.py MEBIBYTES COMMAND [ARGUMENT ...]

Needs the right to make control groups, v1 or v2. Prints the most memory that the group has held.
"""
import os
import pathlib
import subprocess
import sys
import time


def group_of(pid: int) -> pathlib.Path:
    """The folder of the group that this program makes as process `pid`."""
    root = pathlib.Path("/sys/fs/cgroup")
    v1 = root / "memory"
    return (v1 if v1.is_dir() else root) / f"trireme-bench-{pid}"


def make_group(limit_bytes: int) -> tuple[pathlib.Path, pathlib.Path]:
    """The group's folder, and the file in it that tells the peak."""
    group = group_of(os.getpid())
    group.mkdir()
    is_v1 = group.parent.name == "memory"
    (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(limit_bytes))
    return group, group / ("memory.max_usage_in_bytes" if is_v1 else "memory.peak")


def main() -> int:
    limit_bytes = int(sys.argv[1]) << 20
    group, peak = make_group(limit_bytes)

    def join() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        status = subprocess.run(sys.argv[2:], preexec_fn=join, check=False).returncode
        print(f"limit {limit_bytes >> 20} MiB, most memory held {int(peak.read_text()) >> 20} MiB")
        return status
    finally:
        while (group / "cgroup.procs").read_text():  # what it has started may still be ending
            time.sleep(0.01)
        group.rmdir()


if __name__ == "__main__":
    sys.exit(main())
