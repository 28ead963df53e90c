"""Training from an object store: the same numbers as from a disk, whatever the store does; or one line that says why not."""
import os
import pathlib
import signal
import time
import unittest

from program import ProgramTest
from store_server import KEY, SECRET, StoreServer

USER, PEER = 2, 3
SLOW = {"fault": lambda number: time.sleep(0.01)}  # a step takes a sixth of a second
URL = "s3://data/data/tiny"


class Stores(ProgramTest):
    def prepare(self):
        super().prepare()
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bytes", "--validation", 0.2,
                     "--output", "data/tiny")

    def serve(self, **options):
        server = StoreServer(self.folder, **options)
        self.addCleanup(server.stop)
        return server

    def command(self, run, ranks, *options, path=URL):
        return ("train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}", f"--data.path={path}",
                "--train.evaluate_interval=10", "--data.ahead=1", *options)

    def train(self, run, ranks, *options, path=URL, **others):
        return self.succeed(*self.command(run, ranks, *options, path=path), **others)

    def assert_same_run(self, run, other="disk"):
        if other == "disk":
            self.train("disk", 1, path="data/tiny")
        self.assertEqual(self.curve(run), self.curve(other))
        validation = [[line.get("validation_loss") for line in self.metrics(name)] for name in (run, other)]
        self.assertEqual(*validation)

    def test_losses_are_those_of_a_disk_with_and_without_a_cache(self):
        server = self.serve()
        self.train("plain", 1, environment=server.environment())
        self.assert_same_run("plain")
        sent = server.bytes_sent
        self.train("cold", 1, "--data.cache=cache", environment=server.environment())
        self.assert_same_run("cold")
        cold = server.bytes_sent - sent
        self.train("warm", 1, "--data.cache=cache", environment=server.environment())
        self.assert_same_run("warm")
        warm = server.bytes_sent - sent - cold
        # Only the bytes by which files are found, one for each, and the texts beside them.
        self.assertLess(warm, 1024)
        self.assertGreater(cold, (self.folder / "data/tiny.bin").stat().st_size)
        self.assertGreater(len(list((self.folder / "cache").glob("*.block"))), 0)
        for path in pathlib.Path(self.folder).rglob("*"):  # keys are nowhere
            if path.is_file() and path.suffix != ".sock":
                self.assertNotIn(SECRET.encode(), path.read_bytes(), path)
                self.assertNotIn(KEY.encode(), path.read_bytes(), path)

    def test_ranks_share_a_cache_and_read_the_same_samples(self):
        server = self.serve()
        self.train("two-disk", 2, path="data/tiny")
        self.train("two", 2, "--data.cache=cache", environment=server.environment())
        self.assert_same_run("two", "two-disk")
        self.assertLess(server.bytes_sent, 3 * (self.folder / "data/tiny.bin").stat().st_size + 100_000)

    def test_a_store_that_fails_now_and_then_changes_nothing(self):
        faults = ["503", None, "close", None, "half", None, None, "slow", None]
        server = self.serve(fault=lambda number: faults[number % len(faults)])
        self.train("faults", 1, environment=server.environment())
        self.assert_same_run("faults")

    def test_a_store_that_is_killed_and_comes_back_changes_nothing(self):
        server = StoreServer(self.folder, **SLOW)
        process = self.start(*self.command("killed", 1), environment=server.environment())
        self.await_step(3, process, "killed")
        port = server.port
        server.stop()
        time.sleep(1)
        self.assertIsNone(process.poll())
        server = self.serve(port=port)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assert_same_run("killed")

    def test_a_killed_run_resumes_from_the_store(self):
        server = self.serve(**SLOW)
        process = self.start(*self.command("resumed", 1, "--data.cache=cache"), environment=server.environment())
        self.await_step(12, process, "resumed")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertIn("resume", self.train("resumed", 1, "--data.cache=cache", environment=server.environment()))
        self.assert_same_run("resumed")

    def test_a_web_server_of_files_is_a_store_too(self):
        server = self.serve(keys=False)
        self.train("web", 1, path=f"{server.url}/data/data/tiny")
        self.assert_same_run("web")

    def test_what_cannot_be_read_is_one_line(self):
        server = self.serve()
        right = server.environment()
        self.fail_with(USER, ["cannot read s3://data/data/tiny.tokenizer.json: the store refuses",
                              "403 SignatureDoesNotMatch", "AWS_ACCESS_KEY_ID"],
                       *self.command("x", 1), environment={**right, "AWS_SECRET_ACCESS_KEY": "another"})
        self.fail_with(USER, ["AWS_SECRET_ACCESS_KEY", "set both"], *self.command("x", 1),
                       environment={**right, "AWS_SECRET_ACCESS_KEY": ""})
        self.fail_with(USER, ["tokenizer file s3://data/data/other.tokenizer.json does not exist"],
                       *self.command("x", 1, path="s3://data/data/other"), environment=right)
        self.fail_with(USER, ["data.path: ", "begins with ftp://"], *self.command("x", 1, path="ftp://data/tiny"))
        secret = self.fail_with(USER, ["data.path: a URL with a user name, a query or a fragment"],
                                *self.command("x", 1, path="https://host/tiny?key=hidden"))
        self.assertNotIn("hidden", secret)
        (self.folder / "file").write_text("")
        self.fail_with(USER, ["data.cache is file", "cannot be written to"],
                       *self.command("x", 1, "--data.cache=file"), environment=right)
        self.fail_with(USER, ["data.cache_bytes is 900000000000000", "lower it"],
                       *self.command("x", 1, "--data.cache=cache", "--data.cache_bytes=900000000000000"), environment=right)
        server.stop()
        server.stop = lambda: None
        self.fail_with(PEER, ["no answer from the store in ", " s, at last "], *self.command("x", 1, "--data.store_timeout=1"),
                       environment=right)

    def test_data_that_changes_in_a_run_ends_it_with_one_line(self):
        server = self.serve()
        process = self.start(*self.command("changed", 1, "--train.steps=100000"), environment=server.environment())
        self.await_step(3, process, "changed")
        server.tag = "2"
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, USER, errors)
        self.assertRegex(errors, r"\Atrireme: s3://data/data/tiny\.bin has changed since it was opened[^\n]+\n\Z")

    def store_run(self, run, server, *options, ranks=1):
        command = self.command(run, ranks, "--checkpoint.store=s3://data/kept/mine", *options)
        return self.start(*command, environment=server.environment())

    def test_a_run_goes_on_from_the_store_on_another_machine(self):
        server, kept = self.serve(**SLOW), self.folder / "kept/mine"
        process = self.store_run("here", server)
        while not (kept / "checkpoints/step-000010/manifest.json").exists():
            self.assertIsNone(process.poll(), process.stderr)
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (self.folder / "kept/mine/checkpoints/step-000015").mkdir(exist_ok=True)
        (self.folder / "kept/mine/checkpoints/step-000015/manifest.json").unlink(missing_ok=True)
        (self.folder / "kept/mine/checkpoints/step-000015/half").write_text("interrupted")
        there = self.command("there", 1, "--checkpoint.store=s3://data/kept/mine", path="data/tiny")
        self.fail_with(USER, ["checkpoint.store is s3://data/kept/mine, where another run keeps its checkpoints"], *there,
                       environment=server.environment())
        old = time.time() - 121
        os.utime(kept / "claim", (old, old))
        output = self.succeed(*there, environment=server.environment())
        self.assertIn("fetched s3://data/kept/mine/checkpoints/step-000010", output)
        self.assertIn("stored  s3://data/kept/mine/checkpoints/step-000020", output)
        self.assert_same_run("there")
        self.assertEqual(sorted(path.name for path in (kept / "checkpoints").iterdir() if any(path.iterdir())),
                         ["step-000010", "step-000015", "step-000020"])
        self.assertFalse((kept / "checkpoints/step-000015/half").exists())
        self.assertFalse((kept / "claim").exists())
        self.succeed("checkpoint", "verify", "kept/mine/checkpoints/step-000020")

    def test_a_killed_run_goes_on_at_once_in_its_folder(self):
        server = self.serve(**SLOW)
        process = self.store_run("killed", server)
        self.await_step(12, process, "killed")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = self.store_run("killed", server)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assert_same_run("killed")

    def test_what_needs_a_disk_is_refused_for_a_url(self):
        self.fail_with(USER, ["output s3://data/x is in a store"], "data", "prepare", "--input", "text", "--tokenizer",
                       "bytes", "--output", "s3://data/x")
        self.fail_with(USER, ["output.folder is s3://data/run, in a store", "checkpoint.store"],
                       *self.command("s3://data/run", 1, path="data/tiny"))
        self.assertFalse((self.folder / "s3:").exists())

    def test_a_store_for_checkpoints_that_cannot_be_used_is_one_line(self):
        for store, words in (("https://host/x", ["checkpoint.store: a web server takes no files"]),
                             ("kept/mine", ["checkpoint.store: kept/mine is no URL"]),
                             ("s3://data/kept/", ["ends in a slash"])):
            self.fail_with(USER, words, *self.command("x", 1, f"--checkpoint.store={store}", path="data/tiny"))
        server = self.serve()
        self.fail_with(USER, ["cannot read s3://data/kept/mine/run/run_id: the store refuses", "403"],
                       *self.command("x", 1, "--checkpoint.store=s3://data/kept/mine", path="data/tiny"),
                       environment={**server.environment(), "AWS_SECRET_ACCESS_KEY": "another"})


if __name__ == "__main__":
    unittest.main()
