"""The peer of recovery.py under torchrun: DDP over Gloo, a file of its states every SAVE steps, which it loads at start.

A transformer of the demo's size (4 layers of width 192, 4,096 words, sequences of 128 tokens), AdamW, on random tokens.
Rank 0 appends a line to steps.jsonl after each step, as a run of trireme does to metrics.jsonl.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVE, BATCH, T, WORDS, WIDTH = 100000, 10, 8, 128, 4096, 192


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 6, 512, dropout=0.0, batch_first=True, norm_first=True, bias=False)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.output(self.layers(self.embedding(x), mask=mask, is_causal=True))


def loss_of(model, step, rank):
    """On this rank's tokens of the step."""
    generator = torch.Generator().manual_seed(step * 1000 + rank)
    tokens = torch.randint(WORDS, (BATCH, T + 1), generator=generator)
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    first, path = 0, folder / "state.pt"
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    for step in range(first + 1, STEPS + 1):
        loss = loss_of(model, step, rank)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank != 0:
            continue
        if step % SAVE == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       folder / "state.new")
            os.replace(folder / "state.new", path)
        with open(folder / "steps.jsonl", "a") as file:
            file.write(json.dumps({"step": step}) + "\n")


if __name__ == "__main__":
    main()
