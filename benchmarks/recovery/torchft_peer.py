"""The peer of recovery.py under torchft: one of two replicas, which takes its states from the other one when it starts.

The model and the tokens are those of torchrun_peer.py. A step counts when it is committed; the replicas append a line
to steps.jsonl, with the number of replicas that took part. With one replica less the batch is smaller.
Gradients are averaged by Manager.allreduce: the hook of torchft's own DistributedDataParallel (0.2.0, Gloo) fails an
assertion when the other replica is lost, which ends the survivor too and starts training anew at step 1.

    torchft_peer.py FOLDER REPLICA MIN_REPLICAS
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torchft
from torchrun_peer import STEPS, Model, loss_of


def main():
    folder, replica, least = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    module = Model()
    plain = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)

    def load(states):
        module.load_state_dict(states["model"])
        plain.load_state_dict(states["optimizer"])

    def save():
        return {"model": module.state_dict(), "optimizer": plain.state_dict()}

    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)), load_state_dict=load,
                              state_dict=save, min_replica_size=least, replica_id=f"replica{replica}",
                              timeout=timedelta(seconds=10))
    optimizer = torchft.Optimizer(manager, plain)
    while manager.current_step() < STEPS:
        before = manager.current_step()
        optimizer.zero_grad()
        loss_of(module, before + 1, replica).backward()
        gradients = [parameter.grad for parameter in module.parameters()]
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        manager.allreduce(whole).wait()
        for gradient, part in zip(gradients, whole.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(part.view_as(gradient))
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if manager.current_step() > before:
            with open(folder / "steps.jsonl", "a") as file:
                file.write(json.dumps({"step": manager.current_step(), "replicas": manager.num_participants()}) + "\n")


if __name__ == "__main__":
    main()
