"""The rows of the comparison, by the name of a parallelism: each has peers and trireme's layouts.

Both sides of a row have the same global batch, sequences per rank times ranks. In every row tokens/s can
therefore be compared with those of as many independent processes. Data parallelism gives each rank its own
sequences; under tensor, pipeline and context parallelism all ranks work on all of them.
"""

from dataclasses import dataclass, field, replace

NAMES = ("ddp", "zero2", "zero3", "tensor", "pipeline", "context", "expert")
ACCUMULATING = NAMES[:3]  # their peers can split a step into microbatches
MEMORY_TARGET = 0.7


@dataclass(frozen=True)
class Row:
    name: str
    # Variants of one peer: the fastest is the peer at its best and has the target.
    peers: tuple[str, ...]
    # trireme's layouts by name, with their options; the fastest is compared.
    layouts: dict[str, list[str]]
    # Targets for tokens/s, by sequences per rank, and for peak memory.
    speed_targets: dict[int, float] = field(default_factory=dict)
    memory_target: float | None = None
    # Options of trireme's model, the same for all rows that are measured together.
    model: tuple[str, ...] = ()


def microbatches(batch):
    """Sequences per microbatch: a quarter and a half of a rank's. With 8 per rank, 2 and 4 were faster for the
    peer than 1 and 8 (3053 and 3153 tokens/s against 2898 and 2571)."""
    return sorted({max(1, batch // 4), max(1, batch // 2)})


def data_rows():
    zero = {stage: {f"zero {stage}": [f"--parallel.zero={stage}"]} for stage in (0, 2, 3)}
    rows = [Row("ddp", ("ddp",), zero[0], {8: 1.2, 1: 1.35}, MEMORY_TARGET),
            Row("ddp", ("ddp-compiled",), zero[0], {8: 1.1}, MEMORY_TARGET)]
    for stage in (2, 3):
        rows += [Row(f"zero{stage}", (f"fsdp2-zero{stage}",), zero[stage], {8: 1.35, 1: 2.0}, MEMORY_TARGET),
                 Row(f"zero{stage}", (f"deepspeed-zero{stage}",), zero[stage], {8: 1.5, 1: 1.5}, MEMORY_TARGET)]
    return rows


def model_rows(ranks, batch):
    whole, tensor = f"--train.micro_batch={batch * ranks}", f"--parallel.tensor={ranks}"
    sizes = microbatches(batch)
    return [
        Row("tensor", ("dtensor", "dtensor-sequence"),
            {f"tensor {ranks}": [whole, tensor, "--parallel.sequence_parallel=false"],
             f"tensor {ranks}, sequence": [whole, tensor, "--parallel.sequence_parallel=true"]},
            {8: 1.5, 1: 2.0}),
        Row("pipeline", tuple(f"pipelining-{size}" for size in sizes),
            {f"pipeline {ranks}, microbatch {size}": [f"--train.micro_batch={size}", "--parallel.schedule=1f1b",
                                                      f"--parallel.pipeline={ranks}"] for size in sizes},
            {8: 1.3}),
        Row("context", ("ring-allgather", "ring-alltoall"),
            {f"context {ranks}, {form}": [whole, f"--parallel.context={ranks}", f"--parallel.context_form={form}"]
             for form in ("ring", "all-to-all")}, {8: 1.5}),
    ]


# Eight experts, each as wide as the dense model's feed-forward, of which a token uses two.
SPARSE = ("--model.family=mixtral", "--model.experts=8", "--model.experts_per_token=2", "--model.balance_loss=0")


def expert_rows(ranks):
    if ranks == 1:
        return [Row("expert", ("transformers", "expert-loop"), {"expert 1": []}, {8: 1.5, 1: 1.5}, model=SPARSE)]
    layouts = {f"expert {ranks}": [f"--parallel.expert={ranks}"], "data": []}
    return [Row("expert", (peer,), layouts, {8: 2.0, 1: 3.0}, model=SPARSE) for peer in ("expert-loop", "deepspeed-moe")]


def chosen(names, peers, ranks, batch):
    """Rows by name, and of them only those with one of `peers` when given. On one rank only data
    parallelism without sharding and experts have something to compare."""
    for row in data_rows() + model_rows(ranks, batch) + expert_rows(ranks):
        kept = row.peers if peers is None else tuple(peer for peer in row.peers if peer in peers)
        if row.name in names and kept and (ranks > 1 or row.name in ("ddp", "expert")):
            yield replace(row, peers=kept)


def by_model(rows):
    """Rows of the same model are measured together."""
    groups = {}
    for row in rows:
        groups.setdefault(row.model, []).append(row)
    return groups.items()
