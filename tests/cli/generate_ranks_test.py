"""A trained model that ranks share writes the texts of one rank."""
import json
import os
import signal
import unittest

from program import TIMEOUT, ProgramTest, children, is_running, rank_of

# In fp64, where no two logits are as near as the roundings of a sum in another order.
KEYS = ["--train.steps=6", "--model.layers=4", "--train.precision=fp64", "--train.evaluate_interval=0", "--average.decay=0.5"]
EXPERTS = ["--model.family=mixtral", "--model.experts=4", "--model.experts_per_token=2"]
PROMPTS = ["def ", "", "return x", "a", "import self "]


class OnRanks(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))

    def train(self, *keys):
        self.succeed("train", "tiny.toml", *KEYS, *keys)

    def written(self, *options, runner=()):
        return self.succeed(*runner, "generate", "--checkpoint", "run", "--prompts", "prompts.jsonl", "--tokens", 20,
                            "--batch", 3, *options)

    def test_every_layout_writes_the_texts_of_one_rank(self):
        self.train()
        for options in (["--temperature", 0, "--stop", "t i"], ["--seed", 4, "--top-p", 0.9, "--repetition-penalty", 1.2]):
            expected = self.written(*options)
            self.assertEqual([json.loads(line)["prompt"] for line in expected.splitlines()], PROMPTS)
            for ranks, *layout in ((2, "--parallel.tensor=2"), (3, "--parallel.pipeline=3"), (2,),
                                   (4, "--parallel.tensor=2", "--parallel.pipeline=2", "--threads=1"),
                                   (4, "--parallel.tensor", "2", "--parallel.data", "2", "--parallel.transport=shm")):
                self.assertEqual(self.written("--ranks", ranks, *layout, *options), expected, layout)
        average = self.written("--average", "--temperature", 0)
        self.assertEqual(self.written("--average", "--temperature", 0, "--ranks", 2, "--parallel.pipeline=2"), average)

    def test_experts_are_shared_too(self):
        self.train(*EXPERTS)
        expected = self.written("--temperature", 0)
        for layout in (["--parallel.expert=2"], ["--parallel.expert=2", "--parallel.zero=3"]):
            self.assertEqual(self.written("--temperature", 0, "--ranks", 2, *layout), expected, layout)

    def test_one_prompt_grows_on_the_first_rank_only(self):
        self.train("--model.tied_embedding=true")
        common = ("generate", "--checkpoint", "run", "--prompt", "def ", "--tokens", 40, "--temperature", 0)
        expected = self.succeed(*common)
        for layout in (["--parallel.pipeline=2"], ["--parallel.tensor=2"]):
            self.assertEqual(self.succeed(*common, "--ranks", 2, *layout), expected, layout)
        # Ranks of a launcher, and a layout of one rank.
        said = self.succeed("run", "--nproc-per-node", 2, "--log-dir", "logs", "--", self.program, *common,
                            "--parallel.pipeline=2")
        self.assertEqual(said.count(expected), 1)
        self.assertEqual(self.succeed(*common, "--parallel.tensor=1"), expected)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir() if path.name != "tmp"),
                         ["data", "logs", "prompts.jsonl", "run", "text", "tiny.toml"])

    def test_wrong_layouts_cost_one_line_before_ranks_start(self):
        self.train()
        for parts, *options in ((["parallel.context", "parallel.tensor"], "--parallel.context=2"),
                                (["train.steps"], "--train.steps=3"),
                                (["parallel.tensor", "8"], "--ranks", 8, "--parallel.tensor=8"),
                                (["pipeline is 3", "2 ranks"], "--ranks", 2, "--parallel.pipeline=3"),
                                (["pipeline", "4"], "--ranks", 5, "--parallel.pipeline=5"),
                                (["parallel.expert", "model.experts 0"], "--ranks", 2, "--parallel.expert=2"),
                                (["--ranks"], "--ranks", 0),
                                (["nonsense"], "nonsense")):
            self.fail_with(2, parts, "generate", "--checkpoint", "run", "--tokens", 1, *options)

    def test_a_lost_rank_ends_the_others_with_one_line(self):
        self.train()
        process = self.start("generate", "--checkpoint", "run", "--prompt", "a", "--tokens", 1000000, "--ranks", 2,
                             "--parallel.pipeline=2", "--temperature", 0)
        process.stdout.read(50)  # both are at work
        self.assertIsNone(process.poll())
        ranks = children(process.pid)
        os.kill(rank_of(process, 1), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 3)
        self.assertRegex(errors, r"^trireme: rank 1 was killed by signal 9 \(Killed[^\n]*\)\n$")
        self.assertFalse(any(is_running(rank) for rank in ranks))
        self.assertEqual(self.segments(), [])

    def test_a_request_to_stop_ends_every_rank(self):
        self.train()
        process = self.start("generate", "--checkpoint", "run", "--prompt", "a", "--tokens", 1000000, "--ranks", 2,
                             "--parallel.tensor=2", "--temperature", 0)
        process.stdout.read(50)
        self.assertIsNone(process.poll())
        ranks = children(process.pid)
        process.terminate()
        process.communicate(timeout=TIMEOUT)
        self.assertFalse(any(is_running(rank) for rank in ranks))
        self.assertEqual(self.segments(), [])


if __name__ == "__main__":
    unittest.main()
