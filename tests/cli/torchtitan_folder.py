"""A distributed checkpoint as torchtitan saves it: FSDP2 on two ranks, with the optimizer and the trainer's state.

    torchtitan_folder.py WEIGHTS FOLDER [--nested]    WEIGHTS: safetensors with torchtitan's names

--nested: as its older versions, with the model's names below "model."
"""
import pathlib
import sys

import torch
import torch.distributed.checkpoint
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "harness"))
from torch_ranks import run_in_ranks  # noqa: E402

RANKS = 2


def module_of(weights):
    """Modules with parameters of these names, as many blocks as there are."""
    root = torch.nn.Module()
    for name, tensor in weights.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if part not in dict(module.named_children()):
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        module.register_parameter(last, torch.nn.Parameter(tensor))
    return root


def save(_, weights, folder, nested):
    model = module_of(load_file(weights))
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in model.layers.children():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    names = get_model_state_dict(model)
    states = {"optimizer": get_optimizer_state_dict(model, optimizer, options=flat),
              "lr_scheduler": {"last_epoch": 7}, "dataloader": {"dp_rank_0": b"position"},
              "train_state": {"step": torch.tensor(7), "ntokens_seen": torch.tensor(1000)},
              **({"model": names} if nested else names)}
    torch.distributed.checkpoint.save(states, checkpoint_id=folder)


if __name__ == "__main__":
    weights, folder, *options = sys.argv[1:]
    run_in_ranks(RANKS, save, weights, folder, "--nested" in options)
