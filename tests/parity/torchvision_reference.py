"""torchvision's ResNet: the reference of resnet_test.cc.

Reads FOLDER/input.safetensors (parameters and buffers under their names, images, labels; the depth as
metadata) and writes FOLDER/reference.safetensors: logits and the loss's sum in training, every gradient of
that sum, and the buffers and the logits in evaluation after it.
"""

import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import torchvision_parts  # noqa: E402

torchvision_parts.use("torchvision", "torchvision.models")
from torchvision.models import resnet  # noqa: E402


def main(folder):
    with safe_open(f"{folder}/input.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        depth = file.metadata()["depth"]
    images, labels = tensors.pop("images"), tensors.pop("labels")
    model = getattr(resnet, f"resnet{depth}")(num_classes=tensors["fc.bias"].numel()).double()
    model.load_state_dict(tensors)
    logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    loss.backward()
    found = {"logits": logits, "loss": loss}
    found |= {f"grad.{name}": p.grad for name, p in model.named_parameters()}
    found |= {f"buffer.{name}": b for name, b in model.named_buffers()}
    model.eval()
    found["evaluated"] = model(images)
    save_file({name: t.detach().contiguous() for name, t in found.items()}, f"{folder}/reference.safetensors")


main(sys.argv[1])
