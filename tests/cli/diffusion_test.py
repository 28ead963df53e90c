"""The diffusion task: beside diffusers' model and schedulers, killed and resumed, sampled, in its folders and from
them, and what it refuses."""
import json
import os
import struct
import subprocess
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
from diffusers import DDIMScheduler, DDPMScheduler
from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel
from PIL import Image
from safetensors.torch import load_file

from program import ProgramTest

BATCHES = os.environ["TRIREME_NOISED_BATCHES"]
SIZE, CLASSES, TIMESTEPS, DROPOUT = 8, 4, 1000, 0.2
STEPS, BATCH, RATE, DECAY, BETAS, CLIP = 50, 8, 1e-3, 0.1, (0.9, 0.95), 1.0  # of the twin
TOLERANCE = 1e-5  # as in twins_test.py
CONFIG = f"""
[task]
name = "diffusion"
[model]
layers = 2
width = 32
heads = 4
[data]
path = "images"
[diffusion]
timesteps = {TIMESTEPS}
class_dropout = {DROPOUT}
[train]
steps = {STEPS}
global_batch = {BATCH}
micro_batch = 4
gradient_clip = {CLIP}
evaluate_interval = 25
evaluate_sequences = 12
[optimizer]
learning_rate = {RATE}
schedule = "constant"
warmup_steps = 0
weight_decay = {DECAY}
beta2 = {BETAS[1]}
[checkpoint]
interval = 2
[output]
folder = "run"
"""


def write_images(folder, part, count):
    """Images as MNIST's files, each class a bright column."""
    draw = numpy.random.default_rng(1)
    labels = draw.integers(0, CLASSES, count, dtype=numpy.uint8)
    images = draw.integers(0, 64, (count, SIZE, SIZE), dtype=numpy.uint8)
    images[numpy.arange(count), :, labels] += 190
    (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, SIZE, SIZE) + images.tobytes())
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.tobytes())


class DiffusionTest(ProgramTest):
    def prepare(self):
        folder = self.folder / "images"
        folder.mkdir()
        write_images(folder, "train", 64)
        write_images(folder, "t10k", 12)
        (self.folder / "diffusion.toml").write_text(CONFIG)

    def train(self, run, *options, ranks=1):
        self.succeed("train", "diffusion.toml", "--ranks", ranks, f"--output.folder={run}", *options)

    def output_of_batches(self, seed, steps, batch):
        arguments = (BATCHES, "images", TIMESTEPS, DROPOUT, seed, steps, batch)
        return subprocess.run([str(each) for each in arguments], cwd=self.folder, stdout=subprocess.PIPE, check=True).stdout

    def batches(self, steps, batch, seed=1):
        """Images from -1 to 1, classes, timesteps and noise of each step, or with steps = 0 of an evaluation."""
        content = self.output_of_batches(seed, steps, batch)
        shape, place = (batch, 1, SIZE, SIZE), 0

        def take(dtype, *shape):
            nonlocal place
            values = numpy.frombuffer(content, dtype, numpy.prod(shape), place).reshape(shape)
            place += values.nbytes
            return torch.from_numpy(values.copy())

        for _ in range(max(steps, 1)):
            yield (take(numpy.uint8, *shape).float() / 127.5 - 1, take(numpy.int64, batch), take(numpy.int64, batch),
                   take(numpy.float32, *shape))
        self.assertEqual(place, len(content))

    def theirs(self, run):
        """diffusers' model with a run's last weights, and one embedder for all blocks, as in the paper."""
        own = load_file(next((self.folder / run / "checkpoints" / self.checkpoints(run)[-1]).glob("*.safetensors")))
        model = DiTTransformer2DModel(
            num_attention_heads=4, attention_head_dim=8, in_channels=1, num_layers=2, sample_size=SIZE, patch_size=2,
            num_embeds_ada_norm=CLASSES, norm_eps=1e-6).eval()
        for block in model.transformer_blocks:
            block.norm1.emb = model.transformer_blocks[0].norm1.emb
        weights = {}
        for name, tensor in model.state_dict().items():
            # A checkpoint has equal bytes once. Only zeros are equal.
            own_name = "emb." + name.split("norm1.emb.")[1] if "norm1.emb." in name else name
            weights[name] = own.get(own_name, torch.zeros_like(tensor))
        model.load_state_dict(weights)
        return model


class Training(DiffusionTest):
    def test_fifty_steps_have_the_losses_of_diffusers(self):
        # A step that changes nothing writes the first weights.
        self.train("start", "--train.steps=1", "--optimizer.learning_rate=1e-30", "--train.evaluate_interval=1")
        model, schedule = self.theirs("start"), DDPMScheduler(TIMESTEPS)
        matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) == is_matrix] for is_matrix in (True, False))
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0}],
                                      lr=RATE, betas=BETAS, eps=1e-8)

        def loss_of(images, classes, timesteps, noise):
            found = model(schedule.add_noise(images, noise, timesteps), timesteps, classes).sample
            return torch.nn.functional.mse_loss(found, noise)

        self.train("run")
        lines = self.metrics()
        for line, batch in zip(lines, self.batches(STEPS, BATCH), strict=True):
            with self.subTest(step=line["step"]):
                loss = loss_of(*batch)
                optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()
                optimizer.step()
                self.assertLess(abs(line["loss"] - loss.item()), TOLERANCE * loss.item())
                self.assertLess(abs(line["grad_norm"] - norm), 10 * TOLERANCE * norm)
        self.assertLess(lines[-1]["loss"], 0.9 * lines[0]["loss"])
        with torch.no_grad():
            validated = loss_of(*next(self.batches(0, 12))).item()
        self.assertLess(abs(lines[-1]["validation_loss"] - validated), TOLERANCE * validated)

    def test_a_killed_run_resumes_on_the_same_bits(self):
        self.train("whole", "--train.steps=12", "--average.decay=0.9", ranks=2)
        options = ["--train.steps=12", "--average.decay=0.9", "--output.folder=killed"]
        process = self.start("train", "diffusion.toml", "--ranks", 2, *options)
        self.await_step(5, process, "killed")
        process.kill()
        process.communicate()
        self.succeed("train", "diffusion.toml", "--ranks", 2, *options)
        self.assertEqual(self.curve("killed"), self.curve("whole"))


class Sampling(DiffusionTest):
    def images(self, folder, count):
        return torch.stack([torch.from_numpy(numpy.array(Image.open(self.folder / folder / f"{i:04}.png")))
                            for i in range(count)]).int()

    def test_images_are_those_of_diffusers(self):
        self.train("run", "--optimizer.learning_rate=5e-3")
        model, sampler, count, guidance = self.theirs("run"), DDIMScheduler(TIMESTEPS), 6, 2.5
        sampler.set_timesteps(20)
        noise = self.output_of_batches(3, -1, count)
        images = torch.from_numpy(numpy.frombuffer(noise, numpy.float32).copy()).view(count, 1, SIZE, SIZE)
        classes = torch.cat([torch.arange(count) % CLASSES, torch.full((count,), CLASSES)])
        with torch.no_grad():
            for timestep in sampler.timesteps:
                of_class, of_none = model(torch.cat([images, images]), timestep.expand(2 * count), classes).sample.chunk(2)
                found = of_none + guidance * (of_class - of_none)
                images = sampler.step(found, timestep, images).prev_sample
        expected = ((images + 1) * 127.5).round().clamp(0, 255).squeeze(1).int()
        output = self.succeed("sample", "--checkpoint", "run", "--output", "drawn", "--images", count, "--steps", 20,
                              "--guidance", guidance, "--seed", 3)
        self.assertIn("grid: drawn/grid.png", output)
        drawn = self.images("drawn", count)
        self.assertLessEqual((drawn - expected).abs().max().item(), 1)  # a value may lie between two levels
        self.assertGreater(drawn.float().std().item(), 1)
        grid = torch.from_numpy(numpy.array(Image.open(self.folder / "drawn" / "grid.png")))
        self.assertEqual(tuple(grid.shape), (2 * SIZE, 3 * SIZE))
        self.assertTrue(torch.equal(grid[SIZE:, SIZE:2 * SIZE].int(), drawn[4]))

    def test_the_average_and_one_class_can_be_drawn(self):
        self.train("run", "--train.steps=4", "--average.decay=0.5")
        for options in (["--average"], ["--class", 2], ["--no-class"]):
            self.succeed("sample", "--checkpoint", "run", "--output", "drawn", "--images", 2, "--steps", 2, *options)
        self.fail_with(2, ["--class is 4", "4 classes", "0 to 3"], "sample", "--checkpoint", "run", "--class", 4)
        self.fail_with(2, ["1001 steps", "1 to 1000"], "sample", "--checkpoint", "run", "--steps", 1001)
        self.fail_with(4, ["no checkpoint"], "sample", "--checkpoint", "none")
        self.fail_with(4, ["diffusion", "vision"], "classify", "--checkpoint", "run")


class Folders(DiffusionTest):
    """Folders of diffusers: written, read by diffusers, and read again."""

    def weights(self, folder):
        """Of all files of an exported folder."""
        found = {}
        for path in (self.folder / folder).glob("*.safetensors"):
            found.update(load_file(path))
        return found

    def refuse(self, words, **keys):
        """What a start says of an exported folder with other keys."""
        config = self.folder / "exported" / "config.json"
        before = config.read_text()
        config.write_text(json.dumps({**json.loads(before), **keys}))
        self.fail_with(2, words, "train", "diffusion.toml", "--init", "exported", "--output.folder=refused")
        config.write_text(before)

    def test_an_export_is_diffusers_model_and_the_start_of_another_run(self):
        self.train("run", "--train.steps=4", "--diffusion.schedule=cosine")
        output = self.succeed("checkpoint", "export", "run", "--output", "exported", "--max-shard-size", "20KB")
        self.assertIn("DiTTransformer2DModel", output)
        model = DiTTransformer2DModel.from_pretrained(self.folder / "exported")
        expected = self.theirs("run").state_dict()
        self.assertEqual(set(model.state_dict()), set(expected))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, expected[name]), name)
        scheduler = DDIMScheduler.from_pretrained(self.folder / "exported")
        self.assertEqual((scheduler.config.num_train_timesteps, scheduler.config.beta_schedule), (TIMESTEPS, "squaredcos_cap_v2"))

        # As diffusers writes them, in the folders of a pipeline. A rate of 0 would be refused.
        model.save_pretrained(self.folder / "pipeline" / "transformer")
        scheduler.save_pretrained(self.folder / "pipeline" / "scheduler")
        still = ["--train.steps=1", "--optimizer.learning_rate=1e-30", "--optimizer.weight_decay=0"]
        for source in ("exported", "pipeline"):
            with self.subTest(source=source):
                self.train(f"from-{source}", "--init", source, *still, ranks=2)
                config = (self.folder / f"from-{source}" / "config.toml").read_text()
                self.assertIn("schedule = 'cosine'", config)
                self.succeed("checkpoint", "export", f"from-{source}", "--output", f"again-{source}")
                found = self.weights(f"again-{source}")
                self.assertEqual(set(found), set(expected))
                for name, tensor in found.items():
                    self.assertTrue(torch.equal(tensor, expected[name]), name)
        self.succeed("sample", "--checkpoint", "from-pipeline", "--output", "drawn", "--images", 2, "--steps", 2)

        self.fail_with(2, ["model.width is 64", "it is 32"], "train", "diffusion.toml", "--init", "exported",
                       "--model.width=64", "--output.folder=refused")
        self.refuse(["activation_fn", "geglu"], activation_fn="geglu")
        self.refuse(["rotary", "remove it"], rotary=True)
        self.fail_with(2, ["diffusion transformer", "timm"], "checkpoint", "export", "run", "--output", "other",
                       "--format", "timm")

    def test_blocks_with_embeddings_of_their_own_are_refused(self):
        model = DiTTransformer2DModel(
            num_attention_heads=4, attention_head_dim=8, in_channels=1, num_layers=2, sample_size=SIZE, patch_size=2,
            num_embeds_ada_norm=CLASSES)
        model.save_pretrained(self.folder / "theirs")
        self.fail_with(4, ["norm1.emb", "share one embedding"], "train", "diffusion.toml", "--init", "theirs",
                       "--output.folder=refused")


class Refusals(DiffusionTest):
    def test_what_does_not_fit_is_one_line(self):
        for words, option in (
                (["model.patch_size = 3", "does not divide", "8"], "--model.patch_size=3"),
                (["model.width = 30", "multiple of 4"], "--model.width=30"),
                (["model.classes is 2", "has 4"], "--model.classes=2"),
                (["diffusion.beta_start is 0.1", "noise must grow"], "--diffusion.beta_start=0.1"),
                (["diffusion.schedule", "sigmoid", "linear", "cosine"], "--diffusion.schedule=sigmoid"),
                (["diffusion.class_dropout", "1.5"], "--diffusion.class_dropout=1.5"),
                (["parallel.expert", "2"], "--parallel.expert=2")):
            with self.subTest(words=words):
                self.fail_with(2, words, "train", "diffusion.toml", "--ranks", 2, option)


if __name__ == "__main__":
    unittest.main(verbosity=2)
