"""The ledger of a run: bytes by kind against the formulas of ZeRO, and their sum against resident memory."""
import json
import math
import re
import resource
import unittest

from program import ProgramTest

KINDS = ("weights", "gradients", "states", "activations", "gathered", "buckets", "other")
MIB = 1 << 20
RANKS = 2
SMALL = ("--model.width=128", "--model.ffn_width=320", "--model.layers=4")  # 0.7 M parameters
# 29 M parameters.
LARGE = ("--model.layers=8", "--model.width=512", "--model.heads=8", "--model.kv_heads=8", "--model.ffn_width=1408",
         "--model.vocab_size=2048")


class MemoryKinds(ProgramTest):
    def train(self, run, *overrides):
        """(bytes by kind, peak of resident memory, output)"""
        output = self.succeed("train", "tiny.toml", f"--ranks={RANKS}", "--threads=1", "--train.steps=3",
                              "--optimizer.warmup_steps=1", "--checkpoint.interval=0", "--train.micro_batch=1",
                              f"--output.folder={run}", *overrides)
        last = self.metrics(run)[-1]
        return {kind: last[f"memory_{kind}_bytes"] for kind in KINDS}, last["peak_rss_bytes"], output

    def num_parameters(self, run):
        tensors = json.loads(self.succeed("checkpoint", "inspect", run, "--json"))["tensors"]
        return sum(math.prod(tensor["shape"]) for tensor in tensors if not tensor["name"].startswith("optimizer."))

    def test_zero_takes_what_its_formula_says(self):
        # fp32: 4 bytes of weights and of gradients a parameter, 8 of Adam's moments; bf16: 2 and 2, and 4 + 8. ZeRO-2
        # and 3 add several bf16 microbatches in fp32. Within 2 %: parts begin at grains, rows of rotary angles come on top.
        parameters = 0
        for precision, weight, states in (("fp32", 4, 8), ("bf16", 2, 12)):
            for zero in range(4):
                for count in (1, 4):
                    run = f"{precision}-{zero}-{count}"
                    memory, _, _ = self.train(run, *SMALL, f"--train.precision={precision}", f"--parallel.zero={zero}",
                                              f"--train.global_batch={RANKS * count}")
                    parameters = parameters or self.num_parameters(run)
                    gradient = 4 if zero >= 2 and count > 1 else weight
                    expected = {"weights": weight / (RANKS if zero == 3 else 1),
                                "gradients": gradient / (RANKS if zero >= 2 else 1),
                                "states": states / (RANKS if zero >= 1 else 1)}
                    for kind, each in expected.items():
                        self.assertAlmostEqual(memory[kind] / (parameters * each), 1, delta=0.02, msg=f"{run}: {kind}")
                    self.assertEqual(memory["gathered"] > 0, zero == 3, run)
                    self.assertEqual(memory["buckets"] > 0, zero >= 2, run)

    def test_kinds_sum_to_the_growth_of_resident_memory(self):
        # With a limit on the address space freed memory is returned, so that none of it is resident. Symmetric memory is
        # left out: a rank's resident memory counts what it reads of its peers'. Only the layers grow: with the matrices'
        # size the libraries' own buffers would, which are no tensors (7 to 10 MiB here).
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 44, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        common = ("--train.symmetric_memory=false", f"--train.global_batch={4 * RANKS}")
        for zero in (0, 3):
            options = (*common, f"--parallel.zero={zero}")
            before, resident_before, _ = self.train(f"low-{zero}", *options, *LARGE, "--model.layers=1")
            after, resident, _ = self.train(f"high-{zero}", *options, *LARGE)
            growth, kinds = resident - resident_before, sum(after.values()) - sum(before.values())
            print(f"zero {zero}: resident memory grew by {growth / MIB:.1f} MiB, the kinds by {kinds / MIB:.1f} MiB",
                  flush=True)
            self.assertAlmostEqual(kinds / growth, 1, delta=0.03)

    def test_the_plan_is_printed_before_and_beside_what_was_measured(self):
        memory, _, output = self.train("run", *LARGE, f"--train.global_batch={RANKS}")
        self.assertRegex(output, r"\nplanned [\d.]+ MiB per rank: weights [\d.]+ MiB, gradients")
        lines = output.splitlines()
        first_step = next(i for i, line in enumerate(lines) if line.startswith("step"))
        self.assertLess(next(i for i, line in enumerate(lines) if line.startswith("planned ")), first_step)
        for kind in KINDS:
            self.assertRegex(output, rf"\nmemory  {kind} ")
        weights = re.search(r"\nmemory  weights +[\d.]+ MiB +([\d.]+) MiB", output)[1]
        self.assertEqual(weights, f"{memory['weights'] / MIB:.1f}")
        self.assertRegex(output, r"\nmemory  furthest from the plan: \w+, [\d.]+ \w+ (above|below) it\n")
        for line in lines:
            if line.startswith(("planned ", "memory  at", "memory  furthest")):
                self.assertLessEqual(len(line), 80)

    def test_without_a_cluster_nothing_is_planned(self):
        _, _, output = self.train("run", "--parallel.cluster=none")
        self.assertNotIn("planned", output)
        self.assertRegex(output, r"\nmemory  weights +[\d.]+ KiB\n")


if __name__ == "__main__":
    unittest.main()
