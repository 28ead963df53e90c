"""A diffusion transformer and schedules computed by diffusers: the reference of dit_test.cc.

reference.py FOLDER...: config.json of a folder has a kind and arguments, input.safetensors what it reads. The result goes
to output.safetensors. kind "model": the arguments of DiTTransformer2DModel; weights, images, timesteps, classes and a
target; gives the noise, the sum of squares and every gradient of it. kind "schedule": the arguments of the schedulers and
the steps of a sampling; images, noise and timesteps; gives the noisy images, the timesteps of the sampling, and what each
step of it makes of images and noise.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
from diffusers import DDIMScheduler, DDPMScheduler
from safetensors.torch import load_file, save_file

EMBEDDER = "norm1.emb."


def shared(model):
    """The model with one embedder for all blocks, as in the paper: diffusers gives each block a copy."""
    for block in model.transformer_blocks:
        block.norm1.emb = model.transformer_blocks[0].norm1.emb
    return model


def run_model(config, given):
    # Only here, as it takes seconds.
    from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel
    dtype = given["images"].dtype
    # Without dropout of classes: the null class is among those given.
    model = shared(DiTTransformer2DModel(**config)).to(dtype).eval()
    weights = {}
    for name in model.state_dict():
        weights[name] = given["emb." + name.split(EMBEDDER)[1] if EMBEDDER in name else name]
    model.load_state_dict(weights)
    # Its kernels with blocks round otherwise in fp64.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        noise = model(given["images"], given["timesteps"], given["classes"]).sample
        loss = torch.nn.functional.mse_loss(noise, given["target"], reduction="sum")
        loss.backward()
    result = {"noise": noise.detach().contiguous(), "loss": loss.detach()}
    for name, parameter in model.named_parameters():  # one name for what is shared
        own = "emb." + name.split(EMBEDDER)[1] if EMBEDDER in name else name
        result["grad." + own] = parameter.grad
    return result


def run_schedule(config, given):
    steps = config.pop("steps")
    images, noise = given["images"], given["noise"]
    result = {"noisy": DDPMScheduler(**config).add_noise(images, noise, given["timesteps"])}
    sampler = DDIMScheduler(**config)
    sampler.set_timesteps(steps)
    result["sampling"] = sampler.timesteps.clone()
    for timestep in sampler.timesteps:
        images = sampler.step(noise, timestep, images).prev_sample
        result[f"after {timestep}"] = images
    return result


def main():
    torch.set_num_threads(1)
    for folder in sys.argv[1:]:
        with open(f"{folder}/config.json") as file:
            config = json.load(file)
        run = {"model": run_model, "schedule": run_schedule}[config.pop("kind")]
        save_file(run(config, load_file(f"{folder}/input.safetensors")), f"{folder}/output.safetensors")


if __name__ == "__main__":
    main()
