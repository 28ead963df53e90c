"""Training programs of other people's frameworks, as their users write them: programs.py FRAMEWORK BACKEND FILE.

torchrun starts each rank. Rank 0 writes what the program logged to FILE, as JSON: losses of steps and what validation
averaged over the ranks.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS = 8
RANK = int(os.environ["RANK"])


def make_model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 4))


def make_data(count=16 * STEPS):
    source = torch.Generator().manual_seed(3)
    return torch.utils.data.TensorDataset(torch.randn(count, 16, generator=source),
                                          torch.randint(0, 4, (count,), generator=source))


def use(backend):
    if backend == "trireme":
        import trireme_torch  # noqa: F401


def lightning(backend):
    import lightning as L
    from lightning.pytorch.strategies import DDPStrategy

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model()
            self.losses = []

        def training_step(self, batch, _):
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.log("loss", loss, sync_dist=True)
            self.losses.append(self.all_gather(loss.detach()).mean().item())
            return loss

        def validation_step(self, batch, index):
            right = (self.model(batch[0]).argmax(1) == batch[1]).sum()
            # An average of integers, which Lightning asks of the backend.
            self.log("right", right, sync_dist=True, reduce_fx="max")
            self.log("batches", index + 1 + RANK, sync_dist=True)
            self.trainer.strategy.reduce(right, reduce_op="mean")

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    module = Module()
    loaders = [torch.utils.data.DataLoader(make_data(), batch_size=8) for _ in range(2)]
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend), max_epochs=2,
                        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, *loaders)
    return {"losses": module.losses, **{name: value.item() for name, value in trainer.callback_metrics.items()}}


def fabric(backend):
    import lightning as L
    from lightning.fabric.strategies import DDPStrategy

    fabric = L.Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend))
    fabric.launch()
    model = make_model()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    for x, y in fabric.setup_dataloaders(torch.utils.data.DataLoader(make_data(), batch_size=8)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(fabric.all_reduce(loss.detach(), reduce_op="mean").item())
    return {"losses": losses, "sum": fabric.all_reduce(torch.tensor(RANK + 3), reduce_op="mean").item()}


def accelerate(backend):
    dist.init_process_group(backend)  # first: Accelerate takes the group that it finds
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = make_model()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2),
                                                   torch.utils.data.DataLoader(make_data(), batch_size=8))
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    metrics = accelerator.gather_for_metrics(torch.arange(3) + RANK).tolist()
    return {"losses": losses, "metrics": metrics, "mean": accelerator.reduce(torch.tensor(4.0 + RANK), "mean").item()}


def transformers(backend):
    dist.init_process_group(backend)
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

    class Losses(TrainerCallback):
        logged = []

        def on_log(self, arguments, state, control, logs=None, **_):
            self.logged.append({name: value for name, value in logs.items() if name in ("loss", "grad_norm", "eval_loss")})

    set_seed(7)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32))
    tokens = torch.randint(0, 64, (64, 24), generator=torch.Generator().manual_seed(5))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(output_dir=sys.argv[3] + ".trainer", use_cpu=True, max_steps=STEPS, logging_steps=1,
                                  per_device_train_batch_size=4, save_strategy="no", report_to=[], disable_tqdm=True,
                                  eval_strategy="steps", eval_steps=4, gradient_accumulation_steps=2)
    Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[Losses()]).train()
    return {"logged": Losses.logged}


def deepspeed(backend, stage=1):
    dist.init_process_group(backend)
    import deepspeed

    # Its own all-reduce in shared memory, which it compiles for CPUs, would take the backend's place.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    model = make_model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage}, "gradient_clipping": 1.0, "steps_per_print": 1 << 30})
    losses = []
    for index in range(STEPS):
        x, y = make_data().tensors
        begin = 16 * index + 8 * RANK
        loss = nn.functional.cross_entropy(engine(x[begin:begin + 8]), y[begin:begin + 8])
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.SUM)
        losses.append(mean.item() / 2)
    return {"losses": losses}


def deepspeed_3(backend):
    return deepspeed(backend, stage=3)


FRAMEWORKS = {each.__name__: each for each in (lightning, fabric, accelerate, transformers, deepspeed, deepspeed_3)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    use(sys.argv[2])
    results = FRAMEWORKS[sys.argv[1]](sys.argv[2])
    assert dist.get_backend() == sys.argv[2], dist.get_backend()
    if RANK == 0:
        with open(sys.argv[3], "w") as file:
            json.dump(results, file)
    if dist.is_initialized():
        dist.destroy_process_group()
