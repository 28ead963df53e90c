"""Learners: groups of ranks that train by themselves. Same bits after kills, what the start and metrics say, what reads
their checkpoints, a learner that dies, and lines for what cannot be combined."""
import contextlib
import os
import signal
import unittest

from program import CLUSTER, TIMEOUT, ProgramTest, children, rank_of

USER, PEER = 2, 3
DELAYED = ["--outer.every=6", "--outer.fragments=2", "--outer.delay=2", "--outer.mix=0.5", "--outer.wire=int8"]
GOSSIP = ["--outer.method=gossip", "--outer.graph=base-2", "--outer.every=3"]


class Learners(ProgramTest):
    def command(self, run, *options, learners=2, ranks=None):
        return ["train", "tiny.toml", "--ranks", ranks or learners, "--threads", 1, f"--output.folder={run}",
                f"--parallel.learners={learners}", *options]

    def kill_at(self, step, run, command):
        process = self.start(*command)
        self.await_step(step, process, run)
        for pid in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        self.assertNotEqual(process.returncode, 0)

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        steps = ["--train.steps=30", "--checkpoint.interval=2", "--train.global_batch=24", "--train.micro_batch=2"]
        for name, options, learners, ranks in (("delayed", DELAYED, 2, 2), ("gossip", GOSSIP, 3, 3),
                                               ("sharded", [*DELAYED, "--parallel.zero=3"], 2, 4)):
            with self.subTest(name):
                whole, killed = (self.command(f"{name}-{each}", *options, *steps, learners=learners, ranks=ranks)
                                 for each in ("whole", "killed"))
                self.succeed(*whole)
                for step in (9, 17):
                    self.kill_at(step, f"{name}-killed", killed)
                self.assertIn("resume  after step", self.succeed(*killed))
                self.assertEqual(self.curve(f"{name}-killed"), self.curve(f"{name}-whole"))

    def test_the_start_and_the_metrics_tell_of_learners(self):
        output = self.succeed(*self.command("run", "--outer.every=5", "--parallel.zero=1", ranks=4))
        self.assertIn("learners 2 (diloco every 5 steps) x data 2", output)
        lines = self.metrics()
        self.assertEqual([line["step"] for line in lines if "outer_bytes" in line], [5, 10, 15, 20])
        self.assertTrue(all(line["learners"] == 2 for line in lines))
        ends = [line for line in lines if "outer_bytes" in line]
        self.assertTrue(all(line["learner_spread"] > 0 and line["outer_wait_seconds"] >= 0 for line in ends))
        self.assertLess(ends[-1]["learner_loss"], ends[0]["learner_loss"])

    def test_others_read_the_common_weights(self):
        self.succeed(*self.command("run", "--outer.every=5"))
        self.assertIn("def", self.succeed("generate", "--checkpoint", "run", "--prompt", "def", "--tokens", 4))
        self.succeed("checkpoint", "verify", "run/checkpoints/step-000020")
        self.succeed("checkpoint", "export", "run/checkpoints/step-000020", "--output", "exported")
        self.succeed("train", "tiny.toml", "--output.folder=alone", "--init.folder=run", "--train.steps=2")
        refused = ["train", "tiny.toml", "--output.folder=run", "--train.steps=25"]
        self.fail_with(USER, ["parallel.learners", "resume.allow"], *refused)
        self.succeed(*refused, "--resume.allow=parallel.learners,outer.every")
        self.assertEqual(len(self.metrics()), 25)

    def test_a_dead_learner_ends_the_run_which_goes_on(self):
        command = self.command("run", "--outer.every=3", "--train.steps=40")
        process = self.start(*command)
        self.await_step(8, process)
        os.kill(rank_of(process, 1), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, PEER, errors)
        self.assertIn("rank 1 was killed by signal 9", errors)
        self.succeed(*command)
        self.assertEqual(len(self.metrics()), 40)

    def test_what_cannot_be_combined_is_one_line(self):
        for words, options, ranks in (
                (["parallel.learners is 2, which does not divide the 3 ranks"], [], 3),
                (["outer.every is 5 and outer.fragments 2", "such as 4"], ["--outer.every=5", "--outer.fragments=2"], 2),
                (["outer.delay is 5", "less than the 5 steps"], ["--outer.every=5", "--outer.delay=5"], 2),
                (["one-peer", "base-2"], ["--parallel.learners=3", "--outer.method=gossip", "--outer.graph=one-peer",
                                          "--train.global_batch=12"], 3),
                (["outer.kept = 0.1"], ["--outer.method=gossip", "--outer.kept=0.1"], 2),
                (["outer.method is \"dilocco\"", "diloco"], ["--outer.method=dilocco"], 2),
                (["parallel.servers"], ["--parallel.servers=1"], 2),
                (["train.precision"], ["--train.precision=fp16"], 2)):
            with self.subTest(words):
                self.fail_with(USER, words, *self.command("none", *options, ranks=ranks))
        (self.folder / "graph.txt").write_text("learners 2\nround\n0 1 3/2\n1 0 1/2\n")
        self.fail_with(USER, ["graph.txt"], *self.command("none", "--outer.method=gossip", "--outer.graph=./graph.txt"))
        (self.folder / "cluster.toml").write_text(CLUSTER)
        self.fail_with(USER, ["outer.method", "cost model"], "plan", "tiny.toml", "cluster.toml",
                       "--parallel.learners=2", "--outer.method=d2")


if __name__ == "__main__":
    unittest.main()
