"""The peer of learner_kills.py under torchft: the lighthouse, or a learner with DiLoCo over Gloo.

    torchft_learner.py lighthouse ADDRESS MILLISECONDS
    torchft_learner.py learner LIGHTHOUSE ADDRESS PLACE EVERY LINES

A learner has a transformer of the size of trireme's there, and random tokens. It writes a line of JSON for each step to
LINES; after a committed round also the round's number and a hash of its weights. `run` tells trainings apart that have
begun anew: it is drawn by the one that begins, and taken with the weights by those that come later.
"""

import hashlib
import json
import os
import socket
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn

PORT = 29510
T, WORDS, WIDTH = 64, 257, 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 288, dropout=0.0, batch_first=True, norm_first=True, bias=False)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.output(self.layers(self.embedding(x), mask=mask, is_causal=True))


def lighthouse(address, milliseconds):
    from torchft.coordination import LighthouseServer
    server = LighthouseServer(bind=f"{address}:{PORT}", min_replicas=1, join_timeout_ms=milliseconds, quorum_tick_ms=100,
                              heartbeat_timeout_ms=milliseconds)
    print(f"lighthouse at {server.address()}", flush=True)
    time.sleep(1e6)


def learner(lighthouse_address, address, place, every, path):
    # torchft tells the others the host's name, which must be one that they reach. This host is the learner's alone.
    socket.sethostname(address)
    os.environ["GLOO_SOCKET_IFNAME"] = "trireme0"
    import torchft
    from torchft.local_sgd import DiLoCo

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Model()
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    run = {"run": uuid.uuid4().hex[:8]}

    def load(states):
        model.load_state_dict(states["model"])
        inner.load_state_dict(states["inner"])
        outer.load_state_dict(states["outer"])
        run.update(states["run"])

    def save():
        return {"model": model.state_dict(), "inner": inner.state_dict(), "outer": outer.state_dict(), "run": run}

    store = torch.distributed.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)), load_state_dict=load, state_dict=save,
                              min_replica_size=1, use_async_quorum=False, timeout=timedelta(seconds=10), rank=0, world_size=1,
                              store_addr=address, store_port=store.port, replica_id=f"learner{place}", hostname=address,
                              lighthouse_addr=f"http://{lighthouse_address}:{PORT}", init_sync=True)
    generator = torch.Generator().manual_seed(int(place))
    step = 0
    with DiLoCo(manager, [model], inner, outer, sync_every=int(every)), open(path, "a", buffering=1) as lines:
        while True:
            before = manager.current_step()
            tokens = torch.randint(WORDS, (1, T + 1), generator=generator)
            inner.zero_grad()
            nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            inner.step()
            step += 1
            line = {"step": step, "time": time.time()}
            if manager.current_step() > before:
                weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
                line |= {"round": manager.current_step(), "learners": manager.num_participants(), **run,
                         "hash": hashlib.sha256(weights).hexdigest()[:16]}
            lines.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "lighthouse":
        lighthouse(words[0], int(words[1]))
    else:
        learner(*words[:4], Path(words[4]))
