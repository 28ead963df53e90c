"""The Llama of the comparison in plain PyTorch: the same as trireme's, with one matrix for q, k and v."""

import json
import mmap
import os

import torch
import torch.nn.functional as F
from torch import nn

# As run.py --layers, --width and --precision, which reach the peers as variables.
LAYERS, WIDTH = (int(os.environ.get(name, default)) for name, default in (("LLAMA_LAYERS", 6), ("LLAMA_WIDTH", 256)))
HEAD_WIDTH = 64
IS_BF16 = os.environ.get("LLAMA_PRECISION") == "bf16"
FFN, HEADS, VOCAB, T = WIDTH * 5 // 2, WIDTH // HEAD_WIDTH, 8192, 256


def rotary(T, head_width, base=10000.0):
    inverse = base ** (-torch.arange(0, head_width, 2).float() / head_width)
    angles = torch.arange(T).float()[:, None] * inverse
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def causal_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, FFN, bias=False)
        self.up = nn.Linear(WIDTH, FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.ffn = FeedForward()
        self.attend = causal_attention

    def forward(self, x, cos, sin):
        qkv = self.qkv(self.attention_norm(x))
        B, T, width = qkv.shape  # Those of this rank's heads and tokens when a peer splits them.
        q, k, v = (y.view(B, T, -1, HEAD_WIDTH).transpose(1, 2) for y in qkv.chunk(3, -1))
        y = self.attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, width // 3))
        return x + self.ffn(self.ffn_norm(x))


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Llama(nn.Module):
    """The whole model, or a stage of it when a peer sets what other stages have to None."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.output = nn.Linear(WIDTH, VOCAB, bias=False)
        cos, sin = rotary(T, HEAD_WIDTH)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        # A peer that casts the weights itself switches this off.
        self.autocasts = IS_BF16

    def forward(self, x, targets=None):
        """`x`: tokens, or what the stage before returned. The loss when there are targets."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocasts):
            return self.stage(x, targets)

    def stage(self, x, targets):
        x = x if self.embedding is None else self.embedding(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = x if self.output is None else self.output(self.norm(x))
        return x if targets is None else cross_entropy(x, targets)


def read_safetensors(path):
    """Tensors by name, fp32, in the file's memory; its format is a header's length, JSON, and the bytes."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    return {name: torch.frombuffer(data, dtype=torch.float32, offset=begin + entry["data_offsets"][0],
                                   count=(entry["data_offsets"][1] - entry["data_offsets"][0]) // 4).view(entry["shape"])
            for name, entry in header.items() if entry.get("dtype") == "F32"}


def load(model, path):
    """Gives `model` the weights of a checkpoint that one rank of trireme wrote."""
    theirs = read_safetensors(path)
    load_dense(model, theirs)
    for layer, block in enumerate(model.blocks):
        for part in ("gate", "up", "down"):
            getattr(block.ffn, part).weight.data.copy_(theirs[f"model.layers.{layer}.mlp.{part}_proj.weight"])


def load_dense(model, theirs):
    """All weights but those of the feed-forwards."""
    weights = {"embedding": theirs["model.embed_tokens.weight"], "norm": theirs["model.norm.weight"],
               "output": theirs["lm_head.weight"]}
    for layer in range(LAYERS):
        def of(name):
            return theirs[f"model.layers.{layer}.{name}.weight"]
        weights |= {f"blocks.{layer}.{ours}": weight for ours, weight in {
            "attention_norm": of("input_layernorm"), "ffn_norm": of("post_attention_layernorm"),
            "qkv": torch.cat([of(f"self_attn.{part}_proj") for part in "qkv"]),
            "out": of("self_attn.o_proj")}.items()}
    missing = model.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()}, strict=False)
    assert not missing.unexpected_keys and all(".ffn." in key for key in missing.missing_keys), missing
