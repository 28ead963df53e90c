"""Training on the GPUs of this machine: every layout computes in fp64 what the CPU computes."""
import random
import subprocess
import unittest

import tiny_problems
from program import ProgramTest
from tiny_problems import changed, write_digits

NUM_GPUS = len(subprocess.run(["nvidia-smi", "--list-gpus"], check=True, stdout=subprocess.PIPE).stdout.splitlines())
ONE = {
    "plain": [],
    "dropout": ["--model.dropout=0.1"],
    "recompute": ["--train.recompute=full", "--model.dropout=0.1"],
    "offload": ["--offload.optimizer=host"],
    "gpt2": ["--model.family=gpt2", "--model.kv_heads=4"],
}
OPTIMIZERS = {
    **{name: [f"--optimizer.name={name}"] for name in ("lamb", "lars", "muon", "adafactor")},
    "sgd": ["--optimizer.name=sgd", "--optimizer.momentum=0.9"],
    "groups": ["--optimizer.groups=*norm*: decay=0.1; *proj*: rate=0.5"],
}
FEATURES = {
    "selective": ["--train.recompute=selective"],
    "documents": ["--data.separate_documents=true"],
    "reproducible": ["--train.reproducible=true"],
    "disk": ["--offload.optimizer=disk"],
    "average": ["--average.decay=0.9", "--histogram.interval=2"],
}
MIXTRAL = ["--model.family=mixtral", "--model.experts=6", "--model.shared_experts=1", "--model.router_z_loss=0.01"]
EXPERTS = {
    "capacity": ["--model.capacity_factor=1.25"],
    "dropless": ["--model.capacity_factor=0", "--train.recompute=full"],
    "biases": ["--model.router_score=sigmoid", "--model.router_bias_rate=0.01", "--model.expert_groups=3",
               "--model.groups_per_token=2", "--model.router_jitter=0.05", "--model.balance_over=batch",
               "--model.capacity_factor=1.25", "--model.drop_by=probability"],
}
SHARE = "--parallel.gpu_transport=cuda-ipc"
SHARED = {
    "zero1": ["--parallel.zero=1"],
    "zero2": ["--parallel.zero=2", "--train.recompute=full", "--model.dropout=0.1"],
    "experts": [*MIXTRAL, "--model.capacity_factor=1.25", "--parallel.expert=2"],
    "powersgd": ["--train.compression=powersgd"],
}
VISION_CONFIG = changed(tiny_problems.VISION, {
    "model.family": "resnet18", "model.stem": "small", "model.layers": 3, "model.ffn_width": 25, "augment.crop": "shift",
    "augment.padding": 1, "augment.mixup": 0.2, "augment.label_smoothing": 0.1, "train.steps": 4, "train.global_batch": 8,
    "train.evaluate_interval": 2, "train.evaluate_sequences": 12, "optimizer.name": "sgd", "optimizer.learning_rate": 1e-2,
    "optimizer.warmup_steps": 1})
VISION = {
    "resnet": ["--train.recompute=full"],
    "channels-last": ["--model.channels_last=true"],
    "vit": ["--model.family=vit", "--optimizer.name=adamw"],
}
RECOMMEND_CONFIG = changed(tiny_problems.RECOMMEND, {
    "model.width": 6, "model.bottom": "7", "model.top": "9,5", "model.temperature": 0.2, "data.path": "clicks", "train.steps": 6,
    "train.global_batch": 16, "train.micro_batch": 4, "train.gradient_clip": None, "train.evaluate_interval": 3,
    "train.evaluate_sequences": 41, "optimizer.name": "adamw", "optimizer.learning_rate": 1e-2, "optimizer.warmup_steps": 1})
RECOMMEND = {
    **{family: [f"--model.family={family}"] for family in ("dlrm", "dlrm-dcnv2", "wide-deep")},
    "two-tower": ["--model.family=two-tower", "--data.path=pairs"],
}
TWO = {
    "ddp": [],
    "zero3": ["--parallel.zero=3"],
    "tensor": ["--parallel.tensor=2", "--parallel.sequence_parallel=true", "--parallel.async_tensor=on"],
    "pipeline": ["--parallel.pipeline=2", "--parallel.schedule=interleaved", "--model.layers=4"],
    "ring": ["--parallel.context=2"],
    "all-to-all": ["--parallel.context=2", "--parallel.context_form=all-to-all"],
}


class Gpu(ProgramTest):
    config = "tiny.toml"

    def train(self, run, ranks, *overrides):
        result = self.run_program("train", self.config, "--ranks", ranks, "--train.precision=fp64", f"--output.folder={run}",
                                  *overrides)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("destroy_process_group", result.stderr)
        return self.metrics(run)

    def assert_same(self, layout, ranks, overrides):
        with self.subTest(layout=layout):
            host = self.train(f"{layout}-cpu", ranks, "--train.device=cpu", *overrides)
            device = self.train(f"{layout}-cuda", ranks, "--train.device=cuda", *overrides)
            for expected, found in zip(host, device, strict=True):
                for key in expected.keys() & {"loss", "grad_norm", "validation_loss"}:
                    # Roundings of 2^-53 that twenty steps of training amplify.
                    self.assertLessEqual(abs(found[key] - expected[key]), 1e-10 * abs(expected[key]), key)
                self.assertGreater(found["peak_device_bytes"], 0)
                self.assertIsNone(found["communication_fraction"])

    def write_config(self, name, text):
        (self.folder / name).write_text(text)
        self.config = name

    def test_one_gpu_trains_as_the_cpu(self):
        for layout, overrides in ONE.items():
            self.assert_same(layout, 1, overrides)

    def test_every_optimizer_trains_as_on_the_cpu(self):
        for name, overrides in OPTIMIZERS.items():
            self.assert_same(name, 1, ["--train.steps=8", *overrides])

    def test_features_train_as_on_the_cpu(self):
        for name, overrides in FEATURES.items():
            self.assert_same(name, 1, ["--train.evaluate_interval=10", "--train.evaluate_sequences=5", *overrides])

    def test_experts_train_as_on_the_cpu(self):
        for name, overrides in EXPERTS.items():
            self.assert_same(name, 1, ["--train.steps=10", *MIXTRAL, *overrides])

    def test_images_train_as_on_the_cpu(self):
        write_digits(self.folder / "images", 64, 12)
        self.write_config("vision.toml", VISION_CONFIG)
        for name, overrides in VISION.items():
            self.assert_same(name, 1, overrides)

    def test_recommendation_trains_as_on_the_cpu(self):
        self.succeed("data", "generate", "--samples", 400, "--scale", 0.001, "--output", "day.tsv")
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day.tsv", "--validation", 0.2, "--output", "clicks")
        draw = random.Random(1)
        pairs = (f"q{draw.randrange(9)}|q{draw.randrange(9)}\ti{draw.randrange(30)}" for _ in range(300))
        (self.folder / "day.pairs").write_text("\n".join(["query*\titem", *pairs]) + "\n")
        self.succeed("data", "prepare", "--format", "pairs", "--input", "day.pairs", "--validation", 0.2, "--output", "pairs")
        self.write_config("recommend.toml", RECOMMEND_CONFIG)
        for name, overrides in RECOMMEND.items():
            self.assert_same(name, 1, overrides)

    @unittest.skipIf(NUM_GPUS < 2, "needs two GPUs")
    def test_two_gpus_train_as_the_cpu(self):
        for layout, overrides in TWO.items():
            self.assert_same(layout, 2, overrides)

    def test_ranks_that_share_a_gpu_train_as_the_cpu(self):
        for layout, overrides in {**TWO, **SHARED}.items():
            self.assert_same(f"shared-{layout}", 2, [SHARE, "--train.steps=10", *overrides])

    def test_layouts_that_share_a_gpu_have_the_same_bits(self):
        def losses(run, ranks, *overrides):
            # Without clipping: kernels of GPUs take the norm of a shard in an order of its own.
            self.train(run, ranks, "--train.device=cuda", SHARE, "--train.precision=fp32", "--train.gradient_clip=0",
                       *overrides)
            return [loss for _, loss, _ in self.curve(run)]
        ddp = losses("ddp", 2)
        for zero in (1, 2, 3):
            self.assertEqual(losses(f"zero{zero}", 2, f"--parallel.zero={zero}"), ddp)
        one, two = (losses(f"reproducible{ranks}", ranks, "--train.reproducible=true") for ranks in (1, 2))
        self.assertEqual(two, one)

    def test_a_run_moves_between_cpu_and_gpu(self):
        constant = "--optimizer.schedule=constant"
        whole = self.train("whole", 1, "--train.device=cpu", constant)
        self.train("parts", 1, "--train.device=cuda", "--train.steps=10", constant)
        parts = self.train("parts", 1, "--train.device=cpu", constant)
        for expected, found in zip(whole, parts, strict=True):
            self.assertLessEqual(abs(found["loss"] - expected["loss"]), 1e-10 * abs(expected["loss"]))

    def test_more_ranks_than_gpus_are_refused_or_use_the_cpu(self):
        self.fail_with(2, [f"{NUM_GPUS + 1} ranks", "each rank needs one"], "train", "tiny.toml", "--ranks", NUM_GPUS + 1,
                       "--train.device=cuda", "--train.uneven_batches=true")
        output = self.succeed("train", "tiny.toml", "--ranks", NUM_GPUS + 1, "--train.steps=2", "--train.uneven_batches=true")
        self.assertIn("device  the CPU, as", output)


if __name__ == "__main__":
    unittest.main()
