"""Tensor parallelism with DTensor, with and without sequence parallelism.

The embedding and the head are split over the vocabulary, the loss is taken on split logits
(loss_parallel). Every rank processes the whole batch.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, loss_parallel, parallelize_module)

from llama import HEADS, HEAD_WIDTH, WIDTH
from optimize import clip_across_ranks, torch_step


def group_qkv_by_rank(model, ranks):
    """Orders the rows of the joint matrix so that each rank's slice has the q, k and v of its own heads.
    The same model: without this, ColwiseParallel would give q to one rank and v to the other."""
    order = torch.arange(3 * WIDTH).view(3, ranks, HEADS // ranks * HEAD_WIDTH).transpose(0, 1).flatten()
    with torch.no_grad():
        for block in model.blocks:
            block.qkv.weight.copy_(block.qkv.weight[order])


def block_plan(between):
    """`between`: how activations lie between the split regions."""
    plan = {
        "qkv": ColwiseParallel(input_layouts=between),
        "out": RowwiseParallel(output_layouts=between),
        # Prepared once for gate and up: one collective forward and one backward instead of two.
        "ffn": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
        "ffn.gate": ColwiseParallel(),
        "ffn.up": ColwiseParallel(),
        "ffn.down": RowwiseParallel(output_layouts=between),
    }
    if between == Shard(1):
        # qkv reads the DTensor that the norm returns.
        plan |= {"attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel()}
    return plan


def parallelize(model, ranks, between):
    mesh = init_device_mesh("cpu", (ranks,))
    group_qkv_by_rank(model, ranks)
    plan = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            "output": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1),
                                      use_local_output=False)}
    if between == Shard(1):
        plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)
    for block in model.blocks:
        parallelize_module(block, mesh, block_plan(between))


def local_of(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_split(parameter):
    return isinstance(parameter, DTensor) and any(place.is_shard() for place in parameter.placements)


def dtensor(between):
    def build(model, ranks, batch):
        parallelize(model, ranks, between)
        # Clipping and AdamW see this rank's plain tensors: no dispatch through DTensor, and they refuse
        # a list of plain norms and split matrices.
        pairs = [(parameter, nn.Parameter(local_of(parameter.detach()))) for parameter in model.parameters()]
        split = [local for parameter, local in pairs if is_split(parameter)]
        whole = [local for parameter, local in pairs if not is_split(parameter)]

        def forward_backward(tokens, targets):
            with loss_parallel():
                loss = model(tokens, targets)
                loss.backward()
            for parameter, local in pairs:
                gradient, parameter.grad = parameter.grad, None
                if isinstance(parameter, DTensor):
                    gradient = gradient.redistribute(placements=parameter.placements)
                local.grad = local_of(gradient)
            return local_of(loss)

        return torch_step(split + whole, forward_backward, lambda: clip_across_ranks(split, whole))

    return build
