"""The parts of a step that all peers share: AdamW in one fused kernel and a gradient norm of at most 1."""

import contextlib

import torch
from torch import nn

CLIP = 1.0


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def clip_across_ranks(own, shared):
    """Clips by the norm of the whole model: `own` parameters lie only on this rank, `shared` ones on all,
    with equal gradients."""
    square = nn.utils.get_total_norm([parameter.grad for parameter in own]) ** 2
    torch.distributed.all_reduce(square)
    square += nn.utils.get_total_norm([parameter.grad for parameter in shared]) ** 2
    nn.utils.clip_grads_with_norm_([*own, *shared], CLIP, square.sqrt())


def microbatches(tokens, targets, size):
    """A step's sequences in parts of `size`, each with its share of the step."""
    for part in zip(tokens.split(size), targets.split(size)):
        yield *part, len(part[0]) / len(tokens)


def torch_step(parameters, forward_backward, clip=lambda: None):
    """`forward_backward` leaves gradients and returns the loss."""
    optimizer = adamw(parameters)

    def step(tokens, targets):
        loss = forward_backward(tokens, targets)
        clip()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def whole_step(model, step_model, microbatch=1 << 30, without_sync=contextlib.nullcontext):
    """`step_model` is called; `model` owns the parameters that the optimizer sees. Every microbatch but the last
    runs within without_sync()."""
    parameters = list(model.parameters())

    def forward_backward(tokens, targets):
        total, done = 0, 0
        for part, part_targets, share in microbatches(tokens, targets, microbatch):
            done += len(part)
            with contextlib.nullcontext() if done == len(tokens) else without_sync():
                loss = step_model(part, part_targets) * share
                loss.backward()
            total += loss.detach()
        return total

    return torch_step(parameters, forward_backward, lambda: nn.utils.clip_grad_norm_(parameters, CLIP))
