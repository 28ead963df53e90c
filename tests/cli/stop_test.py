"""Asked to stop at random instants: ends with the step under way, loses nothing, goes on with the same bits."""
import os
import random
import signal
import time
import unittest

from program import TIMEOUT, ProgramTest, children

DONE = 0
ENDLESS = 1_000_000
SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))


class Stop(ProgramTest):
    def setUp(self):
        super().setUp()
        # What nohup and shells' background jobs ignore, the programs would rightly not hear.
        for kind in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, signal.SIG_DFL)
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)

    def command(self, run, *options, ranks=2):
        # The curve depends on no step that is still to come.
        return ["train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}", "--optimizer.schedule=constant",
                "--checkpoint.interval=0", *options]

    def num_lines(self, run):
        return (self.folder / run / "metrics.jsonl").read_text().count("\n")

    def stop_at_random(self, run, *options, ranks=2):
        """Runs until a signal to one of its processes ends it; the last step, and how many of them that took."""
        process = self.start_and_await_step(*self.command(run, *options, f"--train.steps={ENDLESS}", ranks=ranks))
        time.sleep(self.random.uniform(0, 0.3))
        # Of one rank there is no launcher.
        victim = self.random.choice([process.pid, *children(process.pid)])
        kind = self.random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        os.kill(victim, kind)
        done = self.num_lines(run)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (DONE, ""), f"{kind} to {victim} of {process.pid}")
        last = self.curve(run)[-1][0]
        self.assertIn(f"step-{last:06}", self.checkpoints(run))
        self.assertEqual(self.segments(), [])
        self.assertIn("stopped on request", output)
        return last, last - done

    def test_signals_at_random_instants_inside_a_step(self):
        # Much longer than what comes between two steps.
        options = ["--train.global_batch=96", "--train.micro_batch=8"]
        taken = []
        for name, ranks, more in [("one", 1, []), ("two", 2, []), ("zero", 2, ["--parallel.zero=3"]),
                                  ("pipeline", 2, ["--parallel.pipeline=2"])]:
            with self.subTest(name):
                for _ in range(2):
                    last, steps = self.stop_at_random(name, *options, *more, ranks=ranks)
                    taken.append(steps)
                for run in (name, "whole-" + name):
                    self.succeed(*self.command(run, *options, *more, f"--train.steps={last + 2}", ranks=ranks))
                self.assertEqual(self.curve(name), self.curve("whole-" + name))
                self.succeed("checkpoint", "verify", name)
        # When the signal came, `done` lines were written and step done + 1 was under way; or, in the moment between
        # a step's end and its line, the next one. Nearly always the former.
        print("steps from signal to end:", taken, flush=True)
        self.assertLessEqual(max(taken), 2)
        self.assertLess(taken.count(2), len(taken) / 2)

    def test_a_long_evaluation_ends_early(self):
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bytes", "--validation-fraction", "0.5",
                     "--output", "data/tiny")
        options = ["--train.evaluate_interval=1", "--train.evaluate_sequences=100000", "--train.micro_batch=1"]
        for _ in range(2):
            last, steps = self.stop_at_random("run", *options)
            self.assertLessEqual(steps, 2)
        for run in ("run", "whole"):
            self.succeed(*self.command(run, *options, f"--train.steps={last + 2}"))
        self.assertEqual(self.curve("run"), self.curve("whole"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
