"""Decoupled learners: one that stands still does not hold up the others, the log repeats the run, what reads its
checkpoint, and lines for what cannot be combined; and as runs of their own: one that is killed and comes back, one that
is late, and the last round."""
import json
import os
import signal
import unittest

from meeting_learners import ENDLESS, MeetingTest
from program import TIMEOUT, ProgramTest, rank_of

USER = 2
OUTER = ["--outer.method=decoupled", "--outer.every=4", "--outer.quorum=2", "--outer.delay=2"]


class Decoupled(ProgramTest):
    def command(self, run, *options, learners=3, servers=1):
        return ["train", "tiny.toml", "--ranks", learners + servers, "--threads", 1, f"--output.folder={run}",
                f"--parallel.learners={learners}", f"--parallel.servers={servers}", "--train.global_batch=24",
                "--train.micro_batch=2", *options]

    def test_the_others_go_on_while_one_stands_still(self):
        steps = 160
        # Without checkpoints, at which learners meet.
        options = [*OUTER, f"--train.steps={steps}", "--checkpoint.interval=0"]
        process = self.start(*self.command("run", *options))
        self.await_step(9, process)
        stopped = rank_of(process, 1)
        os.kill(stopped, signal.SIGSTOP)
        try:
            reached = len(self.metrics())
            self.await_step(reached + 40, process)  # ten rounds
        finally:
            os.kill(stopped, signal.SIGCONT)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("learners 3 (decoupled every 4 steps) x data 1 + servers 1 (quorum 2)", output)
        lines = self.metrics()
        self.assertEqual(len(lines), steps)
        took_part = [line["learners"] for line in lines if "outer_bytes" in line]
        self.assertIn(2, took_part)
        histogram = json.loads((self.folder / "run/server-log/staleness.json").read_text())
        # It pushes once more from the weights that it had, after several rounds of the others.
        self.assertGreaterEqual(max(map(int, histogram)), 5, histogram)
        self.assertIn("pushes by rounds that have ended without them", output)
        self.succeed(*self.command("again", *options, "--parallel.replay=run/server-log"))
        self.assertEqual(self.curve("again"), self.curve("run"))

    def test_others_read_the_common_weights(self):
        self.succeed(*self.command("run", *OUTER))
        self.assertIn("def", self.succeed("generate", "--checkpoint", "run", "--prompt", "def", "--tokens", 4))
        self.succeed("checkpoint", "verify", "run/checkpoints/step-000020")
        self.succeed(*self.command("run", *OUTER, "--train.steps=25"))
        self.assertEqual(len(self.metrics()), 25)

    def test_servers_may_die(self):
        process = self.start(*self.command("run", *OUTER, "--train.steps=60", "--parallel.server_copies=2", servers=3))
        self.await_step(12, process)
        os.kill(rank_of(process, 5), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(len(self.metrics()), 60)

    def test_what_cannot_be_combined_is_one_line(self):
        for words, options in (
                (["outer.quorum is 4, and there are 3 learners"], ["--outer.quorum=4"]),
                (["outer.quorum is -1"], ["--outer.quorum=-1"]),
                (["train.reproducible", "who is in time"], ["--train.reproducible=true"]),
                (["outer.every is 4 and outer.fragments 3"], ["--outer.fragments=3"]),
                (["outer.delay is 4"], ["--outer.delay=4"]),
                (["parallel.zero = 3"], ["--parallel.zero=3"]),
                (["outer.grace_seconds = 1", "others"], ["--outer.quorum=3", "--outer.grace_seconds=1"])):
            with self.subTest(words):
                self.fail_with(USER, words, *self.command("none", *OUTER, *options))
        self.fail_with(USER, ["without parallel.servers"], *self.command("none", *OUTER, servers=0))
        self.fail_with(USER, ["outer.quorum", "belong to outer.method"],
                       *self.command("none", *OUTER, "--outer.method=diloco", servers=0))
        self.assertFalse((self.folder / "none").exists())


class DecoupledMeeting(MeetingTest):
    def begin(self, lease, *options, **others):
        self.serve(lease=lease)
        return {place: self.join_decoupled(place, *options, **others) for place in range(3)}

    def join_decoupled(self, place, *options, **others):
        # Enough grace for all that are not late for a reason.
        return self.join(place, "--outer.method=decoupled", "--outer.quorum=2", "--outer.grace_seconds=1", *options,
                         **others)

    def test_the_others_go_on_without_a_killed_learner_which_comes_back(self):
        learners = self.begin(2, steps=ENDLESS)
        self.expect_rounds_without(learners, self.join_decoupled)
        self.assertIn("learners 3 (decoupled every 5 steps, quorum 2) x data 1", self.output(0))

    def test_the_work_of_a_late_learner_counts_to_the_last_round(self):
        steps = 600
        learners = self.begin(600, "--checkpoint.interval=0", steps=steps)
        self.await_round(2, learners[2], lambda step, number: number == 3 and step >= 10)
        os.kill(learners[2].pid, signal.SIGSTOP)
        try:
            last = max(self.rounds(2))  # of which it has heard
            self.await_round(0, learners[0], lambda step, number: step == steps - 5)
        finally:
            os.kill(learners[2].pid, signal.SIGCONT)
        self.finish(learners)
        # Its message of the round after that may have counted.
        self.assertEqual({self.rounds(0)[step][1] for step in range(last + 10, steps, 5)}, {2})
        self.assertEqual(self.rounds(0)[steps][1], 3)
        self.assertRegex(self.output(2), rf"takes their common weights of step {steps - 5} and goes on from there")
        self.expect_equal_rounds(range(3))
        self.assertEqual(len({self.weights(place) for place in range(3)}), 1)


if __name__ == "__main__":
    unittest.main()
