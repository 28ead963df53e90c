"""Knowledge distillation: from a teacher's folder to a trained student, beside transformers and autograd."""
import json
import os
import pathlib
import shlex
import shutil
import signal
import time
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy, kl_div

from chat_data_test import CONVERSATIONS, ChatTest
from program import TIMEOUT, rank_of

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

    def recording(self, *options, top_k=8, output="teacher.outputs"):
        """What the teacher says of the data of command(), in a file."""
        command = [word for word in self.command("unused", 1) if "output" not in word]
        return ["data", "outputs", *command[1:], "--output", output, "--top-k", top_k, *options]

    def record(self, *options, **arguments):
        return self.succeed(*self.recording(*options, **arguments))

    def differences(self, run, expected, *names):
        """The largest relative difference of these numbers between two runs."""
        return max(abs(line[name] - other[name]) / abs(other[name]) for name in names
                   for line, other in zip(self.metrics(run), self.metrics(expected), strict=True))

    def test_outputs_of_all_tokens_are_the_teacher_in_place(self):
        vocabulary = self.model.config.vocab_size
        evaluates = "--train.evaluate_interval=5"
        self.train("place", 10, evaluates)
        report = json.loads(self.record("--json", top_k=vocabulary))
        self.assertEqual((report["top_k"], report["vocab_size"]), (vocabulary, vocabulary))
        output = self.train("all", 10, evaluates, "--objective.teacher=teacher.outputs")
        self.assertIn("with outputs of llama, 3 layers", output)
        # fp32 keeps log-probabilities of up to 20 to 1e-6 of a nat, and divergences are about one.
        self.assertLess(self.differences("all", "place", "loss", "divergence"), TOLERANCE)
        last, other = self.metrics("all")[-1], self.metrics("place")[-1]
        self.assertAlmostEqual(last["validation_divergence"], other["validation_divergence"], delta=TOLERANCE)
        # The weights in memory are those of a run that has never had a teacher.
        self.train("plain", 1, "--objective.name=next_token", *(f"--objective.{key}={value}" for key, value in (
            ("teacher", ""), ("temperature", 1), ("weight", 0.5))))
        self.assertEqual(last["memory_weights_bytes"], self.metrics("plain")[-1]["memory_weights_bytes"])
        self.assertGreaterEqual(other["memory_weights_bytes"] - last["memory_weights_bytes"],
                                4 * sum(p.numel() for p in self.teacher.parameters()))
        # transformers gives the tokens the same probabilities.
        stored, tokens = load_file(self.folder / "teacher.outputs"), torch.tensor([self.stored("chat", "uint16")[0][:9]])
        with torch.no_grad():
            theirs = (self.teacher(tokens).logits[0] / TEMPERATURE).log_softmax(-1)
        torch.testing.assert_close(stored["training.log_probabilities"][0, :9], theirs, rtol=0, atol=1e-5)

    def test_few_outputs_have_one_curve_at_other_layouts(self):
        self.record()
        one = load_file(self.folder / "teacher.outputs")
        self.assertEqual(one["training.tokens"].shape[2], 8)
        # The teacher may be divided in other ways than the student. tests/parity has every axis.
        self.record("--ranks", 2, "--parallel.pipeline=2", output="other.outputs")
        self.assertEqual((self.folder / "other.outputs").read_bytes(), (self.folder / "teacher.outputs").read_bytes())
        self.record("--ranks", 2, "--parallel.tensor=2", "--parallel.sequence_parallel=true", output="other.outputs")
        for name, tensor in load_file(self.folder / "other.outputs").items():
            if not name.endswith("checksums"):
                # Some 64 roundings on the way through the teacher, of numbers as large as these.
                torch.testing.assert_close(tensor, one[name], rtol=64 * 2 ** -23, atol=64 * 2 ** -23, msg=name)
        same = "--train.reproducible=true"
        for name, options in (("one", [same]), ("zero3", [same, "--ranks", 2, "--parallel.zero=3"]),
                              ("context", ["--ranks", 2, "--parallel.context=2"])):
            self.train(name, 4, "--objective.teacher=teacher.outputs", *options)
        self.assertEqual(self.curve("zero3"), self.curve("one"))
        self.assertLess(self.differences("context", "one", "loss", "divergence"), TOLERANCE)

    def test_a_killed_run_from_outputs_goes_on_with_the_same_bits(self):
        self.record()
        options = ["--ranks", 2, "--checkpoint.interval=3", "--objective.teacher=teacher.outputs"]
        self.train("whole", 40, *options)
        process = self.start(*self.command("run", 40, *options))
        self.await_step(8, process)
        process.kill()
        process.communicate()
        (self.folder / "teacher.outputs").rename(self.folder / "moved.outputs")
        output = self.train("run", 40, *options[:-1], "--objective.teacher=moved.outputs")
        self.assertIn("moved.outputs' (the same content)", output)
        self.assertEqual(self.curve("run"), self.curve("whole"))
        self.record(top_k=9, output="other.outputs")
        for teacher in ("other.outputs", "teacher"):
            self.fail_with(2, ["belongs to another run: objective.teacher 'moved.outputs' (", f"-> '{teacher}'"],
                           *self.command("run", 50, f"--objective.teacher={teacher}"))

    def test_a_killed_recording_goes_on_with_the_same_bytes(self):
        self.write(CONVERSATIONS * 1500)
        self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                     "--validation-fraction", 0.25, "--output", "data/chat")
        whole = json.loads(self.record("--json", output="whole.outputs"))
        self.assertEqual(whole["resumed_samples"], 0)
        work = self.folder / ".teacher.outputs.tmp"
        samples = 0
        for layout in ["--ranks", 1], ["--ranks", 2, "--parallel.pipeline=2"]:
            process = self.start(*self.recording(*layout))
            while not (journals := list(work.glob("*/journal.json"))) or not (
                    now := sum(json.loads(journals[0].read_text())[f"{part}.samples"] for part in ("training", "validation"))
            ) > samples:
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.kill()
            process.communicate()
            self.assertFalse((self.folder / "teacher.outputs").exists())
            samples = now
        self.fail_with(2, ["objective.teacher nothing does not exist"], *self.recording("--objective.teacher=nothing"))
        report = json.loads(self.record("--json"))
        self.assertGreaterEqual(report["resumed_samples"], samples)
        self.assertEqual({**report, "seconds": 0}, {**whole, "seconds": 0, "output": "teacher.outputs",
                                                    "resumed_samples": report["resumed_samples"]})
        self.assertEqual((self.folder / "teacher.outputs").read_bytes(), (self.folder / "whole.outputs").read_bytes())
        self.assertFalse(work.exists())

    def test_outputs_that_cannot_be_used_are_one_line(self):
        self.record()
        path = self.folder / "teacher.outputs"
        good = path.read_bytes()
        command = self.command("bad", 2, "--objective.teacher=teacher.outputs")
        self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                     "--validation-fraction", 0.5, "--output", "data/other")
        (self.folder / "empty.toml").write_text("")
        vocabulary = self.model.config.vocab_size
        has = "objective.teacher teacher.outputs has outputs "
        for option, *expected in [
                ("--data.path=data/other", has + "of other data than the run: index, loss_mask, tokens", "`trireme data outputs`"),
                ("--model.sequence_length=48", has + "of sequences of 32 tokens, and model.sequence_length is 48"),
                ("--objective.temperature=3", has + "at the temperature 2, and objective.temperature is 3"),
                (f"--model.vocab_size={vocabulary + 8}", f"{has}over a vocabulary of {vocabulary} tokens"),
                ("--data.packing=whole", has + 'with data.packing "stream"')]:
            with self.subTest(option=option):
                # Other sizes than those of --init are of a model that begins anew.
                words = ["empty.toml" if word == "hf" else word for word in command if word != "--init"]
                self.fail_with(2, expected, *words, f"--model.vocab_size={vocabulary}", option)
        path.write_bytes(good[:-5])
        self.fail_with(4, ["objective.teacher: teacher.outputs"], *command)
        damaged = bytearray(good)
        for at in range(len(good) - 4, len(good) // 2, -400):
            damaged[at] ^= 1
        path.write_bytes(damaged)
        self.fail_with(2, ["teacher.outputs, training sample ", "has another checksum, so the file is damaged"], *command)
        shutil.copy(self.folder / "teacher/model.safetensors", path)
        self.fail_with(4, ['teacher.outputs: no outputs of a teacher: metadata "format" is "pt"'], *command)
        path.write_bytes(good)
        for code, option, *expected in [
                (2, "--top-k=100000", f"--top-k is 100000 and the vocabulary has {vocabulary} tokens"),
                (2, "--objective.teacher=teacher.outputs", "is a file of outputs; expected the teacher itself"),
                (2, "--objective.name=dpo", 'objective.teacher is set and objective.name "dpo"'),
                (2, "--parallel.pipeline=5", "5, which does not divide 1 ranks")]:
            with self.subTest(option=option):
                words = [word for word in self.command("unused", 1) if "output" not in word][1:]
                self.fail_with(code, expected, "data", "outputs", *words, "--output", "new.outputs", option)
        self.fail_with(2, ["the model has 3 layers"], "data", "outputs", *words, "--output", "new.outputs", "--ranks", 4,
                       "--parallel.pipeline=4")
        self.assertEqual(list(self.folder.glob("*new.outputs*")), [])

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

    def computed(self, run):
        """All that a teacher has a part in."""
        return [(line["loss"], line["grad_norm"], line["divergence"], line.get("validation_loss"),
                 line.get("validation_divergence")) for line in self.metrics(run)]

    def test_teachers_on_ranks_of_their_own_have_the_bits_of_one_in_place(self):
        evaluates = "--train.evaluate_interval=4"
        for students in 1, 2:
            self.train(f"place{students}", 8, "--ranks", students, evaluates)
            for teachers in 1, 2:
                with self.subTest(students=students, teachers=teachers):
                    run = f"run{students}{teachers}"
                    output = self.train(run, 8, "--ranks", students + teachers, f"--parallel.teachers={teachers}", evaluates)
                    self.assertIn(f"data {students} + teachers {teachers}", output)
                    self.assertIn("teacher: llama, 3 layers", output)
                    self.assertEqual(self.curve(run), self.curve(f"place{students}"))
                    self.assertEqual(self.computed(run), self.computed(f"place{students}"))
                    self.assertGreaterEqual(self.metrics(run)[-1]["teacher_wait_seconds"], 0)
        # The ranks that train do not hold the teacher, but for its last layer.
        of_teacher = 4 * sum(p.numel() for p in self.teacher.parameters())
        weights = [self.metrics(run)[-1]["memory_weights_bytes"] for run in ("place2", "run21")]
        head = 4 * self.teacher.lm_head.weight.numel()
        self.assertGreaterEqual(weights[0] - weights[1], of_teacher - head)

    def test_a_killed_teacher_ends_a_run_that_goes_on_with_others(self):
        self.train("whole", 120, "--ranks", 2, "--checkpoint.interval=5")
        process = self.start(*self.command("run", 120, "--ranks", 4, "--parallel.teachers=2", "--checkpoint.interval=5"))
        self.await_step(8, process)
        os.kill(rank_of(process, 3), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 3, errors)
        self.assertIn("rank 3 was killed by signal 9", errors)
        self.train("run", 120, "--ranks", 3, "--parallel.teachers=1", "--checkpoint.interval=5")
        self.assertEqual(self.curve("run"), self.curve("whole"))
        self.assertEqual(self.segments(), [])

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
        self.assertEqual([command[0] for command in commands], ["data", "train", "checkpoint", "train", "data", "train"])
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
        for expected, *options in [
                (["parallel.teachers is 1", "parallel.servers = 1"], "--parallel.servers=1", "--train.gradient_clip=0",
                 "--ranks", 3),
                (["parallel.teachers is 1 of 1 rank, which leaves none that trains"],),
                (["makes 2 copies of the teacher for 3 data ranks"], "--parallel.teachers=2", "--train.global_batch=6",
                 "--ranks", 5),
                (["hf/tokenizer.json a file of outputs, which needs no ranks"], "--objective.teacher=hf/tokenizer.json",
                 "--ranks", 2),
                (["parallel.teachers is 1", "the cost model does not know"], "--parallel.auto=true", "--ranks", 2)]:
            with self.subTest(options=options):
                self.fail_with(2, expected, *command, "--parallel.teachers=1", *options)
        self.fail_with(2, ["objective.weight is set and objective.name"], "train", "--init", "hf",
                       "--data.path=data/chat", "--objective.weight=0.2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
