"""Power lost at any instant: what was reported as saved is on the disk, whole, and resumes on the same bits."""
import json
import os
import random
import re
import time
import unittest

import disk_model
from program import ProgramTest, preloading

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
ROUNDS = int(os.environ.get("TRIREME_TEST_ROUNDS", 1))
STEPS = 11


def frozen(tree):
    return tuple(sorted((name, frozen(content) if isinstance(content, dict) else content) for name, content in tree.items()))


class PowerLoss(ProgramTest):
    def setUp(self):
        super().setUp()
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)
        self.log = self.folder.with_name(self.folder.name + ".log")
        self.addCleanup(lambda: self.log.unlink(missing_ok=True))
        self.num_losses = 0
        self.verified = set()

    def train(self, run, steps=STEPS, **options):
        return self.succeed("train", "tiny.toml", "--ranks", 2, "--checkpoint.interval=2", "--checkpoint.keep=2",
                            "--optimizer.schedule=constant",
                            f"--train.steps={steps}", f"--output.folder={run}", *self.layout, **options)

    def recorded_run(self, layout):
        """The calls of a run that ends early and is taken up again."""
        self.layout = layout
        self.train("reference")
        environment = {**preloading("TRIREME_SYNC_LOG"), "SYNC_LOG": str(self.log),
                       "SYNC_LOG_ROOT": str(self.folder)}
        self.train("run", steps=5, environment=environment)
        self.train("run", environment=environment)
        self.assertEqual(self.curve("run"), self.curve("reference"))
        return disk_model.read_log(self.log)

    def assert_everything_was_recorded(self, records):
        """The calls make exactly the files that are there, so none went by unseen."""
        disk = self.disk_after(records)
        recorded = disk_model.contents(disk.root)["run"]
        for path in (self.folder / "run").rglob("*"):
            names = path.relative_to(self.folder / "run").parts
            if path.is_file() and names[0] != "recorder":  # mapped memory, for what happens while a run lives
                content = recorded
                for name in names:
                    content = content[name]
                self.assertEqual(content, path.read_bytes(), path)

    def disk_after(self, records):
        disk = disk_model.Disk(self.folder.stat().st_ino)
        for words, data in records:
            disk.apply(words, data)
        return disk

    def assert_survives(self, tree, reported):
        """What a power loss left behind: the newest checkpoint is whole and its steps have their lines."""
        checkpoints = [name for name, content in tree.get("checkpoints", {}).items()
                       if name.startswith("step-") and "manifest.json" in content]
        newest = max((int(name[5:]) for name in checkpoints), default=0)
        self.assertGreaterEqual(newest, reported, "what was reported as saved is gone")
        self.num_losses += 1
        folder = self.folder / f"loss-{self.num_losses}"
        disk_model.make(folder, tree)
        for name in checkpoints:
            content = (name, frozen(tree["checkpoints"][name]))
            if content not in self.verified:
                self.succeed("checkpoint", "verify", folder / "checkpoints" / name)
                self.verified.add(content)
        if newest > 0:
            lines = (folder / "metrics.jsonl").read_text(errors="replace").splitlines()
            self.assertEqual([json.loads(line)["step"] for line in lines[:newest]], list(range(1, newest + 1)),
                             f"checkpoint {newest} counts on lines that are gone")
        return folder.name, newest

    def assert_resumes(self, run):
        self.train(run)
        self.assertEqual(self.curve(run), self.curve("reference"))

    def replay(self, records):
        """Every instant at which something else would be left; a few of them are resumed."""
        disk, reported, seen, left = self.disk_after([]), 0, set(), []
        for words, data in records:
            if words[0] == "report":
                reported = int(re.search(rb"step-(\d+)", data)[1])
            disk.apply(words, data)
            for chance in [None] + [self.random] * ROUNDS:
                tree = disk.root.after_loss(chance).get("run", {})
                tree.pop("recorder", None)
                state = (frozen(tree), reported)
                # Without a sync or a report only the random losses differ: a tenth of them is tried.
                if state in seen or (chance and words[0] not in ("sync", "report", "rename") and
                                     self.random.random() > 0.1):
                    continue
                seen.add(state)
                left.append(self.assert_survives(tree, reported))
        for run, _ in self.random.sample([each for each in left if each[1] > 0], 3):
            self.assert_resumes(run)
        return left

    def test_whatever_the_instant(self):
        for layout in ["--parallel.zero=0"], ["--parallel.zero=3"]:
            with self.subTest(layout):
                records = self.recorded_run(layout)
                self.assert_everything_was_recorded(records)
                left = self.replay(records)
                self.assertEqual({newest for _, newest in left} & {2, 4, 5, 6, 8, 10, 11}, {2, 4, 5, 6, 8, 10, 11})
                print(f"campaign: {len(left)} losses of power", flush=True)
                for name in ["run", "reference", *(name for name, _ in left)]:
                    self.remove(name)
                self.log.unlink()

    def test_the_order_of_syncs(self):
        """Metrics and shards, manifest, its folder, rename, their folder, report: each after the one before."""
        records = self.recorded_run(["--parallel.zero=0"])
        places = {}  # inode -> (folder, name)
        last_sync = {}  # path -> index of the call

        def path_of(inode):
            folder, name = places.get(inode, (None, ""))
            return f"{path_of(folder)}/{name}".lstrip("/") if folder else ""

        commits = 0
        for index, (words, _) in enumerate(records):
            if words[0] in ("create", "mkdir"):
                places[words[3]] = (words[1], disk_model.name_of(words[2]))
            elif words[0] == "sync":
                last_sync[path_of(words[1])] = index
            elif words[0] == "rename":
                source, target = disk_model.name_of(words[2]), disk_model.name_of(words[4])
                if target.startswith("step-"):
                    temporary = f"run/checkpoints/{source}"
                    shards = [last_sync.pop(f"{temporary}/rank-00{rank}-of-002.safetensors") for rank in range(2)]
                    manifest = last_sync.pop(f"{temporary}/manifest.json")
                    self.assertLess(max(shards), manifest)
                    self.assertLess(last_sync.pop("run/metrics.jsonl"), manifest)
                    self.assertLess(manifest, last_sync.pop(temporary))
                    renamed, commits = index, commits + 1
                moved = next(inode for inode, place in places.items() if place == (words[1], source))
                places[moved] = (words[3], target)
            elif words[0] == "report":
                self.assertLess(renamed, last_sync["run/checkpoints"])
        self.assertEqual(commits, 7)

    def remove(self, name):
        for path in sorted((self.folder / name).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.folder / name).rmdir()


if __name__ == "__main__":
    unittest.main(verbosity=2)
