"""What a user sees when all is well: help, version, inspect, verify, generate, the files of a run."""
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import termios
import unittest

from program import ProgramTest


class Commands(ProgramTest):
    def test_help_teaches(self):
        self.assertIn("trireme train examples/demo.toml --ranks 2", self.succeed("--help"))
        for command in (["train"], ["data"], ["data", "prepare"], ["generate"], ["checkpoint"],
                        ["checkpoint", "inspect"], ["checkpoint", "verify"]):
            self.assertIn("--help", self.succeed(*command, "--help"))
        help_text = self.succeed("train", "--help")
        for key in ("train.global_batch", "optimizer.schedule", "parallel.data", "output.folder"):
            self.assertIn(f"--{key}=", help_text)

    def test_help_fits_eighty_columns(self):
        commands = [[]]
        while commands:
            command = commands.pop()
            text = self.succeed(*command, "--help")
            for line in text.splitlines():
                # A word that is longer than its column stays whole.
                self.assertTrue(len(line) <= 80 or len(line.split()) <= 2, f"{command}: {line}")
            if "Subcommands:" in text:
                names = re.findall(r"(?m)^  (\w+)(?:  |$)", text.split("Subcommands:")[1].split("\n\n")[0])
                self.assertTrue(names, command)
                commands += [[*command, name] for name in names]

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^trireme \d+\.\d+\.\d+ \(libtorch 2\.\d+")

    def test_data_prepare_is_deterministic(self):
        for name in ("a", "b"):
            report = json.loads(self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bpe", "--vocab-size", 300,
                                             "--output", f"data/{name}", "--json"))
            self.assertEqual((report["tokenizer"], report["vocab_size"]), ("bpe", 300))
            tokens = (self.folder / f"data/{name}.bin").stat().st_size // 2
            self.assertEqual(report["tokens"], tokens)
        for suffix in (".bin", ".idx", ".tokenizer.model"):
            first, second = ((self.folder / f"data/{n}{suffix}").read_bytes() for n in "ab")
            self.assertEqual(first, second, suffix)


class OnATerminal(ProgramTest):
    def test_about_twenty_steps_stay_and_no_line_wraps(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(self.program, [self.program, "train", "tiny.toml", "--train.steps=120", "--checkpoint.interval=0",
                                     "--train.evaluate_interval=60"], self.environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(terminal, 65536):
                shown += piece
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, shown)
        lines = [line.split("\033[K")[-1].rstrip("\r") for line in shown.decode().split("\n")]
        steps = [line for line in lines if re.match(r"step +\d+/120  loss", line)]
        self.assertIn(len(steps), range(20, 24), lines)
        self.assertTrue(any("validation" in line for line in steps))
        for line in lines:
            self.assertLessEqual(len(line), 80, line)
        self.assertTrue(any(line.startswith("next    trireme generate") for line in lines), lines)


class TrainedRun(ProgramTest):
    def setUp(self):
        super().setUp()
        self.output = self.succeed("train", "tiny.toml", "--ranks", 2)

    def test_plain_lines_when_not_a_terminal(self):
        self.assertNotIn("\r", self.output)
        self.assertNotIn("\033", self.output)
        self.assertIn("2 ranks", self.output)
        self.assertRegex(self.output, r"step +20/20  loss \d+\.\d+")

    def test_it_ends_with_what_was_reached(self):
        self.assertRegex(self.output, r"(?m)^done    20 steps in \d+s, [\d.]+( k)? tokens/s\n"
                                      r"loss    \d+\.\d{4} -> \d+\.\d{4}\n"
                                      r"kept    run/checkpoints/step-000020\n"
                                      r"next    trireme generate --checkpoint run --prompt 'The '$")
        again = self.succeed("train", "tiny.toml", "--ranks", 2)
        self.assertIn("all 20 steps were finished before", again)
        self.assertNotIn("next ", again)
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=22", "--train.evaluate_interval=1")
        self.assertRegex(output, r"(?m)^loss    \d\.\d{4} -> \d\.\d{4}; validation \d\.\d{4}")

    def test_inspect_and_verify(self):
        summary = json.loads(self.succeed("checkpoint", "inspect", "run", "--json"))
        self.assertEqual((summary["step"], summary["ranks"]), (20, 2))
        names = [tensor["name"] for tensor in summary["tensors"]]
        self.assertIn("model.embed_tokens.weight", names)
        self.assertIn("optimizer.exp_avg.lm_head.weight", names)
        self.assertIn("model.embed_tokens.weight", self.succeed("checkpoint", "inspect", "run"))
        report = json.loads(self.succeed("checkpoint", "verify", "run", "--json"))
        self.assertEqual(report["problems"], [])
        self.assertGreater(report["bytes"], 0)

    def test_generate_is_a_function_of_its_seed(self):
        def text(*options):
            return self.succeed("generate", "--checkpoint", "run", "--prompt", "def ", "--tokens", 40, *options)
        self.assertTrue(text().startswith("def "))
        self.assertEqual(text("--seed", 3), text("--seed", 3))
        self.assertNotEqual(text("--seed", 3, "--temperature", 2), text("--seed", 4, "--temperature", 2))
        likeliest = text("--temperature", 0)
        self.assertEqual(text("--temperature", 0, "--seed", 9), likeliest)
        self.assertEqual(text("--top-k", 1, "--seed", 9), likeliest)
        self.assertEqual(text("--top-p", 0.000001, "--seed", 9), likeliest)

    def test_kept_keys_write_the_text_that_is_read_again_for_each_token(self):
        for options in (["--temperature", 0], ["--seed", 5], ["--top-k", 4, "--repetition-penalty", 1.3]):
            texts = {self.succeed("generate", "--checkpoint", "run", "--prompt", "def ", "--tokens", 100, *options, *again)
                     for again in ([], ["--no-cache"])}
            self.assertEqual(len(texts), 1, options)

    def test_many_prompts_are_lines_of_json_in_their_order(self):
        prompts = ["def ", "", "class é", "x"]
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts) + "\n")
        common = ("generate", "--checkpoint", "run", "--tokens", 30, "--temperature", 0)
        told = self.succeed(*common, "--prompts", "prompts.jsonl")
        lines = [json.loads(line) for line in told.splitlines()]
        self.assertEqual([line["prompt"] for line in lines], prompts)
        for line in lines:
            if line["end"] == "length":
                self.assertEqual(line["tokens"], 30)
        for batch in (1, 3):
            self.assertEqual(self.succeed(*common, "--prompts", "prompts.jsonl", "--batch", batch), told)
        alone = self.succeed(*common, "--prompt", "def ")
        if alone.isascii():
            self.assertEqual(alone, "def " + lines[0]["text"] + "\n")

    def test_a_stop_string_ends_the_text_before_it(self):
        common = ("generate", "--checkpoint", "run", "--prompt", "def ", "--tokens", 40, "--temperature", 0)
        whole = self.succeed(*common)[len("def "):-1]
        pieces = [whole[begin:begin + size] for size in (1, 2, 4) for begin in range(len(whole) - size + 1)]
        stops = [piece for piece in pieces if piece.isascii() and piece.isprintable() and not piece.startswith("-")]
        self.assertGreater(len(stops), 3)
        for stop in (stops[0], stops[len(stops) // 2], stops[-1]):
            said = self.succeed(*common, "--stop", "never in it", "--stop", stop)[len("def "):-1]
            self.assertEqual(said, whole[:whole.index(stop)])

    def test_wrong_prompts_are_refused_with_their_line(self):
        for text, *parts in (("", "prompts.jsonl"), ("\n", "has no line"), ('{"prompt": "a"}\n{"text": "b"}\n', ":2", "prompt"),
                             ('{"prompt": 7}\n', ":1", "prompt is 7"), ("{\n", ":1")):
            (self.folder / "prompts.jsonl").write_text(text)
            self.fail_with(2, parts, "generate", "--checkpoint", "run", "--prompts", "prompts.jsonl")
        self.fail_with(2, ["none.jsonl"], "generate", "--checkpoint", "run", "--prompts", "none.jsonl")
        self.fail_with(2, ["--stop is empty"], "generate", "--checkpoint", "run", "--stop", "")
        self.fail_with(2, ["--prompt"], "generate", "--checkpoint", "run", "--prompts", "prompts.jsonl", "--prompt", "a")

    def test_the_runs_own_tokenizer_is_found_by_any_path(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=1", "--output.folder=own",
                     environment={"TMPDIR": "/nowhere"})
        for file in (self.folder / "data").iterdir():
            file.unlink()
        step = "own/checkpoints/step-000001"
        texts = {self.succeed("generate", "--checkpoint", path, "--prompt", "def", "--tokens", 8)
                 for path in ("own", "own/", step, f"{step}/", f"{step}/.", f"{step}/../step-000001")}
        self.assertEqual(len(texts), 1)

    def test_generate_refuses_what_makes_no_sense(self):
        for option, value in (("--tokens", -5), ("--temperature", -1), ("--top-k", -1), ("--top-p", 0),
                              ("--repetition-penalty", 0), ("--batch", 0)):
            self.fail_with(2, [str(value)], "generate", "--checkpoint", "run", option, value)

    def test_checkpoints_are_safetensors_that_python_reads(self):
        from safetensors.numpy import load_file
        folder = self.folder / "run/checkpoints/step-000020"
        tensors = {}
        for path in folder.glob("*.safetensors"):
            tensors |= load_file(path)
        self.assertEqual(tensors["model.embed_tokens.weight"].shape, (257, 32))

    def test_tensorboard_reads_what_metrics_say(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(str(self.folder / "run/tensorboard"))
        events.Reload()
        losses = {event.step: event.value for event in events.Scalars("loss")}
        metrics = self.metrics()
        self.assertEqual(len(losses), len(metrics))
        for line in metrics:
            self.assertAlmostEqual(losses[line["step"]], line["loss"], places=5)

    def test_config_of_the_run_is_whole_and_trains_again(self):
        text = (self.folder / "run/config.toml").read_text()
        self.assertTrue(re.search(r"^data = 2$", text, re.M), "the derived axis is written out")
        self.succeed("train", "run/config.toml", "--ranks", 2, "--output.folder=again")
        self.assertEqual(self.curve("again"), self.curve("run"))


if __name__ == "__main__":
    unittest.main()
