"""Numbers outside of their range: one line, exit code 2, before anything is allocated or written."""
import re
import resource
import unittest

from program import ProgramTest

USER = 2
MIB = 1 << 20
COMMANDS = {("train",): ["tiny.toml", "--profile"], ("generate",): ["--checkpoint", "run"],
            ("data", "prepare"): ["--input", "text", "--output", "new"], ("doctor",): ["run"],
            ("data", "generate"): ["--samples", "1", "--output", "new"],
            ("checkpoint", "average"): ["run", "run", "--output", "new"], ("checkpoint", "diff"): ["run", "run"],
            ("checkpoint", "reshard"): ["run", "--output", "new"],
            ("bench", "comm"): [], ("bench", "pipeline"): []}
OUTSIDE = ["nan", "-1e30"]


class Ranges(ProgramTest):
    def test_every_option_that_takes_a_number(self):
        num_options = 0
        for command, arguments in COMMANDS.items():
            help_text = self.succeed(*command, "--help")
            options = re.findall(r"^ +(?:-\w,)?(--[\w-]+) (?:INT|UINT|FLOAT)\b", help_text, re.MULTILINE)
            num_options += len(options)
            for option in options:
                for value in OUTSIDE:
                    with self.subTest(command=command, option=option, value=value):
                        self.fail_with(USER, [option], *command, *arguments, f"{option}={value}")
        self.assertGreater(num_options, 20)
        self.assertFalse((self.folder / "run").exists())

    def test_options_by_name(self):
        for value in ("inf", "1e400", "99999999999999999999999999", "1x", ""):
            self.fail_with(USER, ["--tokens"], "generate", "--checkpoint", "run", f"--tokens={value}")
        self.fail_with(USER, ["--seed", "at least 0"], "generate", "--checkpoint", "run", "--seed", "-1")
        self.fail_with(USER, ["--temperature", "at most"], "generate", "--checkpoint", "run", "--temperature", "inf")
        self.fail_with(USER, ["--calls", "at least 0"], "doctor", "run", "--calls", "-1")

    def test_sizes_beyond_the_machine(self):
        """With less memory than any of them would take: they are refused before."""
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        large = ["--model.layers=65536", "--model.width=65536"]  # 50 TiB of states
        largest = [["--model.layers=65536", large[1]], ["--model.width=1048576", large[0]],
                   ["--model.vocab_size=67108864", large[1]], ["--model.ffn_width=4194304", *large],
                   ["--train.global_batch=10000000", "--model.sequence_length=8192"]]
        beyond = [f"--{key}={value}" for key in
                  ("model.layers", "model.width", "model.vocab_size", "train.global_batch", "train.micro_batch")
                  for value in ((2**31 - 1, 2**63 - 1) if key == "model.layers" else (2**62,))]
        # As much as the program takes by itself, and a little.
        resource.setrlimit(resource.RLIMIT_DATA, (512 * MIB, hard))
        try:
            for overrides in largest:
                with self.subTest(overrides=overrides):
                    self.fail_with(USER, [overrides[0][2:].split("=")[0], "this machine has"], "train", "tiny.toml",
                                   *overrides)
            for override in beyond:
                with self.subTest(override=override):
                    self.fail_with(USER, [override[2:].split("=")[0], "at most"], "train", "tiny.toml", override)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        self.assertFalse((self.folder / "run").exists())

    def test_an_epsilon_that_fp32_has_and_a_minimum_below_the_peak(self):
        for key in ("optimizer.epsilon", "model.norm_epsilon"):
            for value in ("0", "1e-46"):
                self.fail_with(USER, [key, "at least 1.1754", value], "train", "tiny.toml", f"--{key}={value}")
        # Most of the 257 rows of the embedding have no gradient.
        self.succeed("train", "tiny.toml", "--optimizer.epsilon=1.2e-38", "--train.steps=1", "--model.tied_embedding=false")
        self.fail_with(USER, ["optimizer.minimum_learning_rate is 0.01", "0.001", "at most"], "train", "tiny.toml",
                       "--optimizer.minimum_learning_rate=0.01")
        self.succeed("train", "tiny.toml", "--output.folder=constant", "--train.steps=1", "--optimizer.schedule=constant",
                     "--optimizer.minimum_learning_rate=0.01")
        # No step is lost to a rate of zero.
        self.succeed("train", "tiny.toml", "--output.folder=one", "--train.steps=1", "--optimizer.warmup_steps=0")
        self.succeed("train", "tiny.toml", "--output.folder=few", "--train.steps=4")
        for run, rates in (("one", 1), ("few", 4)):
            lines = self.metrics(run)
            self.assertEqual(len(lines), rates)
            self.assertGreater(min(line["learning_rate"] for line in lines), 0)

    def test_a_timeout_that_would_overflow(self):
        self.fail_with(USER, ["parallel.timeout_seconds is 10000000000", "at most 31536000"], "train", "tiny.toml",
                       "--ranks=2", "--parallel.timeout_seconds=10000000000")
        self.succeed("train", "tiny.toml", "--ranks=2", "--parallel.timeout_seconds=31536000", "--train.steps=3")

    def test_a_config_that_is_no_text(self):
        (self.folder / "deep.toml").write_text("a." * 60000 + "a = 1\n")
        self.fail_with(USER, ["deep.toml:1", "dots"], "train", "deep.toml")
        (self.folder / "arrays.toml").write_text("a = " + "[" * 100000)
        self.fail_with(USER, ["arrays.toml:1"], "train", "arrays.toml")
        self.fail_with(USER, ["/proc/self/mem"], "train", "/proc/self/mem")
        (self.folder / "escape.toml").write_text('[train]\n"\\u001b[2J" = 1\n')
        self.assertNotIn("\x1b", self.fail_with(USER, ["unknown key"], "train", "escape.toml"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
