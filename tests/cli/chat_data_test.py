"""Chat data: from a model's folder and conversations to a model that transformers talks to."""
import http.client
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from program import CONFIG, TIMEOUT, ProgramTest

START, END = "<|im_start|>", "<|im_end|>"
PLAIN = ("{% for m in messages %}" + START + "{{ m.role }}\n{{ m.content }}" + END + "\n{% endfor %}"
         "{% if add_generation_prompt %}" + START + "assistant\n{% endif %}")
MARKED = ("{% for m in messages %}{% if m.role == 'assistant' %}" + START + "assistant\n"
          "{% generation %}{{ m.content }}" + END + "{% endgeneration %}{{ '\\n' }}"
          "{% else %}" + START + "{{ m.role }}\n{{ m.content }}" + END + "\n{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}" + START + "assistant\n{% endif %}")
ANSWER = "It is fine."


def conversation(*contents):
    return {"messages": [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]}


CONVERSATIONS = [conversation("How is it?", ANSWER), conversation("And the weather?", ANSWER, "And you?", ANSWER),
                 conversation("Is it?", ANSWER), conversation("How is the weather, then?", ANSWER)]


class ChatTest(ProgramTest):
    """Each test has a model's folder, hf/, with a tokenizer and a chat template, and chat.jsonl."""
    def prepare(self):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        text = " ".join(m["content"] for c in CONVERSATIONS for m in c["messages"])
        tokenizer.train_from_iterator([text, "user assistant"], trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<|endoftext|>", START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        torch.manual_seed(1)
        self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0,
            eos_token_id=tokenizer.token_to_id(END), pad_token_id=0, tie_word_embeddings=False)).eval()
        hf = self.folder / "hf"
        self.model.save_pretrained(hf)
        tokenizer.save(str(hf / "tokenizer.json"))
        (hf / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": "<|endoftext|>"}))
        (hf / "chat_template.jinja").write_text(MARKED)
        (self.folder / "plain.jinja").write_text(PLAIN)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(hf)
        self.write(CONVERSATIONS)

    def write(self, lines):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (self.folder / "chat.jsonl").write_text(text)

    def stored(self, name, dtype):
        numbers = numpy.fromfile(self.folder / f"data/{name}.bin", dtype=dtype)
        index = (self.folder / f"data/{name}.idx").read_bytes()
        lengths = numpy.frombuffer(index, numpy.int32, int.from_bytes(index[18:26], "little"), 34)
        return [part.tolist() for part in numpy.split(numbers, numpy.cumsum(lengths)[:-1])]


class ChatData(ChatTest):
    def prepare_chat(self, *options, validation=0):
        return self.succeed("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                            "--validation-fraction", validation, "--output", "data/chat", *options)

    def expected(self):
        """Tokens and masks of the conversations by transformers."""
        found = [self.tokenizer.apply_chat_template(c["messages"], return_dict=True, return_assistant_tokens_mask=True)
                 for c in CONVERSATIONS]
        return [f["input_ids"] for f in found], [f["assistant_masks"] for f in found]

    def test_the_files_have_the_tokens_and_masks_of_transformers(self):
        report = json.loads(self.prepare_chat("--json"))
        tokens, masks = self.expected()
        self.assertEqual(self.stored("chat", numpy.uint16), tokens)
        self.assertEqual(self.stored("chat.loss", numpy.uint8), masks)
        self.assertTrue(report["marked_by_template"])
        self.assertEqual(report["conversations"], len(tokens))
        self.assertEqual(report["tokens"], sum(map(len, tokens)))
        self.assertEqual(report["trained_tokens"], sum(map(sum, masks)))
        self.assertEqual(report["longest_conversation_tokens"], max(map(len, tokens)))
        self.assertEqual(report["untrained_conversations"], 0)
        self.assertEqual(json.loads((self.folder / "data/chat.tokenizer.json").read_text())["end_of_document"],
                         self.tokenizer.eos_token_id)

    def test_without_marks_the_messages_say_what_is_learnt(self):
        text = self.prepare_chat("--chat-template", "plain.jinja")
        self.assertIn("as its messages add to the rendered text", text)
        tokens, masks = self.expected()
        self.assertEqual(self.stored("chat", numpy.uint16), tokens)
        # The template ends a message in a line feed behind its end, which a message adds too.
        for mask in masks:
            ends = [i for i in range(1, len(mask)) if mask[i - 1] and not mask[i]]
            for i in ends:
                mask[i] = 1
        self.assertEqual(self.stored("chat.loss", numpy.uint8), masks)

    def hugging_face_loss(self):
        total, count = 0.0, 0
        for tokens, mask in zip(*self.expected()):
            labels = torch.tensor([[token if learnt else -100 for token, learnt in zip(tokens, mask)]])
            with torch.no_grad():
                loss = self.model(torch.tensor([tokens]), labels=labels).loss
            terms = (labels[:, 1:] != -100).sum().item()
            total, count = total + loss.item() * terms, count + terms
        return total / count

    def train(self, folder, steps, *options):
        return self.succeed(
            "train", "--init", "hf", f"--output.folder={folder}", "--data.path=data/chat", "--data.packing=whole",
            "--data.separate_documents=true", "--train.global_batch=1", "--train.micro_batch=1",
            f"--train.steps={steps}", "--optimizer.learning_rate=0.02", "--optimizer.warmup_steps=2", *options)

    def first_loss(self, folder):
        return self.metrics(folder)[0]["loss"]

    def test_the_loss_is_that_of_transformers_with_labels_left_out(self):
        self.prepare_chat()
        text = self.train("run", 1)
        self.assertRegex(text, r"1 sequences of 256 tokens, 4 whole documents fill \d+\.\d %")
        expected = self.hugging_face_loss()
        # Each term is at the end of two layers of sums of at most 48 terms: at most 64 roundings.
        self.assertAlmostEqual(self.first_loss("run"), expected, delta=64 * 2**-24 * expected)
        # Shorter samples: of the four documents one, two or three are in each.
        self.train("short", 1, "--model.sequence_length=64", "--train.global_batch=4", "--train.uneven_batches=true",
                   "--parallel.data=2", "--ranks", 2)

    def test_a_tuned_model_answers_and_stops(self):
        self.prepare_chat()
        self.train("run", 20, "--ranks", 2, "--parallel.tensor=2")
        self.succeed("checkpoint", "export", "run", "--output", "tuned")
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / "tuned").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / "tuned")
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Is it?"}], add_generation_prompt=True,
                                               return_tensors="pt", return_dict=True)
        said = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1]:]
        self.assertEqual(tokenizer.decode(said), ANSWER + END)

    def ask(self, process, body):
        lines = [process.stdout.readline() for _ in range(4)]
        connection = http.client.HTTPConnection("127.0.0.1", int(re.search(r":(\d+)/", lines[1]).group(1)), timeout=TIMEOUT)
        self.addCleanup(connection.close)

        def post(path="/v1/chat/completions", **more):
            connection.request("POST", path, json.dumps({**body, **more}), {"Authorization": f"Bearer {lines[2].split()[1]}"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        return post

    def test_a_tuned_model_is_asked_over_http(self):
        self.prepare_chat()
        self.train("run", 20)
        messages = [{"role": "user", "content": "Is it?"}]
        prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        for layout in ([], ["--ranks", 2, "--parallel.pipeline=2"], ["--ranks", 2]):
            process = self.start("serve", "run", "--port", 0, *layout)
            post = self.ask(process, {"messages": messages, "temperature": 0})
            status, text = post()
            self.assertEqual(status, 200, text)
            whole = json.loads(text)
            self.assertEqual(whole["object"], "chat.completion")
            choice, = whole["choices"]
            self.assertEqual((choice["message"], choice["finish_reason"]), ({"role": "assistant", "content": ANSWER}, "stop"))
            self.assertEqual(whole["usage"]["prompt_tokens"], len(prompt))
            _, text = post(stream=True, stream_options={"include_usage": True})
            lines = [line.removeprefix("data: ") for line in text.split("\n\n")]
            self.assertEqual(lines[-2:], ["[DONE]", ""])
            events = [json.loads(line) for line in lines[:-2]]
            self.assertEqual({event["object"] for event in events}, {"chat.completion.chunk"})
            self.assertEqual(events.pop()["usage"], whole["usage"])
            deltas = [event["choices"][0]["delta"] for event in events]
            self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
            self.assertEqual("".join(delta.get("content", "") for delta in deltas), ANSWER)
            self.assertEqual([event["choices"][0]["finish_reason"] for event in events],
                             [None] * (len(events) - 1) + ["stop"])
            self.assertEqual(json.loads(post(max_completion_tokens=2)[1])["choices"][0]["finish_reason"], "length")
            for more, part in (({"messages": []}, "messages"), ({"messages": [{"content": "a"}]}, "role"),
                               ({"logprobs": True}, "logprobs"), ({"echo": True}, "echo"),
                               ({"messages": [{"role": "user", "content": "Is it? " * 200}]}, "256")):
                status, text = post(**more)
                self.assertEqual(status, 400, text)
                self.assertIn(part, json.loads(text)["error"]["message"])
            process.terminate()
            self.assertEqual((process.communicate(timeout=TIMEOUT)[1], process.returncode), ("", 0))

    def test_a_resumed_run_has_the_same_bits_and_another_layout_the_same_samples(self):
        self.write(CONVERSATIONS * 5)
        self.prepare_chat()
        options = ["--model.sequence_length=64", "--train.global_batch=2", "--optimizer.schedule=constant"]
        self.train("whole", 6, *options)
        for folder, layout in (("halves", []), ("other", ["--ranks", 2])):
            self.train(folder, 3, *options)
            self.train(folder, 6, *options, *layout)
        self.assertEqual(self.curve("halves"), self.curve("whole"))
        for whole, other in zip(self.metrics("whole"), self.metrics("other"), strict=True):
            self.assertAlmostEqual(other["loss"], whole["loss"], delta=1e-4 * whole["loss"])

    def test_a_model_from_nothing_gets_the_template_of_its_data(self):
        self.prepare_chat("--chat-template", "plain.jinja")
        (self.folder / "tiny.toml").write_text(CONFIG.replace("data/tiny", "data/chat"))
        self.succeed("train", "tiny.toml", "--train.steps=1", "--data.packing=whole", "--train.global_batch=4")
        self.succeed("checkpoint", "export", "run", "--output", "new")
        loaded = transformers.AutoTokenizer.from_pretrained(self.folder / "new")
        self.assertEqual((loaded.chat_template, loaded.eos_token), (PLAIN, END))
        messages = CONVERSATIONS[0]["messages"]
        self.assertEqual(loaded.apply_chat_template(messages, tokenize=False),
                         self.tokenizer.apply_chat_template(messages, tokenize=False))

    def test_evaluates_conversations_set_aside(self):
        self.write(CONVERSATIONS * 5)
        self.prepare_chat(validation=0.3)
        self.train("run", 4, "--ranks", 2, "--parallel.pipeline=2", "--train.evaluate_interval=2")
        losses = [m["validation_loss"] for m in self.metrics("run") if "validation_loss" in m]
        self.assertGreater(len(losses), 1)
        self.assertLess(losses[-1], losses[0])

    def test_steps_and_layouts_that_cannot_be_are_one_line(self):
        self.write([conversation("How is it? " * 200, ANSWER)])
        self.prepare_chat()
        self.fail_with(2, ["losses sum over 0 terms", "make the global batch larger"], "train", "--init", "hf",
                       "--data.path=data/chat", "--model.sequence_length=16", "--train.global_batch=1",
                       "--train.micro_batch=1", "--train.steps=50")
        (self.folder / "experts.toml").write_text('[model]\nfamily = "mixtral"\nexperts = 4\n[data]\npath = "data/chat"')
        self.fail_with(2, ['data.packing is "whole", and model.balance_loss is 0.01'], "train", "experts.toml",
                       "--data.packing=whole")
        os.remove(self.folder / "data/chat.loss.bin")
        self.fail_with(2, ["data/chat.loss.bin does not exist"], "train", "--init", "hf", "--data.path=data/chat")

    def test_the_commands_of_the_guide_work(self):
        (self.folder / "hf").rename(self.folder / "SmolLM2-Instruct")
        self.write(CONVERSATIONS * 3)
        guide = pathlib.Path(__file__).parents[2] / "docs/guide/chat.md"
        commands = [shlex.split(line)[1:] for line in guide.read_text().splitlines() if line.startswith("    trireme ")]
        self.assertEqual([command[:2] for command in commands],
                         [["data", "prepare"], ["train", "--init"], ["checkpoint", "export"]])
        for command in commands:
            self.succeed(*command)
        loaded = transformers.AutoTokenizer.from_pretrained(self.folder / "tuned")
        self.assertEqual((loaded.eos_token, loaded.chat_template), (END, MARKED))

    def test_the_guide_to_fine_tuning_ends_in_a_model_that_answers(self):
        # A model that has learnt to answer: adapters of a random one would not.
        self.prepare_chat()
        self.train("base", 20)
        self.succeed("checkpoint", "export", "base", "--output", "llama-chat")
        self.write(CONVERSATIONS * 5)
        guide = (pathlib.Path(__file__).parents[2] / "docs/guide/fine-tune.md").read_text()
        commands = [shlex.split(line)[1:] for line in guide.splitlines() if line.startswith("    trireme ")]
        self.assertEqual(len(commands), 9)
        for command in commands:
            self.succeed(*command)
        script = guide.split("```python\n")[1].split("```")[0]
        said = subprocess.run([sys.executable, "-c", script], cwd=self.folder, capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout, ANSWER + END + "\n")

    def test_what_cannot_be_used_is_one_line(self):
        def fails(line, *expected, options=()):
            self.write([CONVERSATIONS[0], line])
            self.fail_with(2, expected, "data", "prepare", "--format", "chat", "--input", "chat.jsonl",
                           "--tokenizer-model", "hf", "--output", "data/bad", *options)
            self.assertEqual(list((self.folder / "data").glob("bad*")), [])

        (self.folder / "data").mkdir()
        fails("{", "chat.jsonl:2: the text is not valid JSON")
        fails({"text": "x"}, 'chat.jsonl:2 has no "messages" but "text"')
        fails({"messages": [{"role": "wizard", "content": "x"}]}, 'chat.jsonl:2: message 0 has the role "wizard"')
        fails({"messages": []}, 'chat.jsonl:2: "messages" has 0 messages')
        fails('{"messages": [{"role": "user", "content": "' + "x" * 2**24 + '"}]}', "chat.jsonl:2 has more than")
        fails(CONVERSATIONS[1], "--min-count is not an option of --format chat", options=["--min-count", 3])
        fails(CONVERSATIONS[1], "--glob is not an option of --format chat", options=["--glob", "*"])
        self.fail_with(2, ["--chat-template is not an option of --format tokens"], "data", "prepare", "--input",
                       "chat.jsonl", "--chat-template", "plain.jinja", "--output", "data/bad")


if __name__ == "__main__":
    unittest.main(verbosity=2)
