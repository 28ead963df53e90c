"""The optimizers again: torch.optim's where torch has them, else the paper's lines. The reference of runs.cc.

reference.py FOLDER reads FOLDER/input.safetensors (start.<parameter>, <gradients>.<step>.<parameter>; "run",
JSON, as metadata) and writes FOLDER/reference.safetensors: <gradients>.<parameter> after all steps, in fp64.
Shares no code with trireme.
"""

import json
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file


class Lion:
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

    def __init__(self, weights, run, decay):
        self.weights, self.run, self.decay = weights, run, decay
        self.m = torch.zeros_like(weights)

    def step(self, rate):
        w, g, beta1, beta2 = self.weights, self.weights.grad, self.run["beta1"], self.run["beta2"]
        update = torch.sign(beta1 * self.m + (1 - beta1) * g)
        w -= rate * (update + self.decay * w)
        self.m = beta2 * self.m + (1 - beta2) * g


class Lamb:
    """You et al. 2020, arXiv:1904.00962, algorithm 2."""

    def __init__(self, weights, run, decay):
        self.weights, self.run, self.decay, self.t = weights, run, decay, 0
        self.m, self.v = torch.zeros_like(weights), torch.zeros_like(weights)

    def step(self, rate):
        w, g, beta1, beta2 = self.weights, self.weights.grad, self.run["beta1"], self.run["beta2"]
        self.t += 1
        self.m = beta1 * self.m + (1 - beta1) * g
        self.v = beta2 * self.v + (1 - beta2) * g**2
        m, v = self.m / (1 - beta1**self.t), self.v / (1 - beta2**self.t)
        update = m / (v**0.5 + self.run["epsilon"]) + self.decay * w
        ratio = w.norm() / update.norm()
        w -= rate * (ratio if 0 < ratio < float("inf") else 1) * update


class Lars:
    """You et al. 2017, arXiv:1708.03888, algorithm 1."""

    def __init__(self, weights, run, decay):
        self.weights, self.run, self.decay = weights, run, decay
        self.buffer = torch.zeros_like(weights)

    def step(self, rate):
        w, g = self.weights, self.weights.grad
        ratio = 0.001 * w.norm() / (g.norm() + self.decay * w.norm())
        ratio = ratio if 0 < ratio < float("inf") else 1
        self.buffer = self.run["momentum"] * self.buffer + rate * ratio * (g + self.decay * w)
        w -= self.buffer


class Torch:
    """One of torch.optim's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, rate):
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()


def make_optimizer(run, name, weights, decay):
    betas = (run["beta1"], run["beta2"])
    if run["name"] in ("lion", "lamb", "lars"):
        return {"lion": Lion, "lamb": Lamb, "lars": Lars}[run["name"]](weights, run, decay)
    optim = torch.optim
    if run["name"] == "sgd":
        return Torch(optim.SGD([weights], momentum=run["momentum"], weight_decay=decay,
                               nesterov=run["nesterov"] and run["momentum"] > 0))
    if run["name"] == "adafactor":
        return Torch(optim.Adafactor([weights], weight_decay=decay))
    if run["name"] == "muon" and weights.dim() == 2 and "embed" not in name:
        return Torch(optim.Muon([weights], weight_decay=decay, momentum=run["momentum"],
                                nesterov=run["nesterov"], adjust_lr_fn="match_rms_adamw"))
    return Torch(optim.AdamW([weights], betas=betas, eps=run["epsilon"], weight_decay=decay))


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    # torch's Muon orthogonalizes in bf16; here it is to stay in fp64.
    torch.Tensor.bfloat16 = lambda self: self.clone()
    with safe_open(f"{folder}/input.safetensors", "pt") as file:
        run = json.loads(file.metadata()["run"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    out = {}
    for gradients in run["gradients"]:
        for name, settings in run["parameters"].items():
            weights = tensors["start." + name].clone()
            optimizer = make_optimizer(run, name, weights, settings["decay"]) if weights.numel() else None
            for step, rate in enumerate(run["rates"], 1):
                weights.grad = tensors[f"{gradients}.{step}.{name}"]
                if optimizer:
                    optimizer.step(rate * settings["rate"])
            out[f"{gradients}.{name}"] = weights
    save_file(out, f"{folder}/reference.safetensors")


if __name__ == "__main__":
    main()
