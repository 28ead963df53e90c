#!/usr/bin/env python3
"""The hooks of torch.distributed.algorithms on backend "trireme" and on gloo: the same losses, bit for bit, on two ranks.

Hooks of DDP run as callbacks of futures; some call collectives there and wait for them.
"""

import functools
import sys
import unittest
import warnings

import torch
import torch._dynamo  # here, not in each forked rank
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms import ddp_comm_hooks
from torch.distributed.algorithms._comm_hooks import default_hooks as fsdp_hooks
from torch.distributed.algorithms._optimizer_overlap.optimizer_overlap import _as_overlapped_optim
from torch.distributed.algorithms._quantization.quantization import DQuantType, auto_quantize
from torch.distributed.algorithms.ddp_comm_hooks import (ddp_zero_hook, default_hooks, post_localSGD_hook, powerSGD_hook,
                                                                quantization_hooks)
from torch.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import ranks

STEPS = 6
ZERO_LEARNS = 2  # steps
SEVERAL = 0.01  # MB of a bucket: the model has several
ONE = 25  # a hook that calls collectives in callbacks needs one bucket, or ranks call them in different orders


def make_model(seed=7):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 4))


def ddp(megabytes=SEVERAL, **options):
    return DistributedDataParallel(make_model(), bucket_cap_mb=megabytes, **options)


def train(rank, model, optimizer, after_step=lambda: None, steps=STEPS):
    """The losses of a rank, which its peers' gradients have shaped."""
    source = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(steps):
        if optimizer is not None:
            optimizer.zero_grad()
        loss = model(torch.randn(8, 16, generator=source)).square().mean()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        after_step()
        losses.append(loss.item())
    return losses


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def registered(kind, megabytes, rank):
    model = ddp(megabytes)
    ddp_comm_hooks.register_ddp_comm_hook(ddp_comm_hooks.DDPCommHookType[kind], model)
    return train(rank, model, sgd(model))


def power_sgd(hook, rank, start=2, **options):
    model = ddp(ONE)
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=start, min_compression_rate=0.5, **options)
    model.register_comm_hook(state, hook)
    losses = train(rank, model, sgd(model))
    assert state.total_numel_before_compression > state.total_numel_after_compression > 0  # it did compress
    return losses


def wrapped(wrapper, rank):
    model = ddp(ONE)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, wrapper(powerSGD_hook.powerSGD_hook))
    return train(rank, model, sgd(model))


def post_local_sgd(rank):
    model = ddp()
    state = post_localSGD_hook.PostLocalSGDState(process_group=None, subgroup=dist.new_group(), start_localSGD_iter=3)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(sgd(model), averagers.PeriodicModelAverager(period=2, warmup_steps=3))
    return train(rank, model, optimizer)


def hierarchical_averages(rank):
    from collections import OrderedDict
    model = make_model()
    averager = hierarchical_model_averager.HierarchicalModelAverager(
        period_group_size_dict=OrderedDict([(2, dist.get_world_size())]), warmup_steps=1)
    return train(rank, model, sgd(model), lambda: averager.average_parameters(model.parameters()))


def zero_step(hook, rank):
    """The optimizer's step of a bucket, within its hook. torch refuses it on a backend that is called gloo, where the
    same steps are done behind the backward pass; the hook leaves out the first ones, in which it learns the buckets.
    """
    model = ddp(gradient_as_bucket_view=True)
    if dist.get_backend() == "gloo":
        optimizer = sgd(model)
        steps = iter(range(STEPS))
        optimizer.register_step_pre_hook(lambda *_: next(steps) < ZERO_LEARNS and model.zero_grad() or None)
        return train(rank, model, optimizer)
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    model.register_comm_hook(None, hook(default_hooks.allreduce_hook, model, zero))
    return train(rank, model, zero)


def overlapped_optimizer(rank):
    model = ddp()
    _as_overlapped_optim(torch.optim.SGD, model.parameters(), lr=0.1).register_ddp(model)
    return train(rank, model, None)


def optimizer_in_backward(rank):
    from torch.distributed.optim import _apply_optimizer_in_backward
    model = make_model()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    return train(rank, DistributedDataParallel(model, bucket_cap_mb=SEVERAL), None)


def fsdp(hook, strategy, rank):
    model = FullyShardedDataParallel(make_model(), sharding_strategy=strategy, device_id=torch.device("cpu"))
    state_of = fsdp_hooks.DefaultState if hook in (fsdp_hooks.allreduce_hook, fsdp_hooks.reduce_scatter_hook) \
        else fsdp_hooks.LowPrecisionState
    model.register_comm_hook(state_of(process_group=dist.group.WORLD), hook)
    return train(rank, model, sgd(model))


def quantized_collectives(rank):
    results = []
    for kind in (DQuantType.FP16,):
        mine = torch.randn(5, 3, generator=torch.Generator().manual_seed(rank))
        gathered = [torch.zeros(5, 3) for _ in range(dist.get_world_size())]
        auto_quantize(dist.all_gather, kind)(gathered, mine)
        results += torch.stack(gathered).flatten().tolist()
    return results


def quantized(hook, rank):
    model = ddp(ONE)
    model.register_comm_hook(dist.group.WORLD, hook)
    return train(rank, model, sgd(model))


POWER_SGD = functools.partial(power_sgd, powerSGD_hook.powerSGD_hook)
HOOKS = {kind.name.lower(): functools.partial(registered, kind.name, SEVERAL)
         for kind in ddp_comm_hooks.DDPCommHookType if not kind.name.startswith(("QUANTIZE", "BF16"))}
HOOKS |= {
    "power_sgd_that_compresses": functools.partial(POWER_SGD, matrix_approximation_rank=1),
    "power_sgd_in_batches": functools.partial(POWER_SGD, matrix_approximation_rank=2, batch_tensors_with_same_shape=True,
                                              warm_start=False),
    "fp16_wrapper": functools.partial(wrapped, default_hooks.fp16_compress_wrapper),
    "post_local_sgd": post_local_sgd,
    "hierarchical_averages": hierarchical_averages,
    "zero_step": functools.partial(zero_step, ddp_zero_hook.hook_with_zero_step),
    "zero_step_interleaved": functools.partial(zero_step, ddp_zero_hook.hook_with_zero_step_interleaved),
    "overlapped_optimizer": overlapped_optimizer,
    "fsdp_all_reduce": functools.partial(fsdp, fsdp_hooks.allreduce_hook, ShardingStrategy.NO_SHARD),
    "fsdp_reduce_scatter": functools.partial(fsdp, fsdp_hooks.reduce_scatter_hook, ShardingStrategy.FULL_SHARD),
    "quantized_collectives": quantized_collectives,
}
# What torch 2.13 cannot do for tensors on the CPU, whatever the backend: the function, and torch's words.
NOT_ON_CPU = {
    "bf16_compress": (functools.partial(registered, "BF16_COMPRESS", SEVERAL), "required CUDA 11+ and NCCL"),
    "bf16_wrapper": (functools.partial(wrapped, default_hooks.bf16_compress_wrapper), "required CUDA 11+ and NCCL"),
    "batched_power_sgd": (functools.partial(power_sgd, powerSGD_hook.batched_powerSGD_hook), "in _orthogonalize"),
    "quantize_per_tensor": (functools.partial(quantized, quantization_hooks.quantization_pertensor_hook),
                            "dequantize_and_aggregate"),
    "quantize_per_channel": (functools.partial(quantized, quantization_hooks.quantization_perchannel_hook),
                             "dequantize_and_aggregate"),
    "fsdp_fp16": (functools.partial(fsdp, fsdp_hooks.fp16_compress_hook, ShardingStrategy.FULL_SHARD),
                  "unknown parameter type"),
    "fsdp_bf16": (functools.partial(fsdp, fsdp_hooks.bf16_compress_hook, ShardingStrategy.NO_SHARD),
                  "unknown parameter type"),
    "optimizer_in_backward": (optimizer_in_backward, "Cannot access accelerator device"),
}


def all_hooks(rank):
    return {name: hook(rank) for name, hook in HOOKS.items()}


def nested(rank):
    """Chains of callbacks that each call a collective and wait for it, several at the same time, each in its group."""
    groups = [dist.new_group() for _ in range(4)]

    def deeper(group, depth, future):
        value = future.value()[0] / 2
        if depth == 0:
            return value
        below = dist.all_reduce(value, group=group, async_op=True).get_future()
        return below.then(functools.partial(deeper, group, depth - 1)).wait()

    ends = []
    for index, group in enumerate(groups):
        work = dist.all_reduce(torch.full((3,), float(index + rank)), group=group, async_op=True)
        ends.append(work.get_future().then(functools.partial(deeper, group, 5)))
    return [end.wait().tolist() for end in ends]


def synchronous(rank):
    def reduce_again(future):
        value = future.value()[0]
        dist.all_reduce(value)
        return value

    work = dist.all_reduce(torch.ones(3), async_op=True)
    return work.get_future().then(reduce_again).wait().tolist()


class Hooks(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", FutureWarning)  # FSDP's NO_SHARD

    def test_losses_are_those_of_gloo(self):
        ours, gloo = ranks.run(2, all_hooks), ranks.run(2, all_hooks, backend="gloo")
        for name in HOOKS:
            with self.subTest(name):
                self.assertEqual([losses[name] for losses in ours], [losses[name] for losses in gloo])
        self.assertNotEqual(ours[0]["noop"], ours[0]["allreduce"])  # the comparison can fail

    def test_what_torch_cannot_do_on_cpus_fails_alike(self):
        for name, (hook, words) in NOT_ON_CPU.items():
            for backend in ("trireme", "gloo"):
                with self.subTest(name, backend=backend), self.assertRaises(AssertionError) as failure:
                    ranks.run(2, hook, backend=backend)
                self.assertIn(words, str(failure.exception))

    def test_callbacks_wait_for_collectives_that_they_call(self):
        for world in (1, 2, 3):
            means = [(2 * index + world - 1) / 2 for index in range(4)]  # of two ranks: each halves a sum
            expected = [[mean * world / 2 * (world / 2) ** 5] * 3 for mean in means]
            self.assertEqual(ranks.run(world, nested), [expected] * world)

    def test_callbacks_call_synchronous_collectives(self):
        self.assertEqual(ranks.run(2, synchronous), [[4.0] * 3] * 2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
