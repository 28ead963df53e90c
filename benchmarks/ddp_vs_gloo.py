#!/usr/bin/env python3
"""Runs the same PyTorch DDP and FSDP2 programs on backend "trireme" and on gloo, on local ranks, in turns.

    python benchmarks/ddp_vs_gloo.py [--ranks 2] [--blocks 9] [--steps 4] [--note]

Trains a transformer (6 layers, width 256, vocabulary 8192, 256 tokens, fp32, AdamW). A block is some steps of
each program, one after the other, so that other load on the machine affects all of them equally. Prints the
median step of each, its ratio to gloo's (the median of the blocks' ratios) and to a step that communicates
nothing. --note writes them to benchmarks/results/. Needs trireme_torch installed, or PYTHONPATH=build/release/python.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import trireme_torch  # noqa: F401

WIDTH, LAYERS, HEADS, VOCABULARY, TOKENS = 256, 6, 4, 8192, 256
RESULTS = pathlib.Path(__file__).resolve().parent / "results"


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


class Program:
    """One way of training, on one group."""

    def __init__(self, kind, group):
        self.kind = kind
        torch.manual_seed(1)
        model = Transformer()
        if kind == "FSDP2":
            mesh = DeviceMesh.from_group(group, "cpu")
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
        else:
            model = DistributedDataParallel(model, process_group=group)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(self, tokens):
        self.optimizer.zero_grad()
        with self.model.no_sync() if self.kind == "alone" else contextlib.nullcontext():
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
        self.optimizer.step()
        return loss.item()


def rank_main(rank, arguments, store, results):
    torch.set_num_threads(max(1, os.cpu_count() // arguments.ranks))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks)
    ours = dist.new_group(backend="trireme")
    source = torch.Generator().manual_seed(rank)
    for batch in arguments.batches:
        programs = {("alone", ""): Program("alone", dist.group.WORLD)}
        for kind in ("DDP", "FSDP2"):
            programs[kind, "gloo"] = Program(kind, dist.group.WORLD)
            programs[kind, "trireme"] = Program(kind, ours)
        seconds = {name: [] for name in programs}
        losses = {name: [] for name in programs}
        for block in range(arguments.blocks + 1):  # the first warms up
            tokens = [torch.randint(0, VOCABULARY, (batch, TOKENS + 1), generator=source) for _ in range(arguments.steps)]
            for name, program in programs.items():
                dist.barrier()
                start = time.perf_counter()
                losses[name] += [program.step(step_tokens) for step_tokens in tokens]
                if block > 0:
                    seconds[name].append((time.perf_counter() - start) / arguments.steps)
        for kind in ("DDP", "FSDP2"):
            if losses[kind, "gloo"] != losses[kind, "trireme"] and arguments.ranks <= 2:
                raise AssertionError(f"{kind}: the losses of gloo and trireme differ")
        if rank == 0:
            results.put((batch, seconds))
    dist.destroy_process_group()


def table(measured):
    lines = ["| sequences per rank | program | gloo, ms per step | trireme, ms per step | speed-up "
             "| gloo, relative to no communication | trireme, relative to no communication |",
             "|---|---|---|---|---|---|---|"]
    for batch, seconds in measured:
        alone = seconds["alone", ""]
        for kind in ("DDP", "FSDP2"):
            gloo, ours = seconds[kind, "gloo"], seconds[kind, "trireme"]
            ratio = statistics.median(g / o for g, o in zip(gloo, ours, strict=True))
            shares = [statistics.median(a / t for a, t in zip(alone, times, strict=True)) for times in (gloo, ours)]
            lines.append(f"| {batch} | {kind} | {1e3 * statistics.median(gloo):.0f} | {1e3 * statistics.median(ours):.0f} "
                         f"| {ratio:.2f} x | {shares[0]:.0%} | {shares[1]:.0%} |")
    return "\n".join(lines)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    return f"{os.cpu_count()} cores of {model}, load average {os.getloadavg()[0]:.1f} at the end"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4, help="steps of each program in a block")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 1], help="sequences per rank")
    parser.add_argument("--note", action="store_true", help="write benchmarks/results/DATE-ddp-vs-gloo.md")
    arguments = parser.parse_args()
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (arguments, f"{folder}/store", results), nprocs=arguments.ranks)
        measured = [results.get() for _ in arguments.batches]
    parameters = sum(parameter.numel() for parameter in Transformer().parameters())
    text = (f"{arguments.ranks} ranks, torch {torch.__version__}, {parameters / 1e6:.1f} M parameters, medians of "
            f"{arguments.blocks} blocks of {arguments.steps} steps in turns; {machine()}.\n\n{table(measured)}\n")
    print(text)
    if arguments.note:
        day = datetime.date.today().isoformat()
        note = RESULTS / f"{day}-ddp-vs-gloo.md"
        note.write_text(f"# PyTorch's DDP and FSDP2 on trireme_torch and on gloo, {day}\n\n"
                        f"`python benchmarks/ddp_vs_gloo.py --ranks {arguments.ranks}`. {text}")
        print(f"wrote {note}")


if __name__ == "__main__":
    main()
