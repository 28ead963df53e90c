#!/usr/bin/env python3
"""Steps per second of a DLRM: `trireme train` beside TorchRec and beside plain PyTorch.

  dlrm_vs_torchrec.py [--program build/release/bin/trireme] [--rounds 5] [--steps 60] [--batch 2048] [--rows 100000]
                      [--only plain,plain-ddp,torchrec,trireme]

26 tables x 100,000 rows x 64 in fp32, 13 dense features, bottom 512-256-64, top 512-256-1, dot products of all pairs, SGD
for tables and dense layers; ids by Zipf's law, one for each sample and table; 2,048 samples over all ranks. One rank and
two, one thread for each. The programs take turns; medians of the rounds' medians. Trireme reads its samples from the disk
and writes its metrics; the others have their batches in memory. TorchRec needs torchrec and fbgemm-gpu-cpu, of versions that
fit the torch that is installed (1.9.2 and 1.8.0 fit 2.13); its tables lie whole on one rank each, as it refuses tables
split by rows on CPUs.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TABLES, WIDTH, DENSE, RATE = 26, 64, 13, 0.01
BATCHES = 8
WARM_STEPS = 10


def draw_ids(rows, count, seed):
    """[count, TABLES] by Zipf's law."""
    random = torch.Generator().manual_seed(seed)
    chances = torch.arange(1, rows + 1, dtype=torch.double).pow(-1.05)
    columns = [torch.multinomial(chances, count, replacement=True, generator=random).mul(7919).add(t).remainder(rows)
               for t in range(TABLES)]
    return torch.stack(columns, 1)


def write_folder(folder, rows, count):
    """A prepared folder, see docs/design/feature-files.md."""
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 2, (count, 1), generator=random).float().numpy().astype("<f4")
    numbers = torch.rand(count, DENSE, generator=random).numpy().astype("<f4")
    ids = draw_ids(rows, count, 0).numpy().astype("<u4")
    records = np.concatenate([part.view(np.uint8).reshape(count, -1) for part in (labels, numbers, ids)], axis=1)
    (folder / "train.bin").write_bytes(records.tobytes())
    tables = [{"name": f"t{t}", "rows": rows, "min_ids": 1, "max_ids": 1, "side": "query"} for t in range(TABLES)]
    schema = {"format": "trireme-features", "version": 1, "dense": [f"d{d}" for d in range(DENSE)], "tables": tables,
              "label": "binary", "classes": [], "training_samples": count, "validation_samples": 0, "items": 0,
              "min_count": 0}
    (folder / "features.json").write_text(json.dumps(schema))


class Dlrm(torch.nn.Module):
    def __init__(self, embedded):
        super().__init__()
        self.embedded = embedded
        relu = torch.nn.ReLU
        linear = torch.nn.Linear
        self.bottom = torch.nn.Sequential(linear(DENSE, 512), relu(), linear(512, 256), relu(), linear(256, WIDTH), relu())
        pairs = (TABLES + 1) * TABLES // 2
        self.top = torch.nn.Sequential(linear(pairs + WIDTH, 512), relu(), linear(512, 256), relu(), linear(256, 1))
        self.register_buffer("places", torch.tril_indices(TABLES + 1, TABLES + 1, -1))

    def forward(self, dense, ids):
        x = self.bottom(dense)
        all_vectors = torch.cat([x.unsqueeze(1), self.embedded(ids)], 1)
        products = torch.bmm(all_vectors, all_vectors.transpose(1, 2))[:, self.places[0], self.places[1]]
        return self.top(torch.cat([x, products], 1)).squeeze(1)


class PlainTables(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for _ in range(TABLES))

    def forward(self, ids):
        offsets = torch.arange(ids.shape[0])
        return torch.stack([table(ids[:, t].contiguous(), offsets) for t, table in enumerate(self.tables)], 1)


class TorchRecTables(torch.nn.Module):
    """TorchRec's tables, whole on one rank each, with the fused optimizer."""

    def __init__(self, rows, ranks):
        super().__init__()
        import torchrec
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.model_parallel import DistributedModelParallel
        from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology

        self.names = [f"f{t}" for t in range(TABLES)]
        tables = [torchrec.EmbeddingBagConfig(name=f"t{t}", embedding_dim=WIDTH, num_embeddings=rows,
                                              feature_names=[self.names[t]]) for t in range(TABLES)]
        module = torchrec.EmbeddingBagCollection(device=torch.device("cpu"), tables=tables)
        sharder = EmbeddingBagCollectionSharder(
            fused_params={"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": RATE})
        planner = EmbeddingShardingPlanner(
            topology=Topology(world_size=ranks, compute_device="cpu"),
            constraints={f"t{t}": ParameterConstraints(sharding_types=["table_wise"]) for t in range(TABLES)})
        plan = planner.collective_plan(module, [sharder], dist.group.WORLD)
        self.model = DistributedModelParallel(module, device=torch.device("cpu"), plan=plan, sharders=[sharder])

    def forward(self, ids):
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        jagged = KeyedJaggedTensor(keys=self.names, values=ids.t().reshape(-1),
                                   lengths=torch.ones(ids.numel(), dtype=torch.int32))
        return self.model(jagged).wait().values().view(ids.shape[0], TABLES, WIDTH)


def run_torch(rank, ranks, way, options, port, result):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    count = options.batch // ranks
    tables = TorchRecTables(options.rows, ranks) if way == "torchrec" else PlainTables(options.rows)
    model = Dlrm(tables)
    dense = [p for name, p in model.named_parameters() if not name.startswith("embedded.")]
    step_of = [torch.optim.SGD(dense, lr=RATE)]
    if way != "torchrec":
        step_of.append(torch.optim.SGD(tables.parameters(), lr=RATE))
    trained = model
    if ranks > 1 and way != "torchrec":
        trained = torch.nn.parallel.DistributedDataParallel(model)
    elif ranks > 1:  # the tables are shared out, the rest is DDP's
        model.bottom = torch.nn.parallel.DistributedDataParallel(model.bottom)
        model.top = torch.nn.parallel.DistributedDataParallel(model.top)
    batches = [(torch.rand(count, DENSE), draw_ids(options.rows, count, 100 + b * ranks + rank),
                torch.randint(0, 2, (count,)).float()) for b in range(BATCHES)]
    seconds = []
    for step in range(options.steps):
        numbers, ids, labels = batches[step % BATCHES]
        start = time.perf_counter()
        for optimizer in step_of:
            optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.binary_cross_entropy_with_logits(trained(numbers, ids), labels).backward()
        for optimizer in step_of:
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        result.value = statistics.median(seconds[WARM_STEPS:])
    dist.destroy_process_group()


def torch_seconds(way, ranks, options, port):
    result = mp.get_context("spawn").Value("d", 0)
    mp.spawn(run_torch, (ranks, way, options, port, result), nprocs=ranks)
    return result.value


def trireme_seconds(ranks, options, folder, placement):
    with tempfile.TemporaryDirectory() as run:
        config = Path(run) / "config.toml"
        config.write_text(f"""[task]
name = "recommend"
[model]
family = "dlrm"
width = {WIDTH}
bottom = "512,256"
top = "512,256"
[data]
path = "{folder}"
[tables]
placement = "{placement}"
optimizer = "sgd"
[train]
steps = {options.steps}
global_batch = {options.batch}
micro_batch = {options.batch // ranks}
gradient_clip = 0
[optimizer]
name = "sgd"
learning_rate = {RATE}
momentum = 0
nesterov = false
schedule = "constant"
warmup_steps = 0
weight_decay = 0
[checkpoint]
interval = 0
[parallel]
cluster = "none"
[output]
folder = "{run}/run"
""")
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        subprocess.run([options.program, "train", str(config), "--ranks", str(ranks)], check=True, capture_output=True,
                       env=environment)
        lines = [json.loads(line) for line in (Path(run) / "run" / "metrics.jsonl").read_text().splitlines()]
        return statistics.median(line["step_seconds"] for line in lines[WARM_STEPS:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/trireme")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", default="plain,torchrec,trireme")
    options = parser.parse_args()
    ways = options.only.split(",")
    cases = [(way, ranks) for ranks in (1, 2) for way in ways if (way, ranks) != ("torchrec", 1)]
    seconds = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), options.rows, options.batch * 16)
        for number in range(options.rounds):
            for way, ranks in cases:
                if way == "trireme":
                    found = trireme_seconds(ranks, options, folder, "whole")
                else:
                    found = torch_seconds(way, ranks, options, 29700 + number)
                seconds[way, ranks].append(found)
    for (way, ranks), found in seconds.items():
        median = statistics.median(found)
        ours = statistics.median(seconds.get(("trireme", ranks), [median]))
        print(f"{ranks} ranks, {way:9s} {1e3 * median:8.2f} ms/step {1 / median:8.1f} steps/s, Trireme: {median / ours:.2f} times",
              flush=True)


if __name__ == "__main__":
    main()
