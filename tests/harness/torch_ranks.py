"""PyTorch's own ranks, for tests that read what they write."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing


def run_in_ranks(num_ranks, function, *arguments):
    """Runs function(rank, *arguments) in processes of a Gloo group with one seed. Raises when one fails."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(join_and_run, (num_ranks, f"file://{folder}/store", function, arguments), num_ranks)


def join_and_run(rank, num_ranks, store, function, arguments):
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    torch.manual_seed(7)
    function(rank, *arguments)
    dist.barrier()
    # One of twelve exits ends in std::terminate() as PyTorch destroys a thread of the group.
    sys.stdout.flush()
    os._exit(0)
