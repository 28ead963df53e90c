"""Trains a model of models.py in PyTorch on one GPU, to compare `trireme train` with. Prints one JSON object.

  masters   weights and activations in bf16, AdamW on copies of the weights in fp32: what trireme does
  autocast  weights in fp32, torch.autocast in bf16
  compiled  masters, with each block and the loss compiled by torch.compile

The Llama is that of benchmarks/train_vs_pytorch/llama.py, AdamW torch's fused kernel, the gradient norm at most 1.
`--limits` measures the GPU instead: a large matrix product and a copy.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "train_vs_pytorch"))
import llama  # noqa: E402
from models import MODELS  # noqa: E402

CLIP = 1.0
DEVICE = "cuda"


def make_model(model, weights):
    llama.LAYERS, llama.WIDTH, llama.FFN = model.layers, model.width, model.ffn_width
    llama.HEADS, llama.HEAD_WIDTH = model.heads, model.width // model.heads
    llama.VOCAB, llama.T = model.vocab_size, model.sequence_length
    with torch.device("cpu" if weights else DEVICE):
        network = llama.Llama()
    for parameter in network.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)
    if weights:
        llama.load(network, weights)
    return network.to(DEVICE)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def autocast_step(network):
    parameters = list(network.parameters())
    optimizer = adamw(parameters)

    def step(tokens, targets):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = network(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def masters_step(network):
    masters = [parameter.detach().clone().requires_grad_() for parameter in network.parameters()]
    network.bfloat16()
    parameters = list(network.parameters())
    optimizer = adamw(masters)
    for master in masters:
        master.grad = torch.empty_like(master)
    gradients = [master.grad for master in masters]

    def step(tokens, targets):
        loss = network(tokens, targets)
        loss.backward()
        torch._foreach_copy_(gradients, [parameter.grad for parameter in parameters])
        for parameter in parameters:
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(masters, CLIP)
        optimizer.step()
        torch._foreach_copy_([parameter.detach() for parameter in parameters], [m.detach() for m in masters])
        return loss.item()

    return step


def compiled_step(network):
    for block in network.blocks:
        block.compile()
    llama.cross_entropy = torch.compile(llama.cross_entropy)
    return masters_step(network)


FORMS = {"masters": masters_step, "autocast": autocast_step, "compiled": compiled_step}


def median_seconds(function, runs=20):
    """By the GPU's clock."""
    for _ in range(3):
        function()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def limits():
    n = 8192
    a, b = (torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    product = median_seconds(lambda: a @ b)
    source = torch.empty(1 << 30, device=DEVICE, dtype=torch.float32)
    target = torch.empty_like(source)
    copy = median_seconds(lambda: target.copy_(source))
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
            "product_flops": 2 * n**3 / product, "copied_bytes_per_second": 2 * source.nbytes / copy}


def train(args):
    model = MODELS[args.model]
    network = make_model(model, args.weights)
    train_step = FORMS[args.form](network)
    T = model.sequence_length
    tokens = torch.from_file(args.data + ".bin", dtype=torch.uint16, size=os.path.getsize(args.data + ".bin") // 2)
    batch = torch.stack([tokens[T * i:T * i + T + 1] for i in range(model.micro_batch)]).long().pin_memory()
    seconds, losses = [], []
    for _ in range(args.steps or model.steps):
        begin = time.perf_counter()
        on_device = batch.to(DEVICE, non_blocking=True)
        losses.append(train_step(on_device[:, :-1].contiguous(), on_device[:, 1:].contiguous()))
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "losses": losses, "peak_device_bytes": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--form", choices=FORMS)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--data", help="prefix of a .bin of 16-bit tokens, one more than a step takes")
    parser.add_argument("--weights", help="trireme's at the start: a .safetensors in fp32")
    args = parser.parse_args()
    print(json.dumps(limits() if args.limits else train(args)), flush=True)


if __name__ == "__main__":
    main()
