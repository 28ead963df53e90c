"""Parameter servers that are killed while their workers train on."""
import os
import signal
import time
import unittest

from program import TIMEOUT, ProgramTest, children, end, rank_of

PLAIN = ["--train.precision=fp64", "--train.gradient_clip=0", "--train.steps=60", "--checkpoint.interval=20"]


class ServerKills(ProgramTest):
    def train_and_kill(self, run, steps, *options):
        """Kills server 4, then 3, of ranks 0 to 4, after these steps."""
        process = self.start("train", "tiny.toml", "--ranks", 5, f"--output.folder={run}", "--parallel.servers=3",
                             "--parallel.server_copies=2", *PLAIN, *options)
        self.addCleanup(end, process)
        for server, step in zip((4, 3), steps):
            self.await_step(step, process, run)
            os.kill(rank_of(process, server), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0, errors)
        for server in (4, 3)[:len(steps)]:
            self.assertIn(f"rank {server} was killed by signal 9 (Killed, by someone or for lack of memory); other servers "
                          "have copies of its parameters", errors)

    def test_the_bits_are_those_of_a_run_without_servers(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--output.folder=plain", *PLAIN)
        self.train_and_kill("killed", (5, 30))
        losses = [line["loss"] for line in self.metrics("plain")]
        self.assertEqual([line["loss"] for line in self.metrics("killed")], losses)
        self.succeed("checkpoint", "verify", "killed")

    def test_an_asynchronous_run_goes_on(self):
        self.train_and_kill("run", (4, 25), "--parallel.staleness=-1")
        losses = [line["loss"] for line in self.metrics("run")]
        self.assertEqual(len(losses), 60)
        self.assertLess(losses[-1], losses[0])
        self.assertTrue((self.folder / "run/server-log/staleness-server-0.json").exists())

    def test_one_that_dies_while_the_job_starts_ends_it(self):
        process = self.start("train", "tiny.toml", "--ranks", 5, "--parallel.servers=3", "--parallel.server_copies=2",
                             *PLAIN)
        self.addCleanup(end, process)
        while len(children(process.pid)) < 5:
            time.sleep(0.01)
        os.kill(children(process.pid)[4], signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 3, errors)
        self.assertIn("rank 4 was killed by signal 9", errors)
        self.assertNotIn("have copies", errors)

    def test_without_copies_the_job_ends_with_a_line(self):
        process = self.start("train", "tiny.toml", "--ranks", 3, "--parallel.servers=1", *PLAIN)
        self.addCleanup(end, process)
        self.await_step(5, process)
        os.kill(rank_of(process, 2), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 3, errors)
        self.assertIn("rank 2 was killed by signal 9", errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
