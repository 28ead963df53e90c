#!/usr/bin/env python3
"""Steps of embedding tables on two ranks: TorchRec on Gloo beside embedding_lookup_benchmark.

  torchrec_lookup.py [--program build/release/bin/embedding_lookup_benchmark] [--rounds 3]

26 tables x 100,000 rows x 64 in fp32, 2,048 samples over both ranks, one id for each sample and table by Zipf's law; a
step looks up, goes back from a given gradient and updates the rows. One thread for each rank. The two programs take
turns. Needs torchrec and fbgemm-gpu-cpu, of versions that fit the torch that is installed (1.9.2 and 1.8.0 fit 2.13).
TorchRec refuses tables split by rows on CPUs, so its tables lie whole on one rank each.
"""

import argparse
import os
import re
import statistics
import subprocess
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, TABLES, ROWS, WIDTH, SAMPLES, BATCHES, ROUNDS = 2, 26, 100_000, 64, 2048, 8, 9
RULES = {"sgd": "EXACT_SGD", "rowwise-adagrad": "EXACT_ROWWISE_ADAGRAD"}


def make_model(rule):
    import torchrec
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology

    tables = [torchrec.EmbeddingBagConfig(name=f"t{t}", embedding_dim=WIDTH, num_embeddings=ROWS, feature_names=[f"f{t}"])
              for t in range(TABLES)]
    module = torchrec.EmbeddingBagCollection(device=torch.device("cpu"), tables=tables)
    sharder = EmbeddingBagCollectionSharder(
        fused_params={"optimizer": getattr(EmbOptimType, RULES[rule]), "learning_rate": 0.01})
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=RANKS, compute_device="cpu"),
        constraints={f"t{t}": ParameterConstraints(sharding_types=["table_wise"]) for t in range(TABLES)})
    plan = planner.collective_plan(module, [sharder], dist.group.WORLD)
    return DistributedModelParallel(module, device=torch.device("cpu"), plan=plan, sharders=[sharder])


def make_batches(rank, count):
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    chances = torch.arange(1, ROWS + 1, dtype=torch.double).pow(-1.05)
    batches = []
    for batch in range(BATCHES):
        random = torch.Generator().manual_seed(batch * RANKS + rank)
        ids = [torch.multinomial(chances, count, replacement=True, generator=random).mul(7919).add(t).remainder(ROWS)
               for t in range(TABLES)]
        batches.append(KeyedJaggedTensor(keys=[f"f{t}" for t in range(TABLES)], values=torch.cat(ids),
                                         lengths=torch.ones(TABLES * count, dtype=torch.int32)))
    return batches


def run(rank, rule, port, result):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, batches = make_model(rule), make_batches(rank, SAMPLES // RANKS)
    gradient = torch.rand(SAMPLES // RANKS, TABLES * WIDTH) * 1e-3
    seconds = []
    for _ in range(ROUNDS + 2):
        dist.barrier()
        start = time.perf_counter()
        for ids in batches:
            model(ids).wait().values().backward(gradient)
        dist.barrier()
        seconds.append((time.perf_counter() - start) / BATCHES)
    if rank == 0:
        result.value = 1e3 * statistics.median(seconds[2:])
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/embedding_lookup_benchmark")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    result = mp.get_context("spawn").Value("d", 0)
    for rule in RULES:
        theirs, ours = [], []
        for number in range(arguments.rounds):
            mp.spawn(run, (rule, 29600 + number, result), nprocs=RANKS)
            theirs.append(result.value)
            text = subprocess.run([arguments.program, rule, str(ROUNDS)], check=True, capture_output=True, text=True).stdout
            ours.append(float(re.search(r"^whole +([\d.]+)", text, re.MULTILINE)[1]))
        print(f"{rule}: TorchRec {statistics.median(theirs):.2f} ms/step, Trireme {statistics.median(ours):.2f}, "
              f"{statistics.median(theirs) / statistics.median(ours):.1f} times as many steps", flush=True)


if __name__ == "__main__":
    main()
