"""The PyTorch side of vision_vs_pytorch: trains an image classifier with DistributedDataParallel over Gloo.

ViT is transformers' ViTForImageClassification, ResNet is torchvision's. Images are read into memory before the
first step. Prints one JSON object: seconds of each step, and the accuracy after the last one.
"""

import argparse
import json
import math
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from PIL import Image


def make_model(args, classes, channels, size):
    if args.model == "vit":
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(image_size=size, patch_size=args.patch_size, num_channels=channels,
                           hidden_size=args.width, num_hidden_layers=args.layers, num_attention_heads=args.heads,
                           intermediate_size=args.ffn_width, num_labels=classes, hidden_dropout_prob=0.0,
                           attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
        model = ViTForImageClassification(config)
        return model, lambda m, x: m(x).logits
    sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
    import torchvision_parts

    torchvision_parts.use("torchvision", "torchvision.models")
    from torchvision.models import resnet

    model = getattr(resnet, args.model)(num_classes=classes)
    width = model.conv1.out_channels
    if args.stem == "small":  # as for CIFAR, He et al. 2015, section 4.2
        model.conv1 = torch.nn.Conv2d(channels, width, 3, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    elif channels != 3:
        model.conv1 = torch.nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model, lambda m, x: m(x.contiguous(memory_format=torch.channels_last) if args.channels_last else x)


# Names within a ViT's layer, of a checkpoint and of today's transformers.
VIT_NAMES = {"attention.attention.query": "attention.q_proj", "attention.attention.key": "attention.k_proj",
             "attention.attention.value": "attention.v_proj", "attention.output.dense": "attention.o_proj",
             "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}


def name_in_model(name):
    found = re.fullmatch(r"vit\.encoder\.layer\.(\d+)\.(.*)\.(weight|bias)", name)
    if not found:
        return name
    number, module, kind = found.groups()
    return f"vit.layers.{number}.{VIT_NAMES.get(module, module)}.{kind}"


def load_checkpoint(model, folder):
    """The weights that a run of Trireme has saved."""
    from safetensors.torch import load_file

    saved = {}
    for path in folder.glob("*.safetensors"):
        saved.update(load_file(path))
    found = {name_in_model(name): tensor for name, tensor in saved.items() if not name.startswith("optimizer.")}
    model.load_state_dict({name: found[name] for name in model.state_dict()})


def read_folder(folder):
    classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
    files = [(p, i) for i, name in enumerate(classes) for p in sorted((folder / name).iterdir())]
    pixels = np.stack([np.asarray(flattened(p)) for p, _ in files])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor([i for _, i in files]), len(classes)


def flattened(path):
    image = Image.open(path).convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB")


def read_cifar(files):
    records = np.concatenate([np.fromfile(f, np.uint8).reshape(-1, 3073) for f in files])
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(records[:, 0].astype(np.int64)), 10


def read_data(path):
    if (path / "data_batch_1.bin").exists():
        return read_cifar(sorted(path.glob("data_batch_*.bin"))), read_cifar([path / "test_batch.bin"])
    return read_folder(path / "train"), read_folder(path / "validation")


def normalised(images):
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    return images.to(torch.get_default_dtype()).div_(255).sub_(mean).div_(deviation)


def mirrored(images, args, generator):
    """Mirrors half of the images with --flip."""
    if not args.flip:
        return images
    chosen = torch.rand(images.shape[0], generator=generator) < 0.5
    return torch.where(chosen.view(-1, 1, 1, 1), images.flip(3), images)


def rate(step, args):
    if step <= args.warmup_steps:
        return args.learning_rate * step / args.warmup_steps
    share = (step - args.warmup_steps) / (args.steps - args.warmup_steps)
    return args.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


@torch.no_grad()
def accuracy(model, forward, images, labels):
    model.eval()
    right = sum((forward(model, normalised(images[i:i + 64])).argmax(1) == labels[i:i + 64]).sum().item()
                for i in range(0, len(labels), 64))
    model.train()
    return right / len(labels)


def run(rank, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.manual_seed(args.seed)
    if args.double:
        torch.set_default_dtype(torch.double)
    (images, labels, classes), (test_images, test_labels, _) = read_data(args.data)
    model, forward = make_model(args, classes, images.shape[1], images.shape[2])
    if args.double:
        model.double()
    if args.weights:
        load_checkpoint(model, args.weights)
    ddp = torch.nn.parallel.DistributedDataParallel(model) if args.ranks > 1 else model
    if args.compile:
        ddp = torch.compile(ddp)
    # Norms and biases do not decay.
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": args.weight_decay},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    order = torch.Generator().manual_seed(args.seed)
    draws = torch.Generator().manual_seed(1000 * args.seed + rank)
    if args.whole:
        args.global_batch = len(labels)
    per_rank = args.global_batch // args.ranks
    queue = torch.empty(0, dtype=torch.long)
    seconds, losses, accuracies = [], [], []
    for step in range(1, args.steps + 1):
        start = time.perf_counter()
        while len(queue) < args.global_batch:
            queue = torch.cat([queue, torch.randperm(len(labels), generator=order)])
        batch, queue = queue[:args.global_batch], queue[args.global_batch:]
        own = batch[rank * per_rank:(rank + 1) * per_rank]
        x = normalised(mirrored(images[own], args, draws))
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = F.cross_entropy(forward(ddp, x), labels[own])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if rank == 0 and (step % args.evaluate_interval == 0 if args.evaluate_interval else step == args.steps):
            accuracies.append((step, accuracy(model, forward, test_images, test_labels)))
    if rank == 0:
        print(json.dumps({"seconds": seconds, "losses": losses, "accuracies": accuracies}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--flip", action="store_true")
    parser.add_argument("--weights", type=Path, help="a checkpoint of Trireme to start from")
    parser.add_argument("--double", action="store_true", help="compute in fp64")
    parser.add_argument("--bf16", action="store_true", help="train under autocast to bf16")
    parser.add_argument("--whole", action="store_true", help="all images in each step")
    for name, default in [("ranks", 2), ("steps", 50), ("global-batch", 64), ("seed", 1), ("port", 29671),
                          ("patch-size", 4), ("layers", 6), ("width", 192), ("heads", 3), ("ffn-width", 768),
                          ("warmup-steps", 20), ("evaluate-interval", 0)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in [("learning-rate", 1e-3), ("weight-decay", 0.05)]:
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--stem", default="small")
    args = parser.parse_args()
    if args.ranks == 1:
        run(0, args)
        return
    torch.multiprocessing.spawn(run, (args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
