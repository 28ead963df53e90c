"""The program with Open MPI, where the build found it: ranks of mpirun, `bench comm` beside MPI."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from doctor_checks import DoctorTest
from program import PROGRAM, TIMEOUT, ProgramTest, children

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
QUICK = ["--seconds", "0.005", "--rounds", "1"]


def has_joined(rank):
    """Whether the process is this program and has mapped what Open MPI shares between ranks."""
    try:
        return "vader_segment" in pathlib.Path(f"/proc/{rank}/maps").read_text()
    except OSError:  # gone, or between fork and exec
        return False


def wait_for(find, count, process):
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        found = find()
        if len(found) == count:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{count} were expected, there are {len(found)}")


class RanksOfMpirun(ProgramTest):
    def mpirun(self, *arguments):
        """The program as two ranks that mpirun starts."""
        result = subprocess.run(["mpirun", "-n", "2", "--oversubscribe", PROGRAM, *map(str, arguments)],
                                cwd=self.folder, env={**self.environment, **AS_ROOT}, text=True,
                                capture_output=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_bench_measures_them(self):
        for transport in ("mpi", "shm"):
            (result,) = json.loads(self.mpirun("bench", "comm", "--json", *QUICK, "--transport", transport,
                                               "--sizes", 64, "--memory", "ordinary"))
            self.assertEqual((result["ranks"], result["transport"]), (2, transport))

    def test_train_gives_the_same_bits(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        for transport in ("auto", "mpi"):
            self.mpirun("train", "tiny.toml", f"--output.folder={transport}", f"--parallel.transport={transport}")
            self.assertEqual(self.curve(transport), self.curve("run"))

    def test_mpi_without_mpirun_is_refused(self):
        self.fail_with(2, ["2 ranks", "mpirun"], "train", "tiny.toml", "--ranks", 2, "--parallel.transport=mpi")


class DoctorOfMpiRanks(DoctorTest):
    def start_training(self, *overrides):
        """mpirun of a run that goes on, and its ranks' process ids by rank."""
        process = subprocess.Popen(["mpirun", "-n", "2", "--oversubscribe", PROGRAM, "train", "tiny.toml",
                                    "--parallel.transport=mpi", "--train.steps=1000000", *overrides],
                                   cwd=self.folder, env={**self.environment, **AS_ROOT}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end_mpirun, process)
        while "saved" not in process.stdout.readline():  # mpirun gives its ranks a terminal, and steps are no lines
            self.assertIsNone(process.poll())
        _, report = self.doctor()
        pids = {rank["rank"]: rank["process_id"] for rank in report["ranks"]}
        self.assertEqual(sorted(pids.values()), sorted(children(process.pid)))
        return process, pids

    @staticmethod
    def end_mpirun(process):
        """Killed, it would leave its ranks behind; asked, it ends them."""
        process.terminate()
        process.communicate(timeout=TIMEOUT)

    def test_a_stopped_rank_is_named(self):
        process, pids = self.start_training()
        for rank in (1, 0):
            with self.subTest(rank=rank):
                self.check_stopped_rank(pids, rank)
        self.assertIsNone(process.poll())

    def test_a_killed_rank_is_named(self):
        for victim in (1, 0):
            with self.subTest(victim=victim):
                process, pids = self.start_training()
                # mpirun kills the other: who of two that died in one call was first is not known.
                self.check_killed_rank([process], pids, victim, code=128 + signal.SIGKILL, dies_alone=False)

    def test_a_refused_run_leaves_the_recorder_files_of_the_one_that_goes_on(self):
        _, pids = self.start_training()
        result = self.run_mpi("train", "tiny.toml", "--parallel.transport=mpi")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("is being written by another program", result.stderr)
        code, report = self.doctor()
        self.assertEqual((code, report["findings"][0]["kind"]), (0, "progress"))
        self.assertEqual({rank["rank"]: rank["process_id"] for rank in report["ranks"]}, pids)

    def run_mpi(self, *arguments):
        return subprocess.run(["mpirun", "-n", "2", "--oversubscribe", PROGRAM, *arguments], cwd=self.folder,
                              env={**self.environment, **AS_ROOT}, text=True, capture_output=True, timeout=TIMEOUT)


class BenchBesideMpi(ProgramTest):
    def bench(self, *arguments):
        return json.loads(self.succeed("bench", "comm", "--json", *QUICK, *arguments))

    def test_every_operation_has_a_ratio(self):
        results = self.bench("--compare", "mpi", "--operation", "all", "--sizes", "4,4K", "--memory", "ordinary")
        self.assertEqual(len(results), 9 * 2 + 1)
        for result in results:
            self.assertAlmostEqual(result["ratio_mpi"], result["mpi_microseconds"] / result["microseconds"])

    def test_transport_mpi_runs_under_mpirun(self):
        results = self.bench("--transport", "mpi,shm", "--operation", "all", "--sizes", "4,4K", "--dtype", "bf16",
                             "--memory", "ordinary")
        self.assertEqual([r["transport"] for r in results], ["mpi"] * 19 + ["shm"] * 19)
        self.assertEqual({r["ranks"] for r in results}, {2})

    def test_errors_of_its_ranks_are_one_line(self):
        self.fail_with(2, ["--sizes", "multiple of 2"], "bench", "comm", "--transport", "mpi", "--sizes", 3,
                       "--dtype", "bf16")
        self.fail_with(2, ["mpirun", "PATH", "openmpi-bin"], "bench", "comm", "--transport", "mpi",
                       environment={"PATH": "/nowhere"})

    def test_a_killed_rank_ends_the_job(self):
        process = self.start("bench", "comm", "--transport", "mpi", "--sizes", "4", "--seconds", "300")
        ranks = wait_for(lambda: [rank for mpirun in children(process.pid) for rank in children(mpirun)
                                  if has_joined(rank)], 2, process)
        os.kill(ranks[1], signal.SIGKILL)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, output), (3, ""), errors)
        self.assertRegex(errors, r"\Atrireme: [^\n]*signal 9[^\n]*\n\Z")

    def test_more_ranks_than_cores(self):
        (result,) = self.bench("--compare", "mpi", "--ranks", 5, "--sizes", 64, "--memory", "ordinary")
        self.assertGreater(result["ratio_mpi"], 0)

    def test_what_mpi_cannot_sum_has_no_ratio(self):
        results = self.bench("--compare", "mpi", "--dtype", "bf16", "--sizes", 64, "--memory", "ordinary",
                             "--operation", "all_reduce,all_gather")
        self.assertEqual(["ratio_mpi" in result for result in results], [False, True])


if __name__ == "__main__":
    unittest.main()
