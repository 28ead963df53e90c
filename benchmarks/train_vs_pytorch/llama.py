"""The Llama of the comparison in plain PyTorch: as trireme's, with one matrix for q, k and v."""

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
