"""Mixtures of experts in PyTorch: the same blocks as trireme's, shared out over ranks or on one.

expert_loop is written as torchtitan writes it (torchtitan/models/moe: a router, a stable sort of the tokens by
expert, a loop over the experts; torchtitan/distributed/expert_parallel.py: one exchange of the counts, then of the
rows with all_to_all_single in both directions). Dense parameters go through DistributedDataParallel.
"""

import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

from llama import FFN, HEADS, LAYERS, VOCAB, WIDTH, FeedForward, T, cross_entropy
from optimize import clip_across_ranks, torch_step, whole_step

EXPERTS, PER_TOKEN = 8, 2


class Experts(nn.Module):
    """The experts of this rank; each weight of all of them is one tensor."""

    def __init__(self, count):
        super().__init__()
        self.gate = nn.Parameter(torch.empty(count, FFN, WIDTH))
        self.up = nn.Parameter(torch.empty(count, FFN, WIDTH))
        self.down = nn.Parameter(torch.empty(count, WIDTH, FFN))

    def forward(self, rows, counts):
        """`rows`: those of the first expert first; `counts`: how many each has."""
        outputs = []
        for expert, x in enumerate(rows.split(counts)):
            hidden = F.silu(x @ self.gate[expert].t()) * (x @ self.up[expert].t())
            outputs.append(hidden @ self.down[expert].t())
        return torch.cat(outputs)


class MixtureOfExperts(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts(EXPERTS // ranks)

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        scores, chosen = self.router(x).float().softmax(-1).topk(PER_TOKEN)
        scores = scores / scores.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        tokens = order // PER_TOKEN
        rows = self.everywhere(x[tokens], counts)
        rows = rows * scores.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, tokens, rows).view(shape)

    def everywhere(self, rows, counts):
        if self.ranks == 1:
            return self.experts(rows, counts.tolist())
        theirs = torch.empty_like(counts)
        distributed.all_to_all_single(theirs, counts)
        by_rank = theirs.view(self.ranks, -1)
        sent, received = counts.view(self.ranks, -1).sum(1).tolist(), by_rank.sum(1).tolist()
        group = distributed.group.WORLD
        arrived = all_to_all_single_autograd(rows, received, sent, group)
        # They arrive rank by rank; the experts read them expert by expert.
        expert = torch.arange(by_rank.shape[1]).repeat(self.ranks).repeat_interleave(theirs)
        order = expert.argsort(stable=True)
        outputs = self.experts(arrived[order], by_rank.sum(0).tolist())
        back = torch.empty_like(outputs).index_copy(0, order, outputs)
        return all_to_all_single_autograd(back, sent, received, group)


class DeepSpeedExperts(nn.Module):
    """DeepSpeed's own layer: its gate, its exchange, and a module for each expert of this rank. It drops no tokens."""

    def __init__(self, ranks):
        super().__init__()
        from deepspeed.moe.layer import MoE  # Lives in an environment of its own.

        self.moe = MoE(WIDTH, FeedForward(), EXPERTS, ep_size=ranks, k=PER_TOKEN, drop_tokens=False,
                       top2_2nd_expert_sampling=False)
        self.moe.set_deepspeed_parallelism()

    def forward(self, x):
        return self.moe(x)[0]

    def load(self, theirs, name, own):
        layer = self.moe.deepspeed_moe
        layer.gate.wg.weight.copy_(theirs[name + "gate.weight"])
        for number, expert in enumerate(layer.experts.deepspeed_experts):
            for part in ("gate", "up", "down"):
                getattr(expert, part).weight.copy_(theirs[f"{name}experts.{part}_proj"][own][number])


def load_deepspeed_experts(model, theirs, rank, ranks):
    import deepspeed

    deepspeed.init_distributed("gloo")
    own = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    for layer, block in enumerate(model.blocks):
        block.ffn = DeepSpeedExperts(ranks)
        with torch.no_grad():
            block.ffn.load(theirs, f"model.layers.{layer}.mlp.", own)


def load_experts(model, theirs, rank, ranks):
    """Gives sparse blocks the weights of trireme's checkpoint."""
    own = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    for layer, block in enumerate(model.blocks):
        if isinstance(block.ffn, FeedForward):
            block.ffn = MixtureOfExperts(ranks)
        name = f"model.layers.{layer}.mlp."
        with torch.no_grad():
            block.ffn.router.weight.copy_(theirs[name + "gate.weight"])
            for part in ("gate", "up", "down"):
                getattr(block.ffn.experts, part).copy_(theirs[f"{name}experts.{part}_proj"][own])


def expert_loop(model, ranks, batch):
    if ranks == 1:
        return whole_step(model, model)
    names = [name for name, _ in model.named_parameters() if ".experts." in name]  # DeepSpeed's too
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    step_model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    experts = [parameter for name, parameter in model.named_parameters() if name in names]
    shared = [parameter for name, parameter in model.named_parameters() if name not in names]

    def forward_backward(tokens, targets):
        loss = step_model(tokens, targets)
        loss.backward()
        for parameter in experts:  # sums over the tokens of all ranks; the others are means over ranks
            parameter.grad /= ranks
        return loss

    return torch_step([*experts, *shared], forward_backward, lambda: clip_across_ranks(experts, shared))


class Mixtral(nn.Module):
    """transformers' own model, with its default way to run experts."""

    def __init__(self):
        super().__init__()
        from transformers import MixtralConfig, MixtralForCausalLM  # Lives in an environment of its own.

        self.model = MixtralForCausalLM(MixtralConfig(
            vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=T,
            num_local_experts=EXPERTS, num_experts_per_tok=PER_TOKEN, rms_norm_eps=1e-5,
            rope_theta=10000.0, sliding_window=None, use_cache=False, router_aux_loss_coef=0.0))

    def forward(self, tokens, targets):
        return cross_entropy(self.model(input_ids=tokens).logits, targets)


def load_mixtral(model, theirs):
    def renamed(name, tensor):
        if name.endswith(".experts.up_proj"):
            return None
        if name.endswith(".experts.gate_proj"):
            both = [tensor, theirs[name.replace("gate_proj", "up_proj")]]
            return name.replace("gate_proj", "gate_up_proj"), torch.cat(both, 1)
        return name, tensor

    weights = dict(filter(None, (renamed(name, tensor) for name, tensor in theirs.items()
                                 if name.startswith(("model.", "lm_head.")))))
    model.model.load_state_dict(weights)


def transformers_mixtral(model, ranks, batch):
    return whole_step(model, model)


MOE_PEERS = {"expert-loop": expert_loop, "deepspeed-moe": expert_loop, "transformers": transformers_mixtral}
