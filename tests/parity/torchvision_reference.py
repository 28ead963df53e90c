"""torchvision's ResNet: the reference of resnet_test.cc. Called with the folder of torchvision, and FOLDER.

Reads FOLDER/input.safetensors (parameters and buffers under their names, images, labels; the depth as
metadata) and writes FOLDER/reference.safetensors: logits and the loss's sum in training, every gradient of
that sum, and the buffers and the logits in evaluation after it.
"""

import importlib.util
import sys
import types

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def without_init(name):
    """A package whose __init__ is not run: it would load operators that the wheel has for CUDA only."""
    package = types.ModuleType(name)
    package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
    sys.modules[name] = package


sys.path.append(sys.argv[1])
without_init("torchvision")
without_init("torchvision.models")
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


main(sys.argv[2])
