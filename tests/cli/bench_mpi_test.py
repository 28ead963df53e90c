"""`trireme bench comm` beside Open MPI, where the build found it."""
import json
import unittest

from program import ProgramTest

QUICK = ["--seconds", "0.005", "--rounds", "1"]


class BenchBesideMpi(ProgramTest):
    def bench(self, *arguments):
        return json.loads(self.succeed("bench", "comm", "--json", *QUICK, *arguments))

    def test_every_operation_has_a_ratio(self):
        results = self.bench("--compare", "mpi", "--operation", "all", "--sizes", "4,4K", "--memory", "ordinary")
        self.assertEqual(len(results), 9 * 2 + 1)
        for result in results:
            self.assertAlmostEqual(result["ratio_mpi"], result["mpi_microseconds"] / result["microseconds"])

    def test_more_ranks_than_cores(self):
        (result,) = self.bench("--compare", "mpi", "--ranks", 5, "--sizes", 64, "--memory", "ordinary")
        self.assertGreater(result["ratio_mpi"], 0)

    def test_what_mpi_cannot_sum_has_no_ratio(self):
        results = self.bench("--compare", "mpi", "--dtype", "bf16", "--sizes", 64, "--memory", "ordinary",
                             "--operation", "all_reduce,all_gather")
        self.assertEqual(["ratio_mpi" in result for result in results], [False, True])


if __name__ == "__main__":
    unittest.main()
