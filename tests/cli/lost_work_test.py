"""Bad batches, ranks without data and flipped bits: trained through, or named."""
import json
import re
import unittest

from program import TIMEOUT, ProgramTest, children, piece_bytes

DONE = 0
NAME = "model.layers.0.mlp.down_proj.weight"
STAGES = [f"--parallel.zero={zero}" for zero in range(4)]


def writable_mappings(pid):
    """(begin, end) of what the process itself may write."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            span, access = line.split()[:2]
            if access.startswith("rw"):
                begin, end = (int(part, 16) for part in span.split("-"))
                yield begin, end


def flip_bit(pid, pattern):
    """Flips the last bit of the first byte in every copy of `pattern` in the process's memory."""
    found = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for begin, end in writable_mappings(pid):
            if end - begin > 256 << 20:
                continue  # address space held in reserve
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue  # a device's
            at = data.find(pattern)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(bytes([pattern[0] ^ 1]))
                found += 1
                at = data.find(pattern, at + 1)
    return found


class LostWork(ProgramTest):
    def metrics(self, run):
        return [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]

    def train(self, run, ranks, *overrides):
        output = self.succeed("train", "tiny.toml", "--ranks", ranks, "--threads", 1,
                              "--checkpoint.interval=0", f"--output.folder={run}", *overrides)
        return output, self.metrics(run)

    def test_a_bad_batch_is_skipped_by_all_and_logged(self):
        # The last file is of other letters: a batch with it has a gradient of several times the norm.
        (self.folder / "text" / "9.txt").write_text("~^|`{}\\ \x7f" * 40)
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bytes", "--output", "data/bad")
        common = ["--data.path=data/bad", "--train.steps=60", "--train.global_batch=6", "--train.micro_batch=2",
                  "--train.evaluate_interval=1", "--train.evaluate_sequences=8", "--optimizer.learning_rate=1e-2"]
        _, plain = self.train("plain", 3, *common)
        self.assertFalse(any(step.get("skipped") for step in plain))
        expected = None
        for stage in STAGES:
            run = "skip" + stage[-1]
            output, steps = self.train(run, 3, *common, stage, "--train.skip_bad_steps=2",
                                       "--train.spike_factor=2.5")
            skipped = [step["step"] for step in steps if step.get("skipped")]
            self.assertTrue(0 < len(skipped) < 20, skipped)
            self.assertEqual(output.count("skipped, the weights stay"), len(skipped))
            for step in skipped:  # the same weights before and after
                self.assertEqual(steps[step - 1]["validation_loss"], steps[step - 2]["validation_loss"])
            summary = [(s["loss"], s["grad_norm"], s.get("skipped"), s["validation_loss"]) for s in steps]
            expected = expected or summary
            self.assertEqual(summary, expected, stage)

    def test_ranks_without_data_join(self):
        # Five sequences: two ranks with two, one with one, one with none.
        common = ["--train.global_batch=5", "--train.micro_batch=2", "--train.steps=8",
                  "--train.evaluate_interval=4", "--train.evaluate_sequences=5", "--train.uneven_batches=true"]
        _, alone = self.train("alone", 1, *common)
        expected = None
        for stage in STAGES + ["--train.reproducible=true", "--train.overlap=false"]:
            output, steps = self.train(stage[2:], 4, *common, stage)
            self.assertIn("batch 5 within 4 ranks x 1 microbatches x 2", output)
            curve = [(s["loss"], s["grad_norm"], s.get("validation_loss")) for s in steps]
            if stage in STAGES:
                expected = expected or curve
                self.assertEqual(curve, expected, stage)
            for mine, theirs in zip(steps, alone):
                # Sums of fp32 in another order, through eight steps.
                self.assertAlmostEqual(mine["loss"], theirs["loss"], delta=2e-5 * theirs["loss"])
        self.fail_with(2, ["train.global_batch is 5", "uneven_batches"], "train", "tiny.toml", "--ranks", 4,
                       *common[:2])

    def test_ranks_without_data_join_in_every_precision_and_family(self):
        common = ["--train.global_batch=5", "--train.micro_batch=2", "--train.steps=4",
                  "--train.evaluate_interval=2", "--train.evaluate_sequences=3", "--train.uneven_batches=true"]
        for precision in "bf16", "fp16":
            for family in ["--model.family=llama"], ["--model.family=gpt2", "--model.kv_heads=4"]:
                kind = [f"--train.precision={precision}", *family]
                name = f"{precision}-{family[0][-5:]}"
                _, alone = self.train(f"{name}-alone", 1, *common, *kind)
                _, steps = self.train(name, 4, *common, *kind)
                # The same weights; activations are rounded to so many digits.
                epsilon = 2.0 ** -8 if precision == "bf16" else 2.0 ** -11
                self.assertAlmostEqual(steps[0]["loss"], alone[0]["loss"], delta=epsilon * alone[0]["loss"])
                self.assertEqual([step["step"] for step in steps if "validation_loss" in step], [2, 4])

    def test_a_flipped_bit_is_found_and_its_rank_named(self):
        # With a rate of 0 the weights are those of the checkpoint, so that they can be found.
        still = ["--optimizer.learning_rate=0", "--train.global_batch=12", "--train.micro_batch=2"]
        self.train("still", 3, *still, "--train.steps=1")
        weights = self.tensor("still", NAME)
        # Ranks, where to flip, who may be named, layout. Who is named on a tie is not said; in the hybrid layout
        # either of a replica's two ranks owns this part.
        layouts = {"plain": (3, [1], "1", []),
                   "hybrid": (6, [2, 3], "[23]", ["--parallel.zero=3", "--parallel.shard=2",
                                                  "--train.symmetric_memory=false"]),
                   "tensor": (4, [2], "[02]", ["--parallel.tensor=2"]),
                   "context": (4, [3], "3", ["--parallel.context=2"]),
                   "pipeline": (4, [1], "[01]", ["--parallel.pipeline=2"])}
        for name, (num_ranks, ranks, expected, layout) in layouts.items():
            with self.subTest(name):
                process = self.start_and_await_step("train", "tiny.toml", "--ranks", num_ranks, "--threads", 1, *still, *layout,
                                            "--train.steps=1000000", "--checkpoint.interval=0",
                                            "--train.check_replicas_interval=20", f"--output.folder={name}")
                pids = sorted(children(process.pid))
                self.assertGreater(sum(flip_bit(pids[rank], weights[:48]) for rank in ranks), 0)
                _, error = process.communicate(timeout=TIMEOUT)
                self.assertNotEqual(process.returncode, DONE)
                self.assertRegex(error, rf"\"{re.escape(NAME)}\" has different bits on rank {expected}\b")
                self.assertEqual(error.count("\n"), 1, error)

    def tensor(self, run, name):
        folder = sorted((self.folder / run / "checkpoints").iterdir())[-1]
        manifest = json.loads((folder / "manifest.json").read_text())
        return piece_bytes(folder, manifest, manifest["tensors"][name]["pieces"][0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
