"""A disk without room or that cannot be written: exit code 2, what is needed and free, nothing lost."""
import os
import random
import re
import shutil
import subprocess
import time
import unittest

from program import ProgramTest

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
DISKS = int(os.environ.get("TRIREME_TEST_DISKS", 4))
DONE, USER = 0, 2
TABLES = """
[task]
name = "recommend"
[model]
family = "dlrm"
width = 64
bottom = "8"
top = "8"
[data]
path = "data/clicks"
[tables]
placement = "rows"
memory = 400000
folder = "disk"
[train]
steps = 4
global_batch = 64
micro_batch = 32
[checkpoint]
interval = 2
[output]
folder = "clicks"
"""


class FullDisk(ProgramTest):
    """On a small file system of its own, which takes root."""

    def mount(self, options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()

    def test_a_checkpoint_without_room_says_what_it_needs_and_the_same_command_resumes(self):
        self.mount("size=16m")
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                # Room for the recorders' rings and for two checkpoints.
                subprocess.run(["mount", "-o", f"remount,size={ranks * 640 + 1100}k", self.disk], check=True)
                run = f"disk/run-{ranks}"
                train = ["train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}", "--checkpoint.keep=100"]
                line = self.fail_with(USER, ["No space left on device", "make room there", f"{run}/checkpoints"],
                                      *train, "--checkpoint.interval=1")
                words = re.search(r"the checkpoint needs (\d+) bytes in \S+, which has (\d+) free", line)
                self.assertTrue(words, line)
                self.assertGreater(int(words[1]), int(words[2]))
                saved = self.checkpoints(run)
                self.assertGreaterEqual(len(saved), 1)
                self.assertTrue(all(re.fullmatch(r"step-\d{6}", name) for name in saved), saved)
                for name in saved:
                    self.succeed("checkpoint", "verify", f"{run}/checkpoints/{name}")
                subprocess.run(["mount", "-o", "remount,size=16m", self.disk], check=True)
                self.succeed(*train, "--train.steps=8")
                self.assertEqual([step for step, _, _ in self.curve(run)], list(range(1, 9)))
                for path in sorted((self.folder / run).rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()

    def test_a_checkpoint_that_cannot_be_removed_ends_no_run(self):
        train = ["train", "tiny.toml", "--checkpoint.interval=1"]
        self.succeed(*train, "--train.steps=2", "--checkpoint.keep=2")
        self.assertEqual(self.checkpoints(), ["step-000001", "step-000002"])
        held = self.folder / "run/checkpoints/step-000001/held"
        held.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", held], check=True)
        self.addCleanup(self.unmount_all)
        self.succeed(*train, "--train.steps=8", "--checkpoint.keep=1")
        self.assertEqual([step for step, _, _ in self.curve()], list(range(1, 9)))
        hidden, visible = self.checkpoints()
        self.assertEqual(visible, "step-000008")
        self.assertRegex(hidden, r"^\.step-000001\..*removed$")
        self.assertEqual(os.listdir(self.folder / "run/checkpoints" / hidden), ["held"])

    def test_a_leftover_of_the_best_checkpoint_that_cannot_be_removed_ends_no_run(self):
        train = ["train", "tiny.toml", "--train.steps=3", "--train.evaluate_interval=1", "--train.evaluate_sequences=8",
                 "--checkpoint.best=validation_loss", "--checkpoint.best_goal=largest"]
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                run = f"run-{ranks}"
                best = self.folder / run / "best"
                self.succeed(*train, "--ranks", ranks, f"--output.folder={run}")
                name, = os.listdir(best)
                shutil.rmtree(self.folder / run)
                held = best / f".{name}.tmp/held"
                held.mkdir(parents=True)
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", held], check=True)
                self.addCleanup(self.unmount_all)
                self.succeed(*train, "--ranks", ranks, f"--output.folder={run}")
                hidden, visible = sorted(os.listdir(best))
                self.assertEqual(visible, name)
                self.assertRegex(hidden, rf"^\.{name}\..*removed$")
                self.assertEqual(os.listdir(best / hidden), ["held"])
                self.succeed("checkpoint", "verify", best / name)

    def unmount_all(self):
        with open("/proc/self/mounts") as mounts:
            below = [line.split()[1] for line in mounts if line.split()[1].startswith(str(self.folder))]
        for path in below:
            subprocess.run(["umount", path], check=True)

    def test_a_folder_that_turned_read_only_is_the_users_to_mend(self):
        self.mount("size=16m")
        run = ["train", "tiny.toml", "--ranks", 2, "--output.folder=disk/run"]
        self.succeed(*run, "--train.steps=2")
        subprocess.run(["mount", "-o", "remount,ro", self.disk], check=True)
        self.fail_with(USER, ["disk/run", "cannot be written"], *run, "--train.steps=4")

    def test_tables_that_do_not_fit_on_a_disk_say_what_they_need_before_the_first_step(self):
        self.mount("size=256k")
        self.succeed("data", "generate", "--format", "criteo", "--samples", 3000, "--scale", 0.0005, "--output", "a.tsv")
        self.succeed("data", "prepare", "--format", "criteo", "--input", "a.tsv", "--output", "data/clicks")
        train = ["train", "clicks.toml", "--ranks", 2]
        (self.folder / "clicks.toml").write_text(TABLES)
        line = self.fail_with(USER, ["tables.folder disk has no room", "free space"], *train)
        # The second is what the later of two ranks finds.
        self.assertRegex(line, r"for \d+ bytes, the rows of embedding table \"[\w.]+\": "
                               r"(\d+ bytes are free|No space left on device);")
        self.assertEqual(list(self.disk.iterdir()), [])
        subprocess.run(["mount", "-o", "remount,size=64m", self.disk], check=True)
        self.succeed(*train)
        self.assertEqual(list(self.disk.iterdir()), [])  # its files have no names

    def test_a_disk_of_any_size_fills_and_the_run_goes_on_with_more_room(self):
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        chance = random.Random(SEED)

        def command(run):
            return ["train", "tiny.toml", "--ranks", 2, "--train.steps=6", "--checkpoint.interval=2",
                    f"--output.folder={run}"]

        self.succeed(*command("reference"))
        self.mount("size=1g")
        self.succeed(*command("disk/run"))
        status = os.statvfs(self.disk)
        needed = (status.f_blocks - status.f_bfree) * status.f_frsize
        refused = 0
        for number in range(DISKS):
            subprocess.run(["umount", self.disk], check=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={chance.randrange(1 << 16, needed) // 4096 * 4096}",
                            "tmpfs", self.disk], check=True)
            result = self.run_program(*command("disk/run"))
            if result.returncode != DONE:
                refused += 1
                self.assertEqual(result.returncode, USER, result.stdout + result.stderr)
                self.assertRegex(result.stderr, r"\Atrireme: [^\n]*disk/run[^\n]*\n\Z")
                self.assertIn("No space left on device", result.stderr)
            subprocess.run(["mount", "-o", "remount,size=1g", self.disk], check=True)
            self.succeed(*command("disk/run"))
            self.assertEqual(self.curve("disk/run"), self.curve("reference"))
            self.succeed("checkpoint", "verify", "disk/run")
        self.assertGreater(refused, 0)
        print(f"campaign: {refused} full disks", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
