"""The peer of model_step.cc: the same Llama in eager PyTorch, one forward and backward.

model_step.py [batch] [repeats] [threads] [layers] [width] [ffn] [heads] [vocab] [T]
"""

import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, ffn, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape

        def split(y):
            return y.view(b, t, self.heads, -1).transpose(1, 2)

        def rotate(y):
            half = y.shape[-1] // 2
            return y * cos + torch.cat((-y[..., half:], y[..., :half]), dim=-1) * sin

        y = self.norm1(x)
        q, k, v = rotate(split(self.q(y))), rotate(split(self.k(y))), split(self.v(y))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, width, ffn, heads, vocab, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, ffn, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocab, bias=False)
        h = width // heads
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, h, 2) / h))
        self.register_buffer("cos", torch.cat((angle.cos(), angle.cos()), dim=-1))
        self.register_buffer("sin", torch.cat((angle.sin(), angle.sin()), dim=-1))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def main():
    defaults = [8, 20, 1, 6, 256, 640, 4, 8192, 256]
    given = [int(a) for a in sys.argv[1:]]
    batch, repeats, threads, layers, width, ffn, heads, vocab, length = (
        given + defaults[len(given) :]
    )
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Llama(layers, width, ffn, heads, vocab, length)
    tokens = (torch.arange(batch * length) * 7919 % vocab).view(batch, -1)
    targets = tokens.roll(-1, 1)
    seconds = []
    for i in range(repeats + 2):
        start = time.perf_counter()
        model.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        if i >= 2:
            seconds.append(time.perf_counter() - start)
    seconds.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"pytorch batch {batch}: fastest {seconds[0]:.4f} s, "
        f"median {seconds[len(seconds) // 2]:.4f} s, loss {loss.item():.6f}, peak {peak} MiB"
    )


if __name__ == "__main__":
    main()
