"""A run's folder, damaged at random: each command says so in a line or does its work; none crashes, hangs or lies."""
import os
import random
import shutil
import time
import unittest

from program import ProgramTest

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
DAMAGES = int(os.environ.get("TRIREME_TEST_DAMAGES", 6))
DONE, USER, LOST, CHECKPOINT = 0, 2, 3, 4
STEPS = 6


def flip_a_bit(data, chance):
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut_short(data, chance):
    del data[chance.randrange(len(data)):]


def clear_a_page(data, chance):
    begin = chance.randrange(len(data))
    data[begin:begin + 4096] = bytes(len(data[begin:begin + 4096]))


def double_a_part(data, chance):
    begin = chance.randrange(len(data))
    part = data[begin:begin + chance.randrange(1, 200)]
    data[begin:begin] = part


def change_digits(data, chance):
    digits = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    for at in chance.sample(digits, min(3, len(digits))):
        data[at] = ord(chance.choice("0123456789-.e"))


def fill_with_noise(data, chance):
    data[:] = chance.randbytes(chance.randrange(len(data) * 2))


DAMAGE = [flip_a_bit, flip_a_bit, cut_short, clear_a_page, double_a_part, change_digits, fill_with_noise]


class DamagedFiles(ProgramTest):
    def setUp(self):
        super().setUp()
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)

    def command(self, run, steps):
        return ["train", "tiny.toml", "--ranks", 2, "--checkpoint.interval=2", "--optimizer.schedule=constant",
                f"--train.steps={steps}",
                f"--output.folder={run}"]

    def run_clean(self, codes, *arguments, lines="{1}"):
        """Ends with one of `codes`, and with a clean line on stderr unless it is done; `lines`: how many, a regex."""
        result = self.run_program(*arguments)
        told = f"{arguments}: exit {result.returncode}\n{result.stdout}\n{result.stderr}"
        self.assertIn(result.returncode, codes, told)
        if result.returncode in (USER, CHECKPOINT):
            self.assertRegex(result.stderr, rf"\A(trireme: [^\n\x00-\x1f\x7f]+\n){lines}\Z", told)
        return result.returncode

    def damage(self, run):
        """Which file, and whether its bytes are others now."""
        files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size > 0)
        checkpoints = [path for path in files if "checkpoints" in path.parts]
        path = self.random.choice(checkpoints if self.random.random() < 0.6 else files)
        before = path.read_bytes()
        data = bytearray(before)
        kind = self.random.choice(DAMAGE)
        kind(data, self.random)
        path.write_bytes(data)
        print(f"{kind.__name__} {path.relative_to(run)}", flush=True)
        return path, data != before

    def test_every_command_on_what_is_left(self):
        self.succeed(*self.command("whole", 4))
        self.succeed(*self.command("reference", STEPS))
        for number in range(DAMAGES):
            run = self.folder / f"run-{number}"
            shutil.copytree(self.folder / "whole", run)
            path, changed = self.damage(run)
            in_checkpoint = "checkpoints" in path.parts
            # A line for each damaged tensor.
            code = self.run_clean([DONE, CHECKPOINT], "checkpoint", "verify",
                                  path.parent if in_checkpoint else run.name, lines="+")
            self.assertEqual(code == DONE, not (changed and in_checkpoint), f"verify, {path}")
            self.run_clean([DONE, CHECKPOINT], "checkpoint", "inspect", run.name)
            self.run_clean([DONE, USER, CHECKPOINT], "generate", "--checkpoint", run.name, "--prompt", "a", "--tokens", 2)
            self.run_clean([DONE, USER, LOST], "doctor", run.name)
            if self.run_clean([DONE, USER, CHECKPOINT], *self.command(run.name, STEPS)) == DONE and (
                    path.name != "metrics.jsonl"):
                self.assertEqual(self.curve(run.name), self.curve("reference"), path)
            shutil.rmtree(run)
        print(f"campaign: {DAMAGES} damaged files", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
