"""Killed at random instants and resumed by the same command: the uninterrupted run's bits."""
import contextlib
import os
import random
import signal
import time
import unittest

from program import TIMEOUT, ProgramTest, children, is_running

DONE, USER, PEER_LOST = 0, 2, 3
STEPS = 60
SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))


class KillResume(ProgramTest):
    options = []

    def setUp(self):
        super().setUp()
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)

    def command(self, run, steps=STEPS):
        return ["train", "tiny.toml", "--ranks", 2, f"--train.steps={steps}",
                f"--output.folder={run}", *self.options]

    def train_until(self, run, wait):
        """A running launcher with its ranks' process ids, after `wait(process)`."""
        process = self.start(*self.command(run))
        while len(children(process.pid)) < 2 and process.poll() is None:
            time.sleep(0.001)
        ranks = children(process.pid)
        wait(process)
        return process, ranks

    def random_instant(self, _):
        time.sleep(self.random.uniform(0.0, 1.2))

    def assert_gone(self, ranks):
        """The kernel kills them with their launcher; only a hang reaches the limit."""
        limit = time.monotonic() + TIMEOUT
        while any(map(is_running, ranks)):
            self.assertLess(time.monotonic(), limit, "a rank outlives its launcher")
            time.sleep(0.005)

    def assert_finishes_as_reference(self, run):
        self.succeed(*self.command("reference"))
        self.succeed(*self.command(run))
        self.assertEqual([step for step, _, _ in self.curve(run)], list(range(1, STEPS + 1)))
        self.assertEqual(self.curve(run), self.curve("reference"))
        self.succeed("checkpoint", "verify", run)
        names = os.listdir(self.folder / run / "checkpoints")
        self.assertEqual([name for name in names if name.startswith(".")], [])
        self.assertEqual(self.segments(), [])

    def test_a_killed_rank(self):
        for _ in range(6):
            process, ranks = self.train_until("run", self.random_instant)
            if len(ranks) == 2 and process.poll() is None:
                victim = self.random.choice(ranks)
                with contextlib.suppress(ProcessLookupError):  # it finished a moment before
                    os.kill(victim, signal.SIGKILL)
                _, line = process.communicate(timeout=TIMEOUT)
                if process.returncode != DONE:  # else it had finished a moment before
                    self.assertEqual(process.returncode, PEER_LOST, line)
                    self.assertRegex(line, r"\Atrireme: rank \d was killed by signal 9 [^\n]+\n\Z")
                    self.assertFalse(any(map(is_running, ranks)))
        self.assert_finishes_as_reference("run")

    def test_a_killed_rank_that_shares_everything_out(self):
        """Weights, gradients, masters on disk and residuals of compression, each on its own rank."""
        self.options = ["--parallel.zero=3", "--train.precision=bf16", "--offload.optimizer=disk",
                        "--offload.buffer_bytes=65536", "--train.compression=topk", "--train.compression_ratio=0.1"]
        self.test_a_killed_rank()

    def test_a_killed_launcher(self):
        for _ in range(6):
            process, ranks = self.train_until("run", self.random_instant)
            process.kill()
            process.communicate(timeout=TIMEOUT)
            self.assert_gone(ranks)
        self.assert_finishes_as_reference("run")

    def test_a_kill_between_two_checkpoints_cuts_the_metrics(self):
        def seven_lines(process):
            metrics = self.folder / "run/metrics.jsonl"
            while process.poll() is None:
                if metrics.exists() and metrics.read_text().count("\n") >= 7:
                    return

        process, ranks = self.train_until("run", seven_lines)
        process.kill()
        process.communicate(timeout=TIMEOUT)
        self.assert_gone(ranks)
        # As if the kill had cut a line short.
        with open(self.folder / "run/metrics.jsonl", "a") as file:
            file.write('{"step": 5')
        self.assert_finishes_as_reference("run")

    def test_a_request_to_stop(self):
        for kind in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=kind):
                run = f"run-{kind}"
                process = self.start_and_await_step(*self.command(run))
                process.send_signal(kind)
                output, errors = process.communicate(timeout=TIMEOUT)
                self.assertEqual((process.returncode, errors), (DONE, ""))
                last = self.curve(run)[-1][0]
                self.assertLess(last, STEPS)
                self.assertIn("stopped on request", output)
                self.assert_saved_at_the_end(run)
                self.assert_finishes_as_reference(run)

    def start_long_run(self, *options):
        return self.start_and_await_step("train", "tiny.toml", "--train.steps=1000000", *options)

    def assert_saved_at_the_end(self, run="run"):
        self.assertIn(f"step-{self.curve(run)[-1][0]:06}", self.checkpoints(run))

    def test_a_request_to_stop_one_rank(self):
        for kind in (signal.SIGTERM, signal.SIGHUP):
            process = self.start_long_run(f"--output.folder=run-{kind}")
            process.send_signal(kind)
            _, errors = process.communicate(timeout=TIMEOUT)
            self.assertEqual((process.returncode, errors), (DONE, ""))
            self.assert_saved_at_the_end(f"run-{kind}")

    def test_nohup_is_heeded(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which children inherit
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                run = f"run-{ranks}"
                process = self.start_long_run("--ranks", ranks, f"--output.folder={run}")
                for pid in [process.pid, *children(process.pid)]:
                    os.kill(pid, signal.SIGHUP)
                lines = len(self.curve(run))
                while len(self.curve(run)) < lines + 3:
                    self.assertIsNone(process.poll())
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=TIMEOUT)
                self.assertEqual((process.returncode, errors), (DONE, ""))

    def test_a_reader_that_goes_away_costs_nothing(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                process = self.start_long_run("--ranks", ranks)
                process.stdout.close()
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(TIMEOUT), DONE, process.stderr.read())
                self.assert_saved_at_the_end()

    def test_two_runs_do_not_share_a_folder(self):
        process = self.start_long_run("--ranks", 2)
        for ranks in (1, 2):
            self.fail_with(USER, ["run is being written by another program", "choose another folder"],
                           "train", "tiny.toml", "--ranks", ranks)
        self.assertIsNone(process.poll())
        process.kill()
        process.communicate(timeout=TIMEOUT)
        self.succeed("train", "tiny.toml", "--train.steps=1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
