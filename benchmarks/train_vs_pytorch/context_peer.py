"""Context parallelism with torch's ring attention (torch.distributed.tensor.experimental).

As shipped, context_parallel does not run on CPU. There scaled_dot_product_attention becomes
_scaled_dot_product_flash_attention_for_cpu, and torch 2.13 knows neither a way to shard it
("Operator aten._scaled_dot_product_flash_attention_for_cpu.default does not have a sharding strategy
registered") nor a ring for it (_context_parallel/_attention.py: _sdpa_handler's call_maps has the
flash, efficient and cuDNN kernels of GPUs). The one adaptation: RingAttention gives the CPU's
kernels to the two functions that run the ring for those, and enters them through autograd instead
of DTensor, which costs less. Ring, merging, load balance and sharding are torch's.
"""

import functools

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer

from llama import T
from optimize import whole_step

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
SEQUENCE_DIM = 2  # of q, k and v


class RingAttention(torch.autograd.Function):
    # Under autocast scaled_dot_product_attention takes all operands in bf16; so does this.
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(context, q, k, v, group):
        y, log_sum = _attention._templated_ring_attention(group, SEQUENCE_DIM, FLASH, q, k, v, is_causal=True)
        context.save_for_backward(q, k, v, y, log_sum)
        context.group = group
        return y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(context, y_gradient):
        q, k, v, y, log_sum = context.saved_tensors
        gradients = _attention._templated_ring_attention_backward(
            context.group, SEQUENCE_DIM, FLASH_BACKWARD, y_gradient, "grad_out", q, k, v, y, log_sum,
            is_causal=True, dropout_p=0.0)
        return *gradients, None


def ring(rotation):
    """`rotation`: how keys and values travel, "allgather" or "alltoall"."""
    def build(model, ranks, batch):
        mesh = init_device_mesh("cpu", (ranks,))
        _attention.set_rotate_method(rotation)
        balance = _HeadTailLoadBalancer(T, ranks, "cpu")
        shard = functools.partial(_attention._context_parallel_shard, mesh, load_balancer=balance)
        # Gradients are averaged as in data parallelism: each rank has as many tokens as the others.
        step_model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True,
                                                         broadcast_buffers=False)
        # After DistributedDataParallel, which makes buffers equal: each rank has its own positions.
        model.cos, model.sin = shard(buffers=[model.cos, model.sin], seq_dims=[0, 0])
        for block in model.blocks:
            block.attend = lambda q, k, v: RingAttention.apply(q, k, v, mesh.get_group())
        step = whole_step(model, step_model)
        return lambda tokens, targets: step(*shard(buffers=[tokens, targets], seq_dims=[1, 1]))

    return build
