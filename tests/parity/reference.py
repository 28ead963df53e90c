"""Llama and GPT-2 written again, from the papers, in plain torch: the reference of parity_test.cc.

Reads FOLDER/input.safetensors (initial weights under their names, tokens, targets; the model's shape as
metadata) and writes FOLDER/reference.safetensors: logits, the loss's sum, every gradient of the mean loss,
and the losses and final weights of ten AdamW steps. Shares no code with trireme.
"""

import math
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file


def attention(q, k, v, heads, kv_heads):
    """Softmax attention by its formula. q [B, T, D], k and v [B, T, kv_heads * H] -> [B, T, D]."""
    B, T, D = q.shape
    H = D // heads
    q = q.view(B, T, heads, H)
    k = k.view(B, T, kv_heads, H).repeat_interleave(heads // kv_heads, dim=2)
    v = v.view(B, T, kv_heads, H).repeat_interleave(heads // kv_heads, dim=2)
    scores = torch.einsum("bqnh,bknh->bnqk", q, k) / math.sqrt(H)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -math.inf).softmax(-1)
    return torch.einsum("bnqk,bknh->bqnh", weights, v).reshape(B, T, D)


def rotate(x, heads, base):
    """RoPE (Su et al. 2021), halves paired as Hugging Face does: complex multiplication by exp(i t w)."""
    B, T, D = x.shape
    H = D // heads
    x = x.view(B, T, heads, H)
    a, b = x[..., : H // 2], x[..., H // 2 :]
    angle = torch.outer(torch.arange(T, dtype=torch.float64),
                        base ** (-torch.arange(0, H, 2, dtype=torch.float64) / H))
    cos, sin = angle.cos().to(x.dtype)[:, None, :], angle.sin().to(x.dtype)[:, None, :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).reshape(B, T, D)


def rms_norm(x, weight, epsilon):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def layer_norm(x, weight, bias, epsilon):
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight + bias


def llama(w, tokens, shape):
    epsilon, heads, kv_heads = shape["norm_epsilon"], shape["heads"], shape["kv_heads"]
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(shape["layers"]):
        p = f"model.layers.{layer}."
        y = rms_norm(x, w[p + "input_layernorm.weight"], epsilon)
        q, k, v = (y @ w[p + f"self_attn.{n}_proj.weight"].T for n in "qkv")
        q, k = rotate(q, heads, shape["rope_base"]), rotate(k, kv_heads, shape["rope_base"])
        x = x + attention(q, k, v, heads, kv_heads) @ w[p + "self_attn.o_proj.weight"].T
        y = rms_norm(x, w[p + "post_attention_layernorm.weight"], epsilon)
        gate = y @ w[p + "mlp.gate_proj.weight"].T
        up = y @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    x = rms_norm(x, w["model.norm.weight"], epsilon)
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2(w, tokens, shape):
    epsilon, heads = shape["norm_epsilon"], shape["heads"]
    linear = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]
    norm = lambda x, name: layer_norm(x, w[name + ".weight"], w[name + ".bias"], epsilon)
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][: tokens.shape[1]]
    for layer in range(shape["layers"]):
        p = f"transformer.h.{layer}."
        y = norm(x, p + "ln_1")
        q, k, v = (linear(y, p + f"attn.{name}_proj") for name in "qkv")
        x = x + linear(attention(q, k, v, heads, heads), p + "attn.c_proj")
        x = x + linear(gelu(linear(norm(x, p + "ln_2"), p + "mlp.c_fc")), p + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    with safe_open(f"{folder}/input.safetensors", "pt") as file:
        shape = {k: v if k == "family" else float(v) for k, v in file.metadata().items()}
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    for key in ("layers", "heads", "kv_heads"):
        shape[key] = int(shape[key])
    tokens, targets = tensors.pop("tokens"), tensors.pop("targets")
    weights = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    model = {"llama": llama, "gpt2": gpt2}[shape["family"]]

    def loss_sum():
        logits = model(weights, tokens, shape)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100,
                                       reduction="sum")

    count = (targets != -100).sum()
    logits, loss = loss_sum()
    (loss / count).backward()
    out = {"logits": logits.detach(), "loss": loss.detach().double()}
    out |= {"grad." + name: weight.grad.clone() for name, weight in weights.items()}

    matrices = [w for w in weights.values() if w.dim() >= 2]
    vectors = [w for w in weights.values() if w.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=shape["epsilon"], foreach=False)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        _, loss = loss_sum()
        (loss / count).backward()
        optimizer.step()
        losses.append(loss.item() / count.item())
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    out |= {"trained." + name: weight.detach() for name, weight in weights.items()}
    save_file({name: tensor.contiguous() for name, tensor in out.items()},
              f"{folder}/reference.safetensors")


if __name__ == "__main__":
    main()
