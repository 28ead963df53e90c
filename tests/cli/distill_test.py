"""Knowledge distillation: from a teacher's folder to a trained student, beside transformers and autograd."""
import json
import os
import pathlib
import shlex
import shutil
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers
from torch.nn.functional import cross_entropy, kl_div

from chat_data_test import CONVERSATIONS, ChatTest

TEMPERATURE, WEIGHT, RATE, STEPS = 2.0, 0.7, 1e-3, 50
# Each step rounds its gradients by some 1e-7 of themselves, and AdamW turns that into as much of an update.
TOLERANCE = 1e-5


class Distill(ChatTest):
    """hf/ has the student's initial weights, teacher/ a model of another width and depth."""
    def prepare(self):
        super().prepare()
        self.teacher = self.save_teacher("teacher", self.tokenizer.backend_tokenizer.get_vocab_size())
        self.write(CONVERSATIONS * 3)
        self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                     "--validation-fraction", 0.25, "--output", "data/chat")

    def save_teacher(self, name, vocab_size, seed=7):
        torch.manual_seed(seed)
        teacher = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=vocab_size, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=3, max_position_embeddings=512, initializer_range=0.3, tie_word_embeddings=True)).eval()
        teacher.save_pretrained(self.folder / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(self.folder / "hf" / file, self.folder / name / file)
        return teacher

    def command(self, run, steps, *options):
        return ["train", "--init", "hf", f"--output.folder={run}", "--data.path=data/chat", "--objective.name=distill",
                "--objective.teacher=teacher", f"--objective.temperature={TEMPERATURE}",
                f"--objective.weight={WEIGHT}", "--model.sequence_length=32", "--train.global_batch=4",
                "--train.micro_batch=2", f"--train.steps={steps}", "--optimizer.schedule=constant",
                f"--optimizer.learning_rate={RATE}", *options]

    def train(self, run, steps, *options):
        return self.succeed(*self.command(run, steps, *options))

    def losses_of_transformers(self):
        """Fifty steps of the paper's formula with torch's AdamW; the batch of each step has all conversations."""
        student, documents = self.model.train(), []
        for conversation in CONVERSATIONS:
            found = self.tokenizer.apply_chat_template(conversation["messages"], return_dict=True,
                                                       return_assistant_tokens_mask=True)
            tokens, learnt = torch.tensor([found["input_ids"]]), torch.tensor(found["assistant_masks"][1:]).bool()
            with torch.no_grad():
                documents.append((tokens, learnt, self.teacher(tokens).logits[0, :-1][learnt]))
        count = sum(learnt.sum().item() for _, learnt, _ in documents)
        decayed = [p for p in student.parameters() if p.dim() > 1]
        others = [p for p in student.parameters() if p.dim() == 1]
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
                                      lr=RATE, betas=(0.9, 0.95), eps=1e-8)
        losses = []
        for _ in range(STEPS):
            targets = divergence = 0
            for tokens, learnt, taught in documents:
                logits = student(tokens).logits[0, :-1][learnt]
                targets = targets + cross_entropy(logits, tokens[0, 1:][learnt], reduction="sum") / count
                divergence = divergence + kl_div((logits / TEMPERATURE).log_softmax(-1), (taught / TEMPERATURE).softmax(-1),
                                                 reduction="sum") / count
            loss = (1 - WEIGHT) * targets + WEIGHT * TEMPERATURE**2 * divergence
            losses.append((loss.item(), targets.item(), divergence.item()))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
        return losses

    def test_fifty_steps_have_the_losses_of_transformers(self):
        self.write(CONVERSATIONS)
        self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                     "--validation-fraction", 0, "--output", "data/all")
        theirs = self.losses_of_transformers()
        self.assertLess(theirs[-1][2], 0.8 * theirs[0][2])
        output = self.train("run", STEPS, "--data.path=data/all", "--data.packing=whole", "--data.separate_documents=true",
                            "--model.sequence_length=256", "--train.global_batch=1", "--train.micro_batch=1",
                            "--optimizer.warmup_steps=0", "--optimizer.weight_decay=0.1", "--optimizer.beta2=0.95",
                            "--train.gradient_clip=1")
        self.assertIn("teacher: llama, 3 layers", output)
        ours = self.metrics("run")
        self.assertEqual(len(ours), STEPS)
        for line, expected in zip(ours, theirs, strict=True):
            with self.subTest(step=line["step"]):
                for name, value in zip(("loss", "cross_entropy", "divergence"), expected, strict=True):
                    self.assertLess(abs(line[name] - value) / value, TOLERANCE, name)

    def test_layouts_have_one_curve(self):
        same = "--train.reproducible=true"
        layouts = {"one": [same], "data": [same, "--ranks", 2], "zero3": [same, "--ranks", 2, "--parallel.zero=3"],
                   "pipeline": [same, "--ranks", 2, "--parallel.pipeline=2"],
                   "tensor": ["--ranks", 2, "--parallel.tensor=2", "--parallel.sequence_parallel=true"],
                   "context": ["--ranks", 2, "--parallel.context=2"]}
        for name, options in layouts.items():
            self.train(name, 4, *options)
        for name in ("data", "zero3", "pipeline"):
            self.assertEqual(self.curve(name), self.curve("one"), name)
        for name in ("tensor", "context"):
            for line, expected in zip(self.metrics(name), self.metrics("one"), strict=True):
                for number in ("loss", "divergence"):
                    self.assertAlmostEqual(line[number], expected[number], delta=TOLERANCE)

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        options = ["--ranks", 2, "--checkpoint.interval=3", "--lora.rank=4", "--lora.alpha=8"]
        self.train("whole", 40, *options)
        process = self.start(*self.command("run", 40, *options))
        self.await_step(8, process)
        process.kill()
        process.communicate()
        self.train("run", 40, *options)
        self.assertEqual(self.curve("run"), self.curve("whole"))

    def test_a_resume_needs_the_same_teacher_wherever_it_lies(self):
        self.train("run", 2)
        (self.folder / "teacher").rename(self.folder / "moved")
        self.fail_with(2, ["objective.teacher teacher does not exist"], *self.command("run", 4))
        output = self.train("run", 4, "--objective.teacher=moved")
        self.assertIn("moved' (the same content)", output)
        self.save_teacher("teacher", self.teacher.config.vocab_size, seed=8)
        self.fail_with(2, ["run/checkpoints", "belongs to another run: objective.teacher 'moved' (weights",
                           "-> 'teacher' (weights", "--resume.allow=objective.teacher"], *self.command("run", 6))
        self.train("run", 6, "--resume.allow=objective.teacher")

    def test_a_run_teaches_and_evaluation_reads_the_teacher_too(self):
        (self.folder / "expert.toml").write_text('[model]\nfamily = "gpt2"\nlayers = 3\nwidth = 24\nheads = 3\n'
                                                 'kv_heads = 3\nffn_width = 64\n[data]\npath = "data/chat"\n')
        self.succeed("train", "expert.toml", "--output.folder=expert", "--model.sequence_length=48", "--train.steps=3",
                     "--train.global_batch=4", "--train.precision=bf16",
                     f"--model.vocab_size={self.model.config.vocab_size}")
        self.train("run", 30, "--objective.teacher=expert", "--train.evaluate_interval=15", "--ranks", 2)
        last = self.metrics("run")[-1]
        self.assertGreater(last["validation_divergence"], 0)
        self.assertAlmostEqual(
            last["validation_loss"], (1 - WEIGHT) * last["validation_cross_entropy"]
            + WEIGHT * TEMPERATURE**2 * last["validation_divergence"], places=6)
        # The student alone is a model like any other.
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        transformers.AutoModelForCausalLM.from_pretrained(self.folder / "exported")

    def test_the_commands_of_the_guide_work(self):
        (self.folder / "hf").rename(self.folder / "student")
        (self.folder / "chat.jsonl").rename(self.folder / "conversations.jsonl")
        guide = (pathlib.Path(__file__).parents[2] / "docs/guide/distillation.md").read_text()
        commands = [shlex.split(line)[1:] for line in guide.splitlines() if line.startswith("    trireme ")]
        self.assertEqual([command[0] for command in commands], ["data", "train", "checkpoint"])
        for command in commands:
            self.succeed(*command)

    def test_what_cannot_be_is_one_line(self):
        command = self.command("bad", 2)
        self.save_teacher("large", self.model.config.vocab_size + 64)
        shutil.copytree(self.folder / "teacher", self.folder / "foreign")
        path = self.folder / "foreign/tokenizer.json"
        tokenizer = json.loads(path.read_text())
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        path.write_text(json.dumps(tokenizer))
        sizes = (self.model.config.vocab_size + 64, self.model.config.vocab_size)
        for code, option, *expected in [
                (2, "--objective.teacher=none", "objective.teacher none does not exist"),
                (4, "--objective.teacher=data", "objective.teacher: no checkpoint in data"),
                (2, "--objective.teacher=", 'objective.name is "distill" and objective.teacher empty'),
                (2, "--objective.teacher=large",
                 f"objective.teacher large has a vocabulary of {sizes[0]} tokens and the model one of {sizes[1]}"),
                (2, "--objective.teacher=foreign", "objective.teacher foreign has another tokenizer than the data"),
                (2, "--objective.temperature=0", "objective.temperature is 0"),
                (2, "--objective.weight=2", "objective.weight is 2"),
                (2, "--objective.beta=0.2", 'objective.beta is set and objective.name "distill"'),
                (2, "--objective.name=dpo", 'objective.teacher is set and objective.name "dpo"')]:
            with self.subTest(option=option):
                self.fail_with(code, expected, *command, option)
        (self.folder / "deep.toml").write_text(
            '[model]\nlayers = 4\nsequence_length = 32\n[data]\npath = "data/chat"\n'
            '[objective]\nname = "distill"\nteacher = "teacher"\n[output]\nfolder = "bad"\n')
        self.fail_with(2, ["objective.teacher: ", "the model has 3 layers"], "train", "deep.toml", "--ranks", 2,
                       "--parallel.pipeline=2", "--parallel.stages_per_rank=2", "--parallel.schedule=interleaved")
        self.fail_with(2, ["objective.teacher teacher reads sequences of at most 512 tokens"], "train", "deep.toml",
                       "--model.sequence_length=513")
        self.fail_with(2, ["parallel.servers is 1 and objective.name"], *command, "--parallel.servers=1",
                       "--train.gradient_clip=0", "--ranks", 2)
        self.fail_with(2, ["objective.weight is set and objective.name"], "train", "--init", "hf",
                       "--data.path=data/chat", "--objective.weight=0.2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
