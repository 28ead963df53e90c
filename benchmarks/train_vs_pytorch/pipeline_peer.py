"""Pipeline parallelism with torch.distributed.pipelining: two stages under 1F1B.

The first stage has the embedding and FIRST_STAGE_LAYERS layers, the second the other layers, the
norm, the head and the loss.
"""

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from llama import cross_entropy
from optimize import clip_across_ranks, torch_step

# Forward and backward of 2 sequences, CPU time of the two stages: 119 and 144 ms with 4 layers in the
# first, 149 and 105 with 5. Head and loss take as long as 2.8 layers; both stages update as many weights
# in the embedding and in the head.
FIRST_STAGE_LAYERS = 4


def keep_stage(model, is_first):
    if is_first:
        model.blocks, model.norm, model.output = model.blocks[:FIRST_STAGE_LAYERS], None, None
    else:
        model.blocks, model.embedding = model.blocks[FIRST_STAGE_LAYERS:], None


def pipelining(sequences):
    """`sequences`: the number of sequences per microbatch."""
    def build(model, ranks, batch):
        rank, microbatches = torch.distributed.get_rank(), batch * ranks // sequences
        if ranks != 2 or microbatches < ranks:
            raise ValueError(f"{ranks} ranks with microbatches of {sequences} sequences: this peer has two"
                             " stages and at least a microbatch for each")
        keep_stage(model, rank == 0)
        stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
        # Each loss is divided here instead of all gradients at the end of a step.
        schedule = Schedule1F1B(stage, microbatches, scale_grads=False,
                                loss_fn=lambda logits, targets: cross_entropy(logits, targets) / microbatches)
        parameters = list(model.parameters())

        def forward_backward(tokens, targets):
            if rank == 0:
                schedule.step(tokens, return_outputs=False)
                return torch.zeros(())
            losses = []
            schedule.step(target=targets, losses=losses, return_outputs=False)
            # The loss of all ranks is their mean, and the first stage has none.
            return torch.stack(losses).detach().sum() * ranks

        return torch_step(parameters, forward_backward, lambda: clip_across_ranks(parameters, []))

    return build
