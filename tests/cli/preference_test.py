"""Direct preference optimization: from pairs of answers to a tuned model, beside transformers and autograd."""
import json
import math
import os
import pathlib
import shlex
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

from chat_data_test import MARKED, ChatTest

BETA, RATE, STEPS = 0.3, 2e-4, 50
# Each step rounds its gradients by some 1e-7 of themselves, and AdamW turns that into as much of an update.
TOLERANCE = 1e-5


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def pair(prompt, chosen, rejected):
    return {"prompt": [user(prompt)], "chosen": [assistant(chosen)], "rejected": [assistant(rejected)]}


PAIRS = [pair("How is it?", "It is fine.", "No."), pair("And the weather?", "It is fine.", "Is it the weather?"),
         pair("Is it?", "It is.", "And you?"), pair("How is the weather, then?", "It is fine.", "How?"),
         pair("And you?", "I am fine, and you?", "It is the weather."), pair("Is it fine?", "It is fine.", "You?"),
         {"chosen": [user("And it?"), assistant("Fine."), user("You?"), assistant("It is fine.")],
          "rejected": [user("And it?"), assistant("Fine."), user("You?"), assistant("It?")]},
         {"prompt": "The weather is", "chosen": " fine, it is.", "rejected": " you."}]


class Preference(ChatTest):
    def prepare_pairs(self, pairs=PAIRS, *options, validation=0):
        self.write(pairs)
        return self.succeed("data", "prepare", "--format", "preference", "--input", "chat.jsonl", "--tokenizer-model",
                            "hf", "--validation-fraction", validation, "--output", "data/pairs", *options)

    def train(self, run, steps, *options):
        return self.succeed(*self.command(run, steps, *options))

    def command(self, run, steps, *options):
        return ["train", "--init", "hf", f"--output.folder={run}", "--data.path=data/pairs", "--objective.name=dpo",
                f"--objective.beta={BETA}", "--model.sequence_length=64", "--train.global_batch=4",
                "--train.micro_batch=2", f"--train.steps={steps}", "--optimizer.schedule=constant",
                f"--optimizer.learning_rate={RATE}", *options]

    def documents(self):
        """Tokens and the beginning of the answer, of both sides of each pair, by transformers."""
        result = []
        for line in PAIRS:
            for side in ("chosen", "rejected"):
                if isinstance(line[side], str):
                    prompt, whole = line["prompt"], line["prompt"] + line[side] + self.tokenizer.eos_token
                else:
                    # Without a prompt of its own: what both begin with.
                    messages = line["prompt"] if "prompt" in line else line["chosen"][:-1]
                    answer = line[side] if "prompt" in line else line[side][-1:]
                    prompt = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
                    whole = self.tokenizer.apply_chat_template(messages + answer, tokenize=False)
                encoded = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
                learnt = [int(end > len(prompt)) for _, end in encoded["offset_mapping"]]
                result.append((encoded["input_ids"], learnt))
        return result

    def test_the_files_have_the_tokens_of_transformers_and_mark_the_answers(self):
        report = json.loads(self.prepare_pairs(PAIRS, "--json"))
        documents = self.documents()
        self.assertEqual(self.stored("pairs", numpy.uint16), [tokens for tokens, _ in documents])
        self.assertEqual(self.stored("pairs.loss", numpy.uint8),
                         [[(1 + i % 2) * byte for byte in learnt] for i, (_, learnt) in enumerate(documents)])
        self.assertEqual((report["pairs"], report["tokens"]), (8, sum(len(tokens) for tokens, _ in documents)))
        self.assertEqual(report["trained_tokens"], sum(sum(learnt) for _, learnt in documents))

    def log_probabilities(self, model):
        """Of the answers: [pairs, 2]."""
        sums = []
        for tokens, learnt in self.documents():
            logits = model(torch.tensor([tokens])).logits[0, :-1]
            of_targets = logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
            sums.append((of_targets * torch.tensor(learnt[1:])).sum())
        return torch.stack(sums).view(-1, 2)

    def losses_of_transformers(self):
        """Fifty steps of the paper's equation 7 with torch's AdamW; the batch of each step has all pairs."""
        model = self.model.train()
        with torch.no_grad():
            reference = self.log_probabilities(model)
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
                                      lr=RATE, betas=(0.9, 0.95), eps=1e-8)
        losses = []
        for _ in range(STEPS):
            ratio = self.log_probabilities(model) - reference
            loss = -torch.nn.functional.logsigmoid(BETA * (ratio[:, 0] - ratio[:, 1])).mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return losses, reference

    def test_fifty_steps_have_the_losses_of_transformers(self):
        self.prepare_pairs()
        theirs, reference = self.losses_of_transformers()
        self.assertAlmostEqual(theirs[0], math.log(2), places=6)
        self.assertLess(theirs[-1], 0.8 * theirs[0])
        self.train("run", STEPS, "--train.global_batch=8", "--optimizer.warmup_steps=0", "--optimizer.weight_decay=0.1",
                   "--optimizer.beta2=0.95", "--train.gradient_clip=1")
        ours = self.metrics("run")
        self.assertEqual(len(ours), STEPS)
        for line, loss in zip(ours, theirs, strict=True):
            with self.subTest(step=line["step"]):
                self.assertLess(abs(line["loss"] - loss) / loss, TOLERANCE)
        stored = load_file(self.folder / "run/reference.safetensors")["training"]
        torch.testing.assert_close(stored.float(), reference, rtol=TOLERANCE, atol=0)
        last = ours[-1]
        self.assertEqual(ours[0]["reward_margin"], ours[0]["reward_chosen"] - ours[0]["reward_rejected"])
        self.assertAlmostEqual(last["reward_margin"], last["reward_chosen"] - last["reward_rejected"], places=6)
        self.assertGreater(last["reward_accuracy"], 0.8)
        self.assertGreater(last["reward_margin"], 0.1)

    def test_layouts_have_one_curve_and_one_reference(self):
        self.prepare_pairs()
        same = "--train.reproducible=true"
        layouts = {"one": [same], "data": [same, "--ranks", 2], "zero3": [same, "--ranks", 2, "--parallel.zero=3"],
                   "pipeline": [same, "--ranks", 2, "--parallel.pipeline=2"],
                   "tensor": ["--ranks", 2, "--parallel.tensor=2", "--parallel.sequence_parallel=true"],
                   "context": ["--ranks", 2, "--parallel.context=2"]}
        for name, options in layouts.items():
            self.train(name, 4, *options)
        bits = {name: (self.folder / name / "reference.safetensors").read_bytes() for name in layouts}
        for name in ("data", "zero3", "pipeline"):
            self.assertEqual(self.curve(name), self.curve("one"), name)
            self.assertEqual(bits[name], bits["one"], name)
        for name in ("tensor", "context"):
            for line, expected in zip(self.metrics(name), self.metrics("one"), strict=True):
                self.assertAlmostEqual(line["loss"], expected["loss"], delta=TOLERANCE)

    def test_a_killed_run_goes_on_with_the_same_bits_and_the_same_reference(self):
        self.prepare_pairs()
        options = ["--ranks", 2, "--checkpoint.interval=3", "--lora.rank=4", "--lora.alpha=8"]
        whole = self.train("whole", 40, *options)
        self.assertIn("reference: the initial model has read all samples", whole)
        process = self.start(*self.command("run", 40, *options))
        self.await_step(8, process)
        process.kill()
        process.communicate()
        before = (self.folder / "run/reference.safetensors").read_bytes()
        self.assertNotIn("reference:", self.train("run", 40, *options))
        self.assertEqual(self.curve("run"), self.curve("whole"))
        self.assertEqual((self.folder / "run/reference.safetensors").read_bytes(), before)

    def test_a_resume_without_its_reference_is_one_line(self):
        self.prepare_pairs()
        path = self.folder / "run/reference.safetensors"
        self.train("run", 2)
        good = path.read_bytes()
        command = self.command("run", 4)

        def fails(*expected):
            self.fail_with(4, [*expected, "begin a new run"], *command)

        path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
        fails("reference.safetensors is damaged")
        path.write_bytes(good[:-1])
        fails("reference.safetensors")
        path.unlink()
        fails("reference.safetensors")
        self.train("other", 2, "--train.seed=7")
        path.write_bytes((self.folder / "other/reference.safetensors").read_bytes())
        fails("belongs to other data, or to another initial model")
        save_file({"training": torch.zeros(3, 2, dtype=torch.float64)}, path)
        fails('has no "training" of 8 samples')
        path.write_bytes(good)
        self.succeed(*command)

    def test_no_second_model_is_in_memory(self):
        self.prepare_pairs()
        self.train("run", 1)
        self.write([{"messages": [user("How is it?"), assistant("It is fine.")]}] * 30)
        self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                     "--validation-fraction", 0, "--output", "data/chat")
        self.train("plain", 1, "--data.path=data/chat", "--objective.name=next_token", "--objective.beta=0.1")
        for kind in ("weights", "states"):
            self.assertEqual(*(self.metrics(run)[-1][f"memory_{kind}_bytes"] for run in ("run", "plain")), kind)

    def test_evaluates_pairs_set_aside(self):
        self.prepare_pairs(PAIRS * 3, validation=0.3)
        self.train("run", 20, "--train.evaluate_interval=10", "--ranks", 2, "--optimizer.learning_rate=0.001")
        last = self.metrics("run")[-1]
        self.assertGreater(last["validation_reward_accuracy"], 0.5)
        self.assertLess(last["validation_loss"], 0.9 * math.log(2))
        self.assertEqual(set(load_file(self.folder / "run/reference.safetensors")), {"training", "validation"})

    def test_the_commands_of_the_guide_work(self):
        (self.folder / "hf").rename(self.folder / "SmolLM2-Instruct")
        self.write(PAIRS * 3)
        (self.folder / "chat.jsonl").rename(self.folder / "pairs.jsonl")
        guide = (pathlib.Path(__file__).parents[2] / "docs/guide/preference.md").read_text()
        commands = [shlex.split(line)[1:] for line in guide.splitlines() if line.startswith("    trireme ")]
        self.assertEqual([command[0] for command in commands], ["data", "train", "checkpoint", "checkpoint"])
        for command in commands:
            self.succeed(*command)
        loaded = transformers.AutoTokenizer.from_pretrained(self.folder / "preferred")
        self.assertEqual(loaded.chat_template, MARKED)
        transformers.AutoModelForCausalLM.from_pretrained(self.folder / "preferred")

    def test_what_cannot_be_is_one_line(self):
        self.prepare_pairs()
        self.fail_with(2, ["data/pairs.idx has pairs of answers", '"next_token"', 'set it to "dpo"'], "train", "--init", "hf",
                       "--data.path=data/pairs", "--output.folder=bad")
        self.write([{"messages": [user("How?"), assistant("It is.")]}] * 4)
        self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                     "--validation-fraction", 0, "--output", "data/chat")
        command = self.command("bad", 2)
        for option, *expected in [
                ("--data.path=data/chat", "data/chat.idx has no pairs of answers", "--format preference"),
                ("--objective.beta=0", "objective.beta is 0"),
                ("--objective.label_smoothing=0.5", "objective.label_smoothing is 0.5"),
                ("--objective.name=ppo", "objective.name", "dpo"),
                ("--data.packing=whole", 'data.packing is "whole" and objective.name "dpo"'),
                ("--model.sequence_length=1", "none has answers within the first 2 tokens")]:
            self.fail_with(2, expected, *command, option)
        self.fail_with(2, ["parallel.servers is 1 and objective.name"], *command, "--parallel.servers=1",
                       "--train.gradient_clip=0", "--ranks", 2)
        self.fail_with(2, ["objective.beta is set and objective.name"], "train", "--init", "hf", "--data.path=data/pairs",
                       "--objective.beta=0.2")
        (self.folder / "experts.toml").write_text(
            '[model]\nfamily = "mixtral"\nexperts = 4\n[data]\npath = "data/pairs"\n[objective]\nname = "dpo"')
        self.fail_with(2, ['objective.name is "dpo", and model.balance_loss is 0.01'], "train", "experts.toml")
        (self.folder / "images.toml").write_text('[task]\nname = "vision"\n[objective]\nname = "dpo"\n')
        self.fail_with(2, ["objective"], "train", "images.toml")

    def test_lines_that_cannot_be_used_are_one_line(self):
        def fails(line, *expected):
            self.write([PAIRS[0], line])
            self.fail_with(2, ["chat.jsonl:2", *expected], "data", "prepare", "--format", "preference", "--input",
                           "chat.jsonl", "--tokenizer-model", "hf", "--output", "data/bad")
            self.assertEqual(list((self.folder / "data").glob("bad*")), [])

        (self.folder / "data").mkdir()
        fails("{", "not valid JSON")
        fails({"prompt": "x", "chosen": "y"}, 'has no "rejected"')
        fails({**PAIRS[0], "rejected": [{"role": "wizard", "content": "x"}]}, 'message 1 has the role "wizard"')
        fails({**PAIRS[0], "rejected": PAIRS[0]["chosen"]}, "are the same")
        fails({"messages": [user("x")]}, 'has no "prompt" but "messages"')


if __name__ == "__main__":
    unittest.main(verbosity=2)
