"""A user's callback in a user's program (own_callback.cc): its state survives kill -9 at any moment, and when it fails on
one rank, all ranks end with its name."""
import os
import random
import signal
import time
import unittest

import program
from program import TIMEOUT, ProgramTest, children

BUG, USER, PEER_LOST, CHECKPOINT = 1, 2, 3, 4
STEPS = 40
SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))


class OwnCallback(ProgramTest):
    program = os.environ["TRIREME_OWN_CALLBACK"]

    def prepare(self):
        self.program = program.PROGRAM  # it has the command `data`
        super().prepare()
        self.program = OwnCallback.program
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)

    def command(self, run, *options):
        return ["train", "tiny.toml", "--ranks", 2, f"--train.steps={STEPS}", "--checkpoint.interval=4",
                f"--output.folder={run}", *options]

    def kill_after_a_checkpoint(self, run, *options):
        """Kills a rank at a random moment after the run has got further. False: it was done before."""
        folder = self.folder / run / "checkpoints"
        before = len(self.metrics(run)) if folder.exists() else 0
        process = self.start(*self.command(run, "--tally.pause_ms=15", *options))
        limit = time.monotonic() + TIMEOUT
        while not (folder.exists() and any(int(path.name[5:]) > before for path in folder.glob("step-*"))):
            self.assertIsNone(process.poll(), "it ended before a checkpoint")
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.002)
        time.sleep(self.random.uniform(0, 0.2))
        ranks = children(process.pid)
        if len(ranks) < 2 or process.poll() is not None:
            return False
        os.kill(self.random.choice(ranks), signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, PEER_LOST)
        return True

    def tallies(self, run):
        """The lines as they are printed: equal text, equal bits."""
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [line[line.index('"tally"'):line.index(', "epoch"')] for line in lines]

    def tensors(self, run):
        """The bytes of the last checkpoint's tensors."""
        last = self.folder / run / "checkpoints" / f"step-{STEPS:06}"
        return {path.name: path.read_bytes() for path in last.glob("*.safetensors")}

    def test_killed_and_resumed_its_state_is_that_of_the_uninterrupted_run(self):
        for layout in (["--parallel.zero=3"], ["--parallel.pipeline=2"]):
            with self.subTest(layout):
                name = layout[0][-1]
                self.succeed(*self.command("reference" + name, *layout))
                run = "run" + name
                kills = sum(self.kill_after_a_checkpoint(run, *layout) for _ in range(3))
                self.assertGreater(kills, 0)
                self.succeed(*self.command(run, *layout))
                self.assertEqual(self.curve(run), self.curve("reference" + name))
                self.assertEqual(self.tallies(run), self.tallies("reference" + name))
                self.assertEqual(self.metrics(run)[-1]["tally_steps"], STEPS)
                self.assertEqual(self.tensors(run), self.tensors("reference" + name))

    def test_its_tensors_are_in_the_checkpoint_and_fit_another_layout(self):
        self.succeed(*self.command("run", "--parallel.zero=3"))
        names = self.succeed("checkpoint", "inspect", "run", "--json")
        self.assertIn("callback.tally.lm_head.weight", names)
        self.succeed(*self.command("run", "--parallel.tensor=2", f"--train.steps={STEPS + 4}"))
        self.assertEqual(self.metrics("run")[-1]["tally_steps"], STEPS + 4)

    def test_failing_on_one_rank_it_ends_all_with_its_name_and_the_code_of_its_error(self):
        evaluates = ["--train.evaluate_interval=2", "--train.evaluate_sequences=4"]
        events = ["on_start", "on_gradients", "on_evaluate", "on_step", "on_checkpoint", "on_stop"]
        for i, event in enumerate(events):
            rank = i % 2
            with self.subTest(event):
                self.fail_with(BUG, [f"the callback tally failed on rank {rank} in {event}: out of luck"],
                               *self.command(f"fail{i}", f"--tally.fail_in={event}", f"--tally.fail_rank={rank}",
                                             "--train.steps=4", *evaluates))
                self.assertEqual(self.segments(), [])
        for kind, code in {"config": USER, "file": USER, "checkpoint": CHECKPOINT}.items():
            self.fail_with(code, ["the callback tally failed on rank 1 in on_step", "a "],
                           *self.command(kind, "--tally.fail_in=on_step", "--tally.fail_rank=1",
                                         f"--tally.fail_kind={kind}"))

    def test_a_command_that_outlasts_the_timeout_costs_a_finished_run_nothing(self):
        self.program = program.PROGRAM
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=4", "--checkpoint.interval=2",
                              "--parallel.timeout_seconds=2", "--command.on_checkpoint=sleep 3", "--output.folder=slow")
        self.assertIn("step 4/4  loss", output)
        self.assertEqual(self.segments(), [])


if __name__ == "__main__":
    unittest.main()
