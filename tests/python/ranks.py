"""Runs a function on several ranks, each a process of its own in a torch.distributed job."""

import datetime
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=60)


def run(world, function, *args, backend="trireme", killed=()):
    """[function(rank, *args) of each rank]; AssertionError with the text of the first rank that failed.

    The ranks of `killed` are those that kill themselves; they give None.

    The caller has not used threads of torch's: ranks are forked.
    """
    folder = tempfile.mkdtemp(prefix="trireme-ranks-")
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    try:
        for rank in range(world):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(rank, world, backend, os.path.join(folder, "store"), sender,
                                                          function, args))
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        results = [_result(rank, pipe, processes[rank], rank in killed) for rank, pipe in enumerate(pipes)]
        failures = [text for succeeded, text in results if not succeeded]
        if failures:  # a rank that fails takes the others with it: its own error says more than theirs
            raise AssertionError(next((text for text in failures if "DistBackendError" not in text), failures[0]))
        return [value for _, value in results]
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
        shutil.rmtree(folder)


def _rank(rank, world, backend, store, sender, function, args):
    torch.set_num_threads(1)
    try:
        if backend == "trireme":
            import trireme_torch  # noqa: F401
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=TIMEOUT)
        result = function(rank, *args)
        dist.destroy_process_group()
        sender.send((True, result))
    except BaseException:
        sender.send((False, traceback.format_exc()))
        os._exit(1)


def _result(rank, pipe, process, is_killed):
    """(whether it succeeded, its result or what went wrong)"""
    limit = TIMEOUT.total_seconds() + 30
    end = time.monotonic() + limit
    while is_killed and time.monotonic() < end:  # a process that it has forked may hold its pipe
        if process.exitcode == -signal.SIGKILL:
            return True, None
        time.sleep(0.01)
    if not pipe.poll(limit):
        return False, f"rank {rank} gave nothing within {limit} s"
    try:
        succeeded, value = pipe.recv()
    except EOFError:
        process.join()
        return False, f"rank {rank} ended with {process.exitcode} and gave nothing"
    return succeeded, value if succeeded else f"rank {rank}:\n{value}"
