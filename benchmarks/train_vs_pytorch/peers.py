"""How each peer trains: for every name a function that turns a model into one step of training.

A step takes tokens and targets, updates the weights and returns a loss whose mean over the ranks is
that of all their sequences. All peers train the same model as optimize.py says. The process group
exists before these functions run if there are several ranks. `batch`: sequences per rank; the peers
of ON_SAME_SEQUENCES are given those of all ranks. `microbatch`: sequences per forward, for those of
ACCUMULATING; the others run all of theirs at once.
"""

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard

from context_peer import ring
from llama import IS_BF16
from moe_peer import MOE_PEERS
from optimize import CLIP, adamw, microbatches, whole_step
from pipeline_peer import pipelining
from tensor_peer import dtensor


def ddp(model, ranks, batch, microbatch):
    if ranks == 1:
        return whole_step(model, model, microbatch)
    step_model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return whole_step(model, step_model, microbatch, step_model.no_sync)


def ddp_compiled(model, ranks, batch, microbatch):
    # The inner module is compiled, then wrapped: PyTorch's "Where to apply torch.compile".
    model.compile()
    return ddp(model, ranks, batch, microbatch)


def fsdp2_options(model):
    """In bf16, parameters are gathered and blocks' inputs cast in bf16, and gradients summed in fp32."""
    model.autocasts = False
    if not IS_BF16:
        return {}
    return {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}


def fsdp2_zero2(model, ranks, batch, microbatch):
    """Parameters stay whole from forward to the end of backward; gradients and states are sharded, in each
    microbatch."""
    options = fsdp2_options(model)
    for module in (*model.blocks, model):
        fully_shard(module, reshard_after_forward=False, **options)
    return whole_step(model, model, microbatch)


def fsdp2_zero3(model, ranks, batch, microbatch):
    """Blocks are sharded again after forward. What the root owns (embedding, output) is not, which is
    PyTorch's default for a root: backward needs the output first of all."""
    options = fsdp2_options(model)
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=True, **options)
    fully_shard(model, **options)
    return whole_step(model, model, microbatch)


def deepspeed(stage):
    def build(model, ranks, batch, microbatch):
        model.autocasts = False
        import deepspeed  # Lives in an environment of its own; tools/setup_bench.sh makes it.

        config = {
            "train_micro_batch_size_per_gpu": microbatch,
            "gradient_accumulation_steps": batch // microbatch,
            "gradient_clipping": CLIP,
            "steps_per_print": 1 << 30,
            **({"bf16": {"enabled": True}} if IS_BF16 else {}),
            # Buckets of 16 MB instead of 2 GB, for a model of 35 MB: as fast, and less memory.
            "zero_optimization": {"stage": stage, "reduce_bucket_size": 4_000_000,
                                  "allgather_bucket_size": 4_000_000,
                                  "stage3_prefetch_bucket_size": 1_000_000},
        }
        # torch's fused AdamW: as fast here as DeepSpeed's CPU Adam, which would be compiled first.
        engine, *_ = deepspeed.initialize(model=model, optimizer=adamw(model.parameters()), config=config)

        def step(tokens, targets):
            total = 0
            for part, part_targets, share in microbatches(tokens, targets, microbatch):
                loss = engine(part, part_targets)
                engine.backward(loss)
                engine.step()
                total += loss.item() * share
            return total

        return step

    return build


ON_SAME_SEQUENCES = {
    "dtensor": dtensor(Replicate()), "dtensor-sequence": dtensor(Shard(1)),
    **{f"pipelining-{sequences}": pipelining(sequences) for sequences in (1, 2, 4, 8)},
    "ring-allgather": ring("allgather"), "ring-alltoall": ring("alltoall"),
}
ACCUMULATING = {
    "ddp": ddp, "ddp-compiled": ddp_compiled, "fsdp2-zero2": fsdp2_zero2, "fsdp2-zero3": fsdp2_zero3,
    "deepspeed-zero2": deepspeed(2), "deepspeed-zero3": deepspeed(3),
}
PEERS = {**ACCUMULATING, **ON_SAME_SEQUENCES, **MOE_PEERS}
