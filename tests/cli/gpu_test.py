"""Training on the GPUs of this machine: every layout computes in fp64 what the CPU computes."""
import subprocess
import unittest

from program import ProgramTest

NUM_GPUS = len(subprocess.run(["nvidia-smi", "--list-gpus"], check=True, stdout=subprocess.PIPE).stdout.splitlines())
ONE = {
    "plain": [],
    "dropout": ["--model.dropout=0.1"],
    "recompute": ["--train.recompute=full", "--model.dropout=0.1"],
    "offload": ["--offload.optimizer=host"],
    "gpt2": ["--model.family=gpt2", "--model.kv_heads=4"],
}
TWO = {
    "ddp": [],
    "zero3": ["--parallel.zero=3"],
    "tensor": ["--parallel.tensor=2", "--parallel.sequence_parallel=true", "--parallel.async_tensor=on"],
    "pipeline": ["--parallel.pipeline=2", "--parallel.schedule=interleaved"],
    "ring": ["--parallel.context=2"],
    "all-to-all": ["--parallel.context=2", "--parallel.context_form=all-to-all"],
}


class Gpu(ProgramTest):
    def train(self, run, ranks, *overrides):
        self.succeed("train", "tiny.toml", "--ranks", ranks, "--train.precision=fp64", f"--output.folder={run}", *overrides)
        return self.metrics(run)

    def assert_same(self, layout, ranks, overrides):
        with self.subTest(layout=layout):
            host = self.train(f"{layout}-cpu", ranks, "--train.device=cpu", *overrides)
            device = self.train(f"{layout}-cuda", ranks, "--train.device=cuda", *overrides)
            for expected, found in zip(host, device, strict=True):
                for key in ("loss", "grad_norm"):
                    # Roundings of 2^-53 that twenty steps of training amplify.
                    self.assertLessEqual(abs(found[key] - expected[key]), 1e-10 * abs(expected[key]))
                self.assertGreater(found["peak_device_bytes"], 0)
                self.assertIsNone(found["communication_fraction"])

    def test_one_gpu_trains_as_the_cpu(self):
        for layout, overrides in ONE.items():
            self.assert_same(layout, 1, overrides)

    @unittest.skipIf(NUM_GPUS < 2, "needs two GPUs")
    def test_two_gpus_train_as_the_cpu(self):
        for layout, overrides in TWO.items():
            self.assert_same(layout, 2, overrides)

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
