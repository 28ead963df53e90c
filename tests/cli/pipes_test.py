"""`trireme run` whose reader stops, leaves or was never there: the job restarts, saves and ends all the same."""
import fcntl
import json
import os
import pty
import random
import signal
import subprocess
import termios
import time
import unittest

from program import PROGRAM, TIMEOUT, ProgramTest, end, preloading, rank_of

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
TRAIN = ["run", "--nproc-per-node", 2, "--", PROGRAM, "train", "tiny.toml", "--checkpoint.memory_interval=5"]
ENDLESS = "--train.steps=1000000"


class Pipes(ProgramTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)

    def start_into(self, output, *arguments, errors=subprocess.PIPE, preexec_fn=None, environment=None):
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=errors, text=True, preexec_fn=preexec_fn,
                                   env={**self.environment, **(environment or {})})
        self.addCleanup(end, process)
        self.launchers.append(process.pid)
        return process

    def await_events(self, kind, count, process):
        path = self.folder / "run/events.jsonl"
        while not path.exists() or path.read_text().count(f'"event":"{kind}"') < count:
            self.assertIsNone(process.poll())
            time.sleep(0.01)

    def check_job(self, process):
        """A killed rank is started again, and SIGTERM saves."""
        self.await_events("recovery", 1, process)
        time.sleep(self.random.uniform(0, 0.3))
        os.kill(rank_of(process, self.random.randrange(2)), signal.SIGKILL)
        self.await_events("recovery", 2, process)
        process.terminate()
        self.assertEqual(process.wait(timeout=TIMEOUT), 0)
        steps = [step for step, *_ in self.curve()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertRegex(self.checkpoints()[-1], rf"\Astep-{steps[-1]:06}-epoch-\d+\Z")
        self.assertIn("epoch 2", self.succeed("logs", "run"))
        print("campaign: 1 blocked or closed outputs", flush=True)

    def full_pipe(self):
        """Both ends of a pipe that takes no byte more."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        return reader, writer

    def test_a_reader_that_stops(self):
        _, writer = self.full_pipe()
        self.check_job(self.start_into(writer, *TRAIN, ENDLESS, errors=writer))

    def test_a_terminal_that_was_stopped(self):
        user, terminal = pty.openpty()
        self.addCleanup(os.close, user)
        self.addCleanup(os.close, terminal)
        termios.tcflow(terminal, termios.TCOOFF)  # Ctrl-S
        self.check_job(self.start_into(terminal, *TRAIN, ENDLESS, errors=terminal))

    def test_a_reader_that_leaves(self):
        process = self.start_into(subprocess.PIPE, *TRAIN, ENDLESS)
        process.stdout.readline()
        process.stdout.close()
        process.stderr.close()
        self.check_job(process)

    def test_outputs_that_were_closed_from_the_start(self):
        def close():
            for descriptor in (0, 1, 2):
                os.close(descriptor)
        self.check_job(self.start_into(None, *TRAIN, ENDLESS, errors=None, preexec_fn=close))

    def test_a_reader_that_comes_back_learns_what_it_has_missed(self):
        reader, writer = self.full_pipe()
        lines = 40_000  # 4 MB
        process = self.start_into(writer, "run", "--log-dir", "run", "--", "sh", "-c",
                                  f"yes {'x' * 100} | head -n {lines}; touch written; "
                                  "while [ ! -e end ]; do sleep 0.1; done; echo last")
        while not (self.folder / "written").exists():  # the worker does not wait for the reader
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), writer)  # only the job can write, so its end is that of the text
        with open(os.dup(reader), buffering=1 << 16) as source:
            (self.folder / "end").touch()
            os.set_blocking(reader, True)
            shown = left_out = 0
            for line in source:
                shown += line.rstrip("\n").endswith("x" * 100) or line == "last\n"
                if "lines are left out here" in line:
                    left_out += int(line.split()[1])
        self.assertEqual(process.wait(timeout=TIMEOUT), 0)
        self.assertGreater(shown, 1000)
        self.assertGreater(left_out, 1000)
        self.assertEqual(shown + left_out, lines + 1)  # with the last one
        logged = (self.folder / "run/logs/rank-00000.log").read_text()
        self.assertEqual(logged.count("x" * 100), lines)

    def test_a_folder_that_does_not_answer(self):
        """The job goes on; what is written when the folder answers again has every line."""
        (self.folder / "logged.stuck").touch()
        process = self.start_into(
            subprocess.PIPE, "run", "--max-restarts", 3, "--log-dir", self.folder / "logged", "--", "sh", "-c",
            "echo epoch $TRIREME_EPOCH; [ $TRIREME_EPOCH = 3 ] || kill -9 $$; touch third; while [ ! -e end ]; do "
            "sleep 0.05; done", environment={**preloading("TRIREME_SLOW_HOST"),
                                             "SLOW_FOLDER": str(self.folder / "logged")})
        while not (self.folder / "third").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        (self.folder / "logged.stuck").unlink()
        (self.folder / "end").touch()
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0)
        self.assertRegex(errors, r"\A(trireme: cannot write [^\n]*does not answer; the logs wait in memory\n)?\Z")
        lines = self.succeed("logs", "logged", "--json", "--rank", 0).splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        self.assertEqual(texts, ["epoch 1", "epoch 2", "epoch 3"])
        self.assertIn("killed", self.succeed("doctor", "logged"))

    def test_a_folder_that_never_answers_again(self):
        (self.folder / "logged.stuck").touch()
        process = self.start_into(subprocess.PIPE, "run", "--log-dir", self.folder / "logged", "--", "sh", "-c",
                                  "echo hello; sleep 1000",
                                  environment={**preloading("TRIREME_SLOW_HOST"),
                                               "SLOW_FOLDER": str(self.folder / "logged")})
        while "hello" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.terminate()
        errors = process.communicate(timeout=TIMEOUT)[1]
        self.assertEqual(process.returncode, 0)
        self.assertIn("does not answer; the last logs are lost\n", errors)

    def test_a_log_folder_that_is_removed(self):
        process = self.start_into(
            subprocess.PIPE, "run", "--log-dir", "logged", "--", "sh", "-c",
            "echo before; while [ ! -e removed ]; do sleep 0.05; done; echo after")
        log = self.folder / "logged/logs/rank-00000.log"
        while not log.exists() or "before" not in log.read_text():
            time.sleep(0.01)
        subprocess.run(["rm", "-r", self.folder / "logged"], check=True)
        (self.folder / "removed").touch()
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0)
        self.assertRegex(errors, r"\Atrireme: logs or events in logged were removed [^\n]*\n\Z")
        self.assertIn("after", self.succeed("logs", "logged"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
