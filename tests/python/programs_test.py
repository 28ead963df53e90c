#!/usr/bin/env python3
"""Unmodified DDP, FSDP2 and DTensor programs on backend "trireme" and on gloo: the same losses.

Two ranks: a sum of two numbers does not depend on its order and both backends round it once, so the
losses must be equal bit for bit. Where a program's own arithmetic differs by backend, it says so.
"""

import os
import sys
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import ranks

STEPS = 12


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width + 1)  # uneven over two ranks
        self.down = nn.Linear(3 * width + 1, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def make_model(width=33, even=False):
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(17, width), Block(width), Block(width), nn.Linear(width, 5))
    if even:  # parallelize_module of tensor parallelism wants it
        for block in (model[1], model[2]):
            block.up, block.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    return model


def train(rank, model, optimizer, shared_batch=False):
    """Losses of STEPS steps, averaged over the ranks."""
    source = torch.Generator().manual_seed(11 if shared_batch else 100 + rank)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(8, 17, generator=source)
        y = torch.randint(0, 5, (8,), generator=source)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append((total / dist.get_world_size()).item())
    return losses


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def ddp(rank, **options):
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01, **options)  # several buckets
    return train(rank, model, adam(model))


def ddp_static_graph(rank):
    return ddp(rank, static_graph=True, gradient_as_bucket_view=True)


def ddp_fp16_hook(rank):
    """A communication hook chains on our future. Gradients are summed in fp16."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(rank, model, adam(model))


def ddp_accumulating(rank):
    model = DistributedDataParallel(make_model())
    optimizer = adam(model)
    source = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(4, 17, generator=source)).square().mean().backward()
        loss = model(torch.randn(4, 17, generator=source)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp_uneven_inputs(rank):
    from torch.distributed.algorithms.join import Join
    model = DistributedDataParallel(make_model())
    optimizer = adam(model)
    source = torch.Generator().manual_seed(100 + rank)
    losses = []
    with Join([model]):
        for _ in range(STEPS - 3 * rank):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 17, generator=source)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def ddp_sparse_embedding(rank):
    torch.manual_seed(7)
    table = nn.Embedding(50, 8, sparse=True)
    model = DistributedDataParallel(nn.Sequential(table, nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    source = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randperm(50, generator=source)[:9]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fsdp2(rank, **options):
    model = make_model()
    for block in (model[1], model[2]):
        fully_shard(block, **options)
    fully_shard(model, **options)
    return train(rank, model, adam(model))


def fsdp2_bf16(rank):
    return fsdp2(rank, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def fsdp2_kept(rank):
    return fsdp2(rank, reshard_after_forward=False)


def fsdp2_hybrid(rank):
    """Replicated over two pairs, sharded in each: four ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return fsdp2(rank, mesh=mesh)


def tensor_parallel(rank):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make_model(width=32, even=True)
    for block in (model[1], model[2]):
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(rank, model, adam(model), shared_batch=True)


def tensor_parallel_of_fsdp2(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = make_model(width=32, even=True)
    for block in (model[1], model[2]):
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    return train(rank // 2, model, adam(model))


def dtensor_redistribution(rank):
    """Every pair of placements, uneven shards included; values are exact."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    full = torch.arange(7 * 5, dtype=torch.float64).view(7, 5)
    placements = [Replicate(), Shard(0), Shard(1)]
    seen = []
    for source in placements:
        for target in placements:
            moved = distribute_tensor(full, mesh, [source]).redistribute(mesh, [target])
            assert torch.equal(moved.full_tensor(), full), (source, target)
            seen.append(moved.to_local().sum().item())
    for target in placements:
        partial = DTensor.from_local(full * (rank + 1), mesh, [Partial()])
        expected = full * sum(r + 1 for r in range(dist.get_world_size()))
        assert torch.equal(partial.redistribute(mesh, [target]).full_tensor(), expected), target
        seen.append(partial.redistribute(mesh, [target]).to_local().sum().item())
    return seen


class Programs(unittest.TestCase):
    def compare(self, program, world=2):
        ours = ranks.run(world, program)
        gloo = ranks.run(world, program, backend="gloo")
        self.assertEqual(len(ours[0]) > 0, True)
        self.assertEqual(ours, gloo)


for program in (ddp, ddp_static_graph, ddp_fp16_hook, ddp_accumulating, ddp_uneven_inputs, ddp_sparse_embedding, fsdp2,
                fsdp2_bf16, fsdp2_kept, tensor_parallel, dtensor_redistribution):
    setattr(Programs, f"test_{program.__name__}_has_gloos_losses", lambda self, program=program: self.compare(program))

if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
