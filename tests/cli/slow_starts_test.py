"""`trireme run` of a program that takes long to load, or whose folder cannot be written: logs are where one looks."""
import json
import subprocess
import unittest

from program import PROGRAM, TIMEOUT, ProgramTest, end, preloading

SLOW = {**preloading("TRIREME_SLOW_HOST"), "SLOW_START": "3"}


class SlowStarts(ProgramTest):
    def check_logs(self):
        """All of the run's logs and events are in its folder."""
        self.assertFalse((self.folder / "runs").exists())
        self.assertIn("step", self.succeed("logs", "run", "--rank", "0"))
        events = (self.folder / "run/events.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(events[0])["event"], "join")
        self.assertIn("it is done", self.succeed("doctor", "run"))
        print("campaign: 1 slow starts", flush=True)

    def test_its_own_program_that_writes_a_line_first(self):
        self.succeed("run", "--nproc-per-node", 2, "--", PROGRAM, "train", "tiny.toml", environment=SLOW)
        self.check_logs()
        self.assertIn("a line from before main()", self.succeed("logs", "run"))

    def test_a_folder_on_the_command_line(self):
        for words in (["--output.folder=other"], ["--output.folder", "other"]):
            self.succeed("run", "--", PROGRAM, "train", "tiny.toml", "--train.steps=2", *words)
            self.assertTrue((self.folder / "other/logs/rank-00000.log").exists())
            self.assertFalse((self.folder / "runs").exists())
            subprocess.run(["rm", "-r", self.folder / "other"], check=True)

    def test_a_script_that_starts_it(self):
        self.succeed("run", "--nproc-per-node", 2, "--", "sh", "-c", 'sleep 3; exec "$0" train tiny.toml', PROGRAM)
        self.check_logs()

    def test_a_wrong_config_starts_nothing_and_leaves_nothing(self):
        before = sorted(self.folder.iterdir())
        self.fail_with(2, ["model.widht", "width"], "run", "--nproc-per-node", 2, "--", PROGRAM, "train", "tiny.toml",
                       "--model.widht=3")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_working_folder_that_cannot_be_written(self):
        """It takes root to mount one."""
        (self.folder / "fixed").mkdir()
        script = 'mount -t tmpfs -o ro tmpfs fixed && cd fixed && exec "$@"'
        command = [PROGRAM, "run", "--nproc-per-node", "2", "--", "sh", "-c", "echo hello from $RANK"]
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh", *command], cwd=self.folder,
                                   text=True, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(end, process)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("hello from 0\n", output)
        self.assertRegex(errors, r"\Atrireme: cannot write runs/[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main(verbosity=2)
