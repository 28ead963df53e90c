"""watch.memory = snapshot: the largest tensors at the peak, with their places, also of a run that had too little memory."""
import functools
import json
import unittest

import memory_limit_test
from program import ProgramTest

DONE, USER = 0, 2
# Fewer than 100 weights, states and buckets, so that activations are among the largest. A checkpoint in the background
# would copy them all after the last line of metrics.
SIZE = ("--model.layers=2", "--model.width=256", "--model.heads=4", "--model.kv_heads=4", "--model.ffn_width=704",
        "--model.sequence_length=256", "--train.global_batch=2", "--train.micro_batch=1", "--optimizer.warmup_steps=1",
        "--checkpoint.interval=0", "--checkpoint.mode=sync")


class MemorySnapshot(ProgramTest):
    def snapshot(self, run, rank):
        path = self.folder / run / "memory" / f"rank-{rank:05}.json"
        return json.loads(path.read_text()), path.stat().st_size

    def test_the_peak_of_every_rank_with_operators_and_units(self):
        self.succeed("train", "tiny.toml", "--ranks=2", "--threads=1", "--train.steps=3", *SIZE, "--watch.memory=snapshot",
                     "--output.folder=run")
        last = self.metrics("run")[-1]
        peak = sum(value for name, value in last.items() if name.startswith("memory_") and name.endswith("_bytes"))
        for rank in range(2):
            found, size = self.snapshot("run", rank)
            self.assertEqual(found["rank"], rank)
            self.assertIn(found["step"], (1, 2, 3))
            self.assertEqual(found["failed_bytes"], 0)
            # Taken anew whenever the sum is 1 % larger; metrics have the largest of both ranks.
            self.assertAlmostEqual(found["total_bytes"] / peak, 1, delta=0.05)
            self.assertEqual(sum(found["kinds"].values()), found["total_bytes"])
            largest = found["largest"]
            self.assertEqual([each["bytes"] for each in largest], sorted((each["bytes"] for each in largest), reverse=True))
            self.assertTrue(any(each["operator"].startswith("aten::") for each in largest), largest)
            self.assertTrue(any(each["unit"] for each in largest), largest)
            self.assertLessEqual(len(largest), 100)
            self.assertLess(size, 1 << 16)

    def test_without_the_key_there_is_no_folder(self):
        self.succeed("train", "tiny.toml", "--train.steps=1", "--optimizer.warmup_steps=0", "--output.folder=run")
        self.assertFalse((self.folder / "run/memory").exists())

    def test_too_little_memory_leaves_it_and_names_the_three_largest(self):
        # Enough for the model, and for a quarter of the optimizer's states.
        run_limited = functools.partial(memory_limit_test.MemoryLimit.run_limited, self)
        code, line, stateless = run_limited("stateless", None, "--optimizer.name=sgd", "--optimizer.momentum=0",
                                            "--train.master_weights=false")
        self.assertEqual((code, line), (DONE, ""))
        code, line, _ = run_limited("whole", None)
        self.assertEqual((code, line), (DONE, ""))
        limit = stateless + memory_limit_test.MemoryLimit.state_bytes(self, "whole") // 4
        for value, words in (("snapshot", r"the largest tensors: (\d[^,;]* MiB of [^,;]*, ){2}\d[^,;]* MiB of [a-z]+"),
                             ("kinds", r"at the peak: \d[^,;]* MiB of [a-z]+")):
            code, line, _ = run_limited(value, limit, f"--watch.memory={value}")
            self.assertEqual(code, USER, line)
            self.assertRegex(line, r"\Atrireme: [^\n]*out of memory[^\n]*" + words + r"[^\n]*\n\Z")
        found, _ = self.snapshot("snapshot", 0)
        self.assertGreater(found["failed_bytes"], 0)
        self.assertGreater(found["total_bytes"], 0)
        self.assertGreaterEqual(len(found["largest"]), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
