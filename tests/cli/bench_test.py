"""`trireme bench comm` as a user runs it: lists, JSON, the table, bad input."""
import itertools
import json
import sys
import unittest

from program import ProgramTest

KEYS = {"operation", "transport", "memory", "dtype", "bytes", "ranks", "microseconds", "p99_microseconds",
        "algorithm_bandwidth_gbps", "bus_bandwidth_gbps", "memcpy_microseconds", "memcpy_ratio"}
LOOP_KEYS = {"loop_microseconds", "loop_ratio"}  # of an all_reduce of a word or more per rank
OPERATIONS = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather",
              "scatter", "send_recv", "barrier"]
QUICK = ["--seconds", "0.005"]


class Bench(ProgramTest):
    def bench(self, *arguments, **options):
        return json.loads(self.succeed("bench", "comm", "--json", *QUICK, *arguments, **options))

    def test_help_teaches(self):
        self.assertIn("comm", self.succeed("bench", "--help"))
        text = self.succeed("bench", "comm", "--help")
        for word in ("trireme bench comm --ranks 2", "--compare", "memcpy", "x loop", "nccl-tests", *OPERATIONS):
            self.assertIn(word, text)

    def test_lists_are_combined_and_every_key_is_there(self):
        results = self.bench("--ranks", "2,3", "--operation", "all_reduce,all_gather", "--sizes", "4,64K",
                             "--transport", "shm,thread", "--memory", "ordinary,symmetric",
                             "--dtype", "fp32,bf16")
        found = [(r["ranks"], r["transport"], r["operation"], r["memory"], r["dtype"], r["bytes"])
                 for r in results]
        expected = list(itertools.product((2, 3), ("shm", "thread"), ("all_reduce", "all_gather"),
                                          ("ordinary", "symmetric"), ("fp32", "bf16"), (4, 65536)))
        self.assertEqual(found, expected)
        for result in results:
            has_loop = result["operation"] == "all_reduce" and result["bytes"] == 65536
            self.assertEqual(set(result), KEYS | LOOP_KEYS if has_loop else KEYS)
            if has_loop:
                self.assertAlmostEqual(result["loop_ratio"],
                                       result["loop_microseconds"] / result["microseconds"])
            self.assertGreater(result["microseconds"], 0)
            self.assertGreaterEqual(result["p99_microseconds"], result["microseconds"])
            ranks, seconds = result["ranks"], result["microseconds"] * 1e-6
            share = (ranks - 1) / ranks * (2 if result["operation"] == "all_reduce" else 1)
            self.assertAlmostEqual(result["bus_bandwidth_gbps"] / (result["bytes"] * share / seconds / 1e9), 1)
            self.assertAlmostEqual(result["memcpy_ratio"],
                                   result["memcpy_microseconds"] / result["microseconds"])
        self.assertEqual(self.segments(), [])

    def test_every_operation_runs(self):
        results = self.bench("--operation", "all", "--sizes", "4K", "--memory", "symmetric")
        self.assertEqual([r["operation"] for r in results], OPERATIONS)
        self.assertEqual([r["bytes"] for r in results], [4096] * 9 + [0])

    def test_one_rank_runs(self):
        (result,) = self.bench("--ranks", 1, "--sizes", 64, "--memory", "ordinary")
        self.assertEqual((result["ranks"], result["bus_bandwidth_gbps"]), (1, 0))

    def test_words_may_be_separate(self):
        results = self.bench("--sizes", 64, 128, "--memory", "ordinary")
        self.assertEqual([r["bytes"] for r in results], [64, 128])

    def test_table_is_aligned_under_one_header(self):
        lines = self.succeed("bench", "comm", *QUICK, "--sizes", "4,1M", "--operation", "all_reduce,barrier",
                             "--transport", "shm,thread").splitlines()
        self.assertEqual(len(lines), 1 + 2 * (2 * 2 + 1))
        self.assertEqual({len(line) for line in lines}, {len(lines[0])}, "\n".join(lines))
        self.assertTrue(lines[0].startswith("operation"))
        self.assertIn("1.0 MiB", lines[2])

    def test_ranks_of_another_launcher(self):
        environment = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                       "TRIREME_JOB": self.folder.name}
        (result,) = self.bench("--sizes", 64, "--memory", "ordinary", environment=environment)
        self.assertEqual(result["ranks"], 1)
        self.fail_with(2, ["--ranks", "1 ranks"], "bench", "comm", "--ranks", 2, environment=environment)

    def test_gloo_is_measured_beside(self):
        results = self.bench("--compare", "gloo", "--python", sys.executable, "--rounds", 2, "--sizes", "4,4K",
                             "--operation", "all")
        self.assertEqual(len(results), 9 * 2 * 2 + 1)
        for result in results:
            self.assertEqual(set(result), KEYS | {"gloo_microseconds", "ratio_gloo"} | (
                LOOP_KEYS if result["operation"] == "all_reduce" and result["bytes"] >= 16 else set()), result)
            self.assertAlmostEqual(result["ratio_gloo"], result["gloo_microseconds"] / result["microseconds"])
        table = self.succeed("bench", "comm", *QUICK, "--compare", "gloo", "--python", sys.executable,
                             "--rounds", 1, "--sizes", 4, "--dtype", "fp32,fp16").splitlines()
        self.assertTrue(table[0].endswith("x gloo"), table[0])
        self.assertEqual({len(line) for line in table}, {len(table[0])})

    def test_a_python_without_torch_is_refused(self):
        script = self.folder / "python"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
        script.chmod(0o755)
        self.fail_with(2, ["no torch", "--python"], "bench", "comm", *QUICK, "--sizes", 4, "--compare", "gloo",
                       "--python", script)

    def test_bad_input(self):
        for expected, arguments in [
                (["--sizes", "12Q", "64K"], ["--sizes", "4,12Q"]),
                (["--sizes", "empty"], ["--sizes", "4,,8"]),
                (["--sizes", "6", "multiple of 4", "fp32"], ["--sizes", "6"]),
                (["--operation", "allreduce", "all_reduce"], ["--operation", "allreduce"]),
                (["--memory", "shared", "symmetric"], ["--memory", "shared"]),
                (["--dtype", "fp8", "bf16"], ["--dtype", "fp8"]),
                (["--ranks", "0"], ["--ranks", "2,0"]),
                (["--ranks", "2", "send_recv"], ["--ranks", "1", "--operation", "send_recv"]),
                (["pigeon", "shm"], ["--transport", "pigeon"]),
                (["--seconds", "0"], ["--seconds", "0"]),
                (["--rounds", "-1"], ["--rounds", "-1"]),
                (["--compare", "nccl", "gloo", "mpi"], ["--compare", "nccl"]),
                (["--compare", "pip install torch"], ["--compare", "gloo", "--python", "/no/python"]),
                (["--colour"], ["--colour"])]:
            with self.subTest(arguments=arguments):
                self.fail_with(2, expected, "bench", "comm", *arguments)
        self.fail_with(2, ["nonsense", "comm"], "bench", "nonsense")
        self.assertEqual(self.segments(), [])


if __name__ == "__main__":
    unittest.main()
