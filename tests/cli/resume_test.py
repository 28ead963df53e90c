"""What a run goes on from: its own checkpoints, its own model and data, in a folder that is still there."""
import contextlib
import os
import shutil
import signal
import unittest

from program import TIMEOUT, ProgramTest, children, freeze

DONE, USER, BAD_CHECKPOINT = 0, 2, 4


class Resume(ProgramTest):
    def train(self, *overrides, ranks=1, run="run"):
        return self.succeed("train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}", *overrides)

    def refused(self, code, words, *overrides, ranks=1, run="run"):
        return self.fail_with(code, words, "train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}",
                              *overrides)

    def read(self, name, run="run"):
        return (self.folder / run / name).read_text()

    def test_another_model_is_refused_with_its_keys_or_allowed_by_them(self):
        self.train("--train.steps=10", ranks=2)
        metrics, config = self.read("metrics.jsonl"), self.read("config.toml")
        # Under the same shapes.
        other = ["--model.heads=8", "--model.kv_heads=4", "--model.rope_base=500", "--train.steps=12"]
        keys = "model.heads,model.kv_heads,model.rope_base"
        for ranks in (1, 2):
            self.refused(USER, ["run/checkpoints/step-000010 belongs to another run", "model.heads 4 -> 8",
                                "model.rope_base 10000.0 -> 500.0", f"--resume.allow={keys}"], *other, ranks=ranks)
        self.assertEqual((self.read("metrics.jsonl"), self.read("config.toml")), (metrics, config))
        self.refused(USER, ["resume.allow", "model.haeds", "did you mean \"model.heads\"?"],
                     "--resume.allow=model.haeds")
        output = self.train(*other, f"--resume.allow={keys}")
        self.assertIn("resume  resume.allow lets change: model.heads 4 -> 8", output)
        self.assertNotIn("[resume]", self.read("config.toml"))
        self.assertNotIn("belongs to another run", self.train(*other))

    def test_no_permission_is_advised_that_cannot_help(self):
        self.train("--train.steps=10")
        words = self.refused(USER, ["model.width 32 -> 64", "choose another output.folder", "size of its weights differs"],
                             "--model.width=64", "--data.seed=3")
        self.assertNotIn("--resume.allow", words)
        self.refused(USER, ["--resume.allow=data.seed"], "--data.seed=3")

    def test_what_may_change_is_said_in_one_line(self):
        self.assertNotIn("resume", self.train("--train.steps=10", ranks=2))
        output = self.train("--train.steps=12", "--train.global_batch=8", "--optimizer.learning_rate=1e-4")
        self.assertRegex(output, r"(?m)^resume  changed since then: train.steps 10 -> 12, train.global_batch 16 -> 8, "
                                 r"optimizer.learning_rate 0.001 -> 1e-04, parallel.data 2 -> 1")
        self.assertEqual(output.count("changed since then"), 1)

    def test_data_is_known_by_its_content(self):
        self.train("--train.steps=10")
        for path in (self.folder / "data").iterdir():
            shutil.copy(path, self.folder / path.name.replace("tiny", "copy"))
        with open(self.folder / "text" / "3.txt", "a") as text:
            text.write("one line more\n")
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bytes", "--output", "data/tiny")
        self.refused(USER, ["data.path 'data/tiny'", "--resume.allow=data.path"], "--train.steps=12", ranks=2)
        self.assertIn("the same content", self.train("--train.steps=12", "--data.path=copy", ranks=2))
        self.assertEqual(len(self.curve()), 12)

    def test_a_renamed_folder_serves_as_before(self):
        self.train("--train.steps=10", ranks=2)
        (self.folder / "elsewhere").mkdir()
        (self.folder / "run").rename(self.folder / "elsewhere/renamed")
        run = "elsewhere/renamed"
        self.assertTrue(self.succeed("generate", "--checkpoint", run, "--prompt", "def ", "--tokens", 5))
        self.succeed("checkpoint", "verify", run)
        self.succeed("checkpoint", "export", run, "--output", "exported")
        self.assertIn("resume  after step 10", self.train("--train.steps=12", run=run, ranks=2))
        self.train("--train.steps=10", run="whole", ranks=2)
        self.train("--train.steps=12", run="whole", ranks=2)
        self.assertEqual(self.curve(run), self.curve("whole"))
        self.assertFalse((self.folder / "run").exists())

    def test_a_run_that_has_lost_its_checkpoints_does_not_begin_again(self):
        self.train()
        metrics = self.read("metrics.jsonl")
        for path in (self.folder / "run/checkpoints").glob("*/manifest.json"):
            path.unlink()
        words = ["run has no checkpoint", "reaches step 20", "put its checkpoints back"]
        for ranks in (1, 2):
            self.refused(BAD_CHECKPOINT, words, ranks=ranks)
        shutil.rmtree(self.folder / "run/checkpoints")
        self.refused(BAD_CHECKPOINT, words)
        self.assertEqual(self.read("metrics.jsonl"), metrics)
        self.assertFalse((self.folder / "run/checkpoints").exists())
        shutil.rmtree(self.folder / "run")
        self.train()
        self.assertEqual(self.read("metrics.jsonl").count("\n"), 20)

    def test_a_run_killed_before_its_first_checkpoint_begins_again(self):
        process = self.start_and_await_step("train", "tiny.toml", "--ranks", 2, "--train.steps=1000000",
                                    "--checkpoint.interval=0")
        process.kill()
        process.communicate(timeout=TIMEOUT)
        steps = self.read("metrics.jsonl").count("\n")
        output = self.train("--checkpoint.interval=1", ranks=2)
        self.assertRegex(output, r"resume  the run ended at step \d+ before its first checkpoint")
        self.assertGreater(steps, 0)
        self.assertEqual([step for step, _, _ in self.curve()], list(range(1, 21)))

    @contextlib.contextmanager
    def stopped_run(self, ranks):
        """A run between two of its instructions, which goes on at the end of the block."""
        process = self.start_and_await_step("train", "tiny.toml", "--ranks", ranks, "--train.steps=1000000",
                                    "--checkpoint.interval=0")
        pids = [process.pid, *children(process.pid)]
        freeze(pids)
        yield process
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def lose(self, action, ranks):
        """The line of a run whose folder is lost."""
        with self.stopped_run(ranks) as process:
            action()
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, USER, errors)
        self.assertRegex(errors, r"\Atrireme: [^\n]+\n\Z")
        return errors

    def assert_goes_on(self, run):
        """From the checkpoint of its last step, with the bits of a run that was left in peace."""
        last = self.curve(run)[-1][0]
        self.assertEqual(self.checkpoints(run), [f"step-{last:06}"])
        self.succeed("checkpoint", "verify", run)
        steps = f"--train.steps={last + 2}"
        # The schedule is the one of the long run.
        constant = "--optimizer.schedule=constant"
        self.train(steps, constant, run=run)
        self.assertEqual(self.curve(run)[-1][0], last + 2)

    def test_a_folder_that_is_moved_during_the_run(self):
        moved = self.folder / "moved"
        line = self.lose(lambda: (self.folder / "run").rename(moved), ranks=2)
        self.assertIn(f"output.folder run was moved to {moved.resolve()}", line)
        self.assertFalse((self.folder / "run").exists())
        self.assert_goes_on("moved")

    def test_a_folder_that_is_removed_during_the_run(self):
        line = self.lose(lambda: shutil.rmtree(self.folder / "run"), ranks=2)
        self.assertIn("output.folder run was removed", line)
        self.assertEqual({"checkpoints", "config.toml", "metrics.jsonl", "run.json", "tensorboard", "tokenizer.tokenizer.json"},
                         set(os.listdir(self.folder / "run")))
        self.assert_goes_on("run")

    def test_another_run_at_the_same_place_is_left_alone(self):
        def times():
            return {path: path.stat().st_mtime_ns for path in (self.folder / "run").rglob("*")}

        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                with self.stopped_run(ranks) as process:
                    shutil.rmtree(self.folder / "run")
                    self.train("--train.steps=5")
                    before = times()
                _, errors = process.communicate(timeout=TIMEOUT)
                self.assertEqual(process.returncode, USER, errors)
                self.assertIn("left alone", errors)
                self.assertEqual(times(), before)
                shutil.rmtree(self.folder / "run")

    def test_metrics_that_are_removed_during_the_run_go_on(self):
        process = self.start_and_await_step("train", "tiny.toml", "--train.steps=1000000", "--checkpoint.interval=0")
        metrics = self.folder / "run/metrics.jsonl"
        metrics.unlink()
        while not metrics.exists() or not metrics.read_text():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (DONE, ""))
        self.assertIn("metrics.jsonl was removed or replaced", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
