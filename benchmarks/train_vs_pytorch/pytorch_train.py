"""Trains the Llama of llama.py with one peer of peers.py, to compare trireme with.

Started once per rank with torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and
START_TIME (seconds since the epoch, when the launcher began). Rank 0 prints one JSON object.
"""

import argparse
import json
import os
import statistics
import time

import torch

from llama import Llama, T, load, load_dense, read_safetensors
from moe_peer import MOE_PEERS, Mixtral, load_deepspeed_experts, load_experts, load_mixtral
from peers import ACCUMULATING, ON_SAME_SEQUENCES, PEERS


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def make_model(peer, weights, rank, ranks):
    """With trireme's weights."""
    if peer == "transformers":
        model = Mixtral()
        load_mixtral(model, read_safetensors(weights))
        return model
    model = Llama()
    if peer in MOE_PEERS:
        theirs = read_safetensors(weights)
        load_dense(model, theirs)
        (load_deepspeed_experts if peer == "deepspeed-moe" else load_experts)(model, theirs, rank, ranks)
    else:
        load(model, weights)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=PEERS, default="ddp")
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank")
    parser.add_argument("--microbatch", type=int, default=8, help="sequences per forward, of a peer that accumulates")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5, help="first steps left out of the median")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--data", required=True, help="prefix of a .bin of 16-bit tokens, one more than a step takes")
    parser.add_argument("--weights", required=True, help="trireme's at the start: a .safetensors")
    parser.add_argument("--compared-step", type=int, default=-1, help="the step whose loss is reported")
    args = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(args.threads)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    model = make_model(args.peer, args.weights, rank, ranks)
    own = (args.microbatch,) if args.peer in ACCUMULATING else ()
    train_step = PEERS[args.peer](model, ranks, args.batch, *own)
    bin_path = args.data + ".bin"
    tokens = torch.from_file(bin_path, dtype=torch.uint16, size=os.path.getsize(bin_path) // 2)
    # Ranks that work on the same sequences read those of all ranks.
    readers = range(ranks) if args.peer in ON_SAME_SEQUENCES else [rank]
    starts = [T * sequence for reader in readers for sequence in range(args.batch * reader, args.batch * (reader + 1))]

    seconds, first = [], 0.0
    for step in range(args.steps):
        begin = time.perf_counter()
        batch = torch.stack([tokens[s:s + T + 1] for s in starts]).long()
        loss = train_step(batch[:, :-1], batch[:, 1:])
        seconds.append(time.perf_counter() - begin)
        if step == args.compared_step % args.steps:
            compared = loss
        first = first or time.time() - float(os.environ["START_TIME"])

    peak, mean_loss = torch.tensor([peak_rss_bytes()]), torch.tensor(compared) / ranks
    if ranks > 1:
        torch.distributed.all_reduce(peak, torch.distributed.ReduceOp.MAX)
        torch.distributed.all_reduce(mean_loss)
    if rank == 0:
        step_seconds = statistics.median(seconds[args.warmup:])
        print(json.dumps({"tokens_per_second": args.batch * ranks * T / step_seconds,
                          "peak_rss_bytes": peak.item(), "seconds_to_first_step": first,
                          "last_loss": mean_loss.item()}), flush=True)
    # The interpreter's end is not measured, and a process group that compiled graphs still hold
    # sometimes hangs or aborts in it.
    os._exit(0)


if __name__ == "__main__":
    main()
