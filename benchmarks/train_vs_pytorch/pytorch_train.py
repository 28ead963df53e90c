"""The same Llama in plain eager PyTorch, with DDP over Gloo: what trireme is measured against.

Started once a rank with torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and
START_TIME (seconds since the epoch, when the launcher began). Rank 0 prints one JSON object.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, FFN, HEADS, VOCAB, T = 6, 256, 640, 4, 8192, 256


def rotary(T, head_width, base=10000.0):
    inverse = base ** (-torch.arange(0, head_width, 2).float() / head_width)
    angles = torch.arange(T).float()[:, None] * inverse
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.gate = nn.Linear(WIDTH, FFN, bias=False)
        self.up = nn.Linear(WIDTH, FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        B, T, D = x.shape
        q, k, v = (y.view(B, T, HEADS, D // HEADS).transpose(1, 2)
                   for y in self.qkv(self.attention_norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.output = nn.Linear(WIDTH, VOCAB, bias=False)
        cos, sin = rotary(T, WIDTH // HEADS)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), targets.flatten())


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8, help="sequences a rank")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5, help="first steps left out of the median")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--data", required=True, help="prefix of a .bin of 16-bit tokens")
    args = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(args.threads)
    torch.manual_seed(42)
    model = step_model = Llama()
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        step_model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    bin_path = args.data + ".bin"
    tokens = torch.from_file(bin_path, dtype=torch.uint16, size=os.path.getsize(bin_path) // 2)
    generator = torch.Generator().manual_seed(rank)

    seconds, first = [], 0.0
    for step in range(args.steps):
        begin = time.perf_counter()
        starts = torch.randint(len(tokens) - T - 1, (args.batch,), generator=generator).tolist()
        batch = torch.stack([tokens[s:s + T + 1] for s in starts]).long()
        loss = step_model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
        first = first or time.time() - float(os.environ["START_TIME"])

    peak = torch.tensor([peak_rss_bytes()])
    if ranks > 1:
        torch.distributed.all_reduce(peak, torch.distributed.ReduceOp.MAX)
    if rank == 0:
        step_seconds = statistics.median(seconds[args.warmup:])
        print(json.dumps({"tokens_per_second": args.batch * ranks * T / step_seconds,
                          "peak_rss_bytes": peak.item(), "seconds_to_first_step": first}))
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
