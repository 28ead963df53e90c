"""Classification of texts: from labelled rows to a BERT that transformers loads, and what is refused."""
import json
import os
import pathlib
import shlex
import shutil
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from program import CLUSTER, ProgramTest

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
LENGTH, STEPS, RATE, DECAY, BETAS, CLIP = 16, 50, 5e-4, 0.1, (0.9, 0.95), 1.0
# Each step rounds its gradients by some 1e-7 of themselves, and AdamW turns that into as much of an update.
TOLERANCE = 1e-5
# The third is longer than a sequence.
ROWS = [{"text": text, "label": label} for text, label in (
    ("It is fine.", "good"), ("It is bad.", "bad"), ("The weather is fine, and you are fine, and all is fine.", "good"),
    ("No.", "bad"), ("How is it?", "open"), ("Is it bad, then?", "open"), ("Fine weather.", "good"), ("Bad weather!", "bad"))]
CLASSES = ["bad", "good", "open"]
LAYOUTS = {
    "data": (2, []), "zero 3": (2, ["--parallel.zero=3"]),
    "tensor": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline": (2, ["--parallel.pipeline=2"]), "context": (2, ["--parallel.context=2"]),
}


def randomised(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn_like(tensor)
            tensor.copy_(tensor + 0.1 * noise if "LayerNorm" in name else 0.15 * noise)
    return model.eval()


class ClassifierTest(ProgramTest):
    """Each test has the folder of a classifier, hf/, with a tokenizer, and rows.jsonl."""
    def prepare(self):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator([row["text"] for row in ROWS], trainers.BpeTrainer(
            vocab_size=300, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[MASK]"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
        tokenizer.save(str(self.folder / "tokenizer.json"))
        self.vocabulary = tokenizer.get_vocab_size()
        self.model = self.save("hf")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / "hf")
        self.write(ROWS)

    def save(self, folder, architecture="BertForSequenceClassification", classes=CLASSES):
        config = transformers.BertConfig(
            vocab_size=self.vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=LENGTH, layer_norm_eps=1e-4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            pad_token_id=0, id2label=dict(enumerate(classes)), label2id={name: i for i, name in enumerate(classes)})
        model = randomised(getattr(transformers, architecture)._from_config(config, attn_implementation="eager"))
        model.save_pretrained(self.folder / folder)
        shutil.copy(self.folder / "tokenizer.json", self.folder / folder)
        (self.folder / folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}))
        return model

    def write(self, rows):
        text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        (self.folder / "rows.jsonl").write_text(text)

    def prepare_rows(self, rows=ROWS, *options, validation=0, output="data/rows"):
        self.write(rows)
        return self.succeed("data", "prepare", "--format", "labelled", "--input", "rows.jsonl", "--tokenizer-model", "hf",
                            "--validation-fraction", validation, "--output", output, *options)

    def command(self, run, steps, *options, init="hf"):
        return ["train", "--init", init, f"--output.folder={run}", "--data.path=data/rows", "--objective.name=classify",
                f"--train.steps={steps}", "--train.global_batch=8", "--train.micro_batch=4",
                "--optimizer.schedule=constant", "--optimizer.warmup_steps=0", f"--optimizer.learning_rate={RATE}",
                f"--optimizer.weight_decay={DECAY}", f"--optimizer.beta2={BETAS[1]}", f"--train.gradient_clip={CLIP}", *options]

    def train(self, run, steps, *options, **named):
        return self.succeed(*self.command(run, steps, *options, **named))

    def batch(self, rows=ROWS):
        encoded = self.tokenizer([row["text"] for row in rows], padding="max_length", truncation=True, max_length=LENGTH,
                                 return_tensors="pt", return_token_type_ids=False)
        return encoded, torch.tensor([CLASSES.index(row["label"]) for row in rows])

    def stored(self, name):
        numbers = numpy.fromfile(self.folder / f"data/{name}.bin", dtype=numpy.uint16)
        index = (self.folder / f"data/{name}.idx").read_bytes()
        lengths = numpy.frombuffer(index, numpy.int32, int.from_bytes(index[18:26], "little"), 34)
        return [part.tolist() for part in numpy.split(numbers, numpy.cumsum(lengths)[:-1])]


class Preparation(ClassifierTest):
    def test_the_files_have_the_tokens_of_transformers_and_the_labels(self):
        report = json.loads(self.prepare_rows(ROWS, "--json"))
        self.assertEqual(self.stored("rows"), [self.tokenizer(row["text"])["input_ids"] for row in ROWS])
        self.assertEqual(self.stored("rows.label"), [[CLASSES.index(row["label"])] for row in ROWS])
        self.assertEqual((report["classes"], report["texts"], report["validation_texts"]), (CLASSES, 8, 0))
        self.assertEqual(json.loads((self.folder / "data/rows.classes.json").read_text()), {"classes": CLASSES})
        self.prepare_rows(ROWS * 4, validation=0.2)
        texts = self.stored("rows") + self.stored("rows.validation")
        self.assertEqual(sorted(texts), sorted(4 * [self.tokenizer(row["text"])["input_ids"] for row in ROWS]))
        # Text in its place has no labels.
        self.succeed("data", "prepare", "--input", "rows.jsonl", "--as-text", "--output", "data/rows")
        self.assertEqual([path.name for path in (self.folder / "data").glob("*label*")], [])
        self.assertFalse((self.folder / "data/rows.classes.json").exists())

    def test_rows_that_cannot_be_used_are_one_line(self):
        def fails(rows, *expected):
            self.write(rows)
            self.fail_with(2, ["rows.jsonl", *expected], "data", "prepare", "--format", "labelled", "--input", "rows.jsonl",
                           "--tokenizer-model", "hf", "--validation-fraction", 0.3, "--output", "data/bad")
            self.assertEqual(list((self.folder / "data").glob("bad*")), [])

        (self.folder / "data").mkdir()
        fails([*ROWS, "{"], "rows.jsonl:9", "not valid JSON")
        fails([*ROWS, {"text": "x"}], "rows.jsonl:9", "label")
        fails([*ROWS, {"label": "x"}], "rows.jsonl:9", "text")
        fails([*ROWS, {**ROWS[0], "text_pair": "x"}], "rows.jsonl:9", "text_pair")
        fails([ROWS[0]] * 4, "the number of classes is 1")
        # Each row has a class of its own, so that some are in validation only.
        fails([{"text": "x", "label": i} for i in range(20)], "which training does not have", "leave the line out")
        self.fail_with(2, ["no tokenizer", "--tokenizer-model"], "data", "prepare", "--format", "labelled", "--input",
                       "rows.jsonl", "--output", "data/bad")
        self.fail_with(2, ["--chat-template"], "data", "prepare", "--format", "labelled", "--input", "rows.jsonl",
                       "--chat-template", "x", "--output", "data/bad")


class Training(ClassifierTest):
    def test_fifty_steps_have_the_losses_of_transformers(self):
        self.prepare_rows()
        output = self.train("run", STEPS)
        self.assertIn("1 of 8 texts cut to fit", output)
        model = self.model.train()
        decayed, others = ([p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False))
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}],
                                      lr=RATE, betas=BETAS, eps=1e-8)
        texts, labels = self.batch()
        model.get_input_embeddings().padding_idx = None
        largest = 0
        for line in self.metrics():
            result = model(**texts, labels=labels)
            loss = result.loss.item()
            largest = max(largest, abs(line["loss"] - loss) / loss)
            self.assertEqual(line["accuracy"], (result.logits.argmax(1) == labels).double().mean().item())
            optimizer.zero_grad()
            result.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
        print(f"largest relative difference of {STEPS} losses: {largest:.2e}", flush=True)
        self.assertEqual(len(self.metrics()), STEPS)
        self.assertLess(largest, TOLERANCE)
        self.assertLess(self.metrics()[-1]["loss"], 0.5 * self.metrics()[0]["loss"])

    def test_layouts_have_one_curve(self):
        self.prepare_rows(ROWS * 3, validation=0.2)
        options = ["--train.precision=fp64", "--model.dropout=0.1", "--train.evaluate_interval=3"]
        self.train("one", 3, *options)
        for name, (ranks, own) in LAYOUTS.items():
            with self.subTest(layout=name):
                self.train(name, 3, *options, "--ranks", ranks, *own)
                for line, expected in zip(self.metrics(name), self.metrics("one"), strict=True):
                    for key in ("loss", "grad_norm", "accuracy"):
                        self.assertAlmostEqual(line[key], expected[key], delta=1e-10 * expected["grad_norm"])
                last, expected = self.metrics(name)[-1], self.metrics("one")[-1]
                self.assertAlmostEqual(last["validation_loss"], expected["validation_loss"], delta=1e-10)
                self.assertEqual(last["validation_accuracy"], expected["validation_accuracy"])

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        self.prepare_rows()
        options = ["--ranks", 2, "--checkpoint.interval=3", "--model.dropout=0.1", "--lora.rank=4", "--lora.alpha=8"]
        self.train("whole", 40, *options)
        process = self.start(*self.command("run", 40, *options))
        self.await_step(8, process)
        process.kill()
        process.communicate()
        self.train("run", 40, *options)
        self.assertEqual(self.curve("run"), self.curve("whole"))
        # Other labels of the same texts are other data.
        self.prepare_rows([{**row, "label": CLASSES[i % 3]} for i, row in enumerate(ROWS)])
        self.fail_with(2, ["labels"], *self.command("run", 50, *options))


class Weights(ClassifierTest):
    def logits(self, folder):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(self.folder / folder)
        with torch.no_grad():
            return model.eval()(**self.batch()[0]).logits, model.config

    def test_files_keep_their_bits_and_their_classes(self):
        self.succeed("checkpoint", "import", "hf", "--output", "imported")
        self.succeed("checkpoint", "export", "imported", "--output", "exported")
        one, other = (load_file(self.folder / folder / "model.safetensors") for folder in ("hf", "exported"))
        self.assertEqual(set(one), set(other))
        for name, tensor in one.items():
            self.assertTrue(torch.equal(tensor, other[name]), name)
        logits, config = self.logits("exported")
        self.assertTrue(torch.equal(logits, self.logits("hf")[0]))
        self.assertEqual([config.id2label[i] for i in range(3)], CLASSES)
        self.assertEqual(config.architectures, ["BertForSequenceClassification"])

    def test_a_trained_run_goes_out_with_its_classes_and_its_loss(self):
        self.save("plain", architecture="BertForMaskedLM")
        self.prepare_rows(ROWS * 3, validation=0.2)
        self.train("run", 30, "--train.evaluate_interval=30", init="plain")
        report = self.succeed("checkpoint", "export", "run", "--output", "exported")
        self.assertIn("BertForSequenceClassification", report)
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
            self.folder / "exported", output_loading_info=True)
        self.assertFalse(any(info.values()), info)
        self.assertEqual([model.config.id2label[i] for i in range(3)], CLASSES)
        self.assertEqual(model.config.label2id, {name: i for i, name in enumerate(CLASSES)})
        tokens, labels = self.stored("rows.validation"), self.stored("rows.validation.label")
        losses, right = [], 0
        with torch.no_grad():
            for text, [label] in zip(tokens, labels, strict=True):
                text = text if len(text) <= LENGTH else [*text[:LENGTH - 1], text[-1]]
                logits = model.eval()(torch.tensor([text])).logits.double()
                losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor([label])).item())
                right += logits.argmax().item() == label
        last = self.metrics()[-1]
        self.assertAlmostEqual(last["validation_loss"], sum(losses) / len(losses), delta=1e-5)
        self.assertEqual(last["validation_accuracy"], right / len(losses))

    def test_a_pretrained_model_gets_a_new_head_and_says_so(self):
        self.prepare_rows()
        for architecture, new in (("BertForMaskedLM", 4), ("BertForPreTraining", 2), ("BertModel", 2)):
            with self.subTest(architecture=architecture):
                self.save(architecture, architecture=architecture)
                output = self.train(f"of {architecture}", 1, init=architecture)
                [line] = [line for line in output.splitlines() if "new, with the values of a new run" in line]
                self.assertIn("classifier.weight", line)
                self.assertEqual("bert.pooler.dense.weight" in line, new == 4)
        # Its own run likewise.
        self.succeed("checkpoint", "import", "BertForMaskedLM", "--output", "imported")
        output = self.succeed("train", "imported/config.toml", *self.command("of the run", 1, init="imported")[1:],
                              "--data.masked_share=0")
        self.assertIn("new, with the values of a new run", output)
        self.assertEqual([line["loss"] for line in self.metrics("of the run")],
                         [line["loss"] for line in self.metrics("of BertForMaskedLM")])
        self.assertNotIn("new, with", self.train("of hf", 1))

    def test_adapters_leave_the_head_trained(self):
        self.prepare_rows()
        self.train("run", 5, "--lora.rank=4")
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        before, after = (load_file(self.folder / folder / "model.safetensors") for folder in ("hf", "exported"))
        for name, tensor in before.items():
            is_trained = "pooler" in name or "classifier" in name or (name.endswith(".weight") and "layer." in name
                                                                      and "LayerNorm" not in name)
            self.assertEqual(torch.equal(tensor, after[name]), not is_trained, name)
        # As peft reads them beside the model.
        self.succeed("checkpoint", "export", "run", "--output", "adapters", "--format", "peft")
        model = peft.PeftModel.from_pretrained(
            transformers.AutoModelForSequenceClassification.from_pretrained(self.folder / "hf"), self.folder / "adapters")
        with torch.no_grad():
            torch.testing.assert_close(model.eval()(**self.batch()[0]).logits, self.logits("exported")[0])


class Predictions(ClassifierTest):
    def predict(self, *arguments):
        return [json.loads(line) for line in self.succeed("predict", "run", *arguments).splitlines()]

    def test_answers_are_those_of_transformers(self):
        self.prepare_rows(ROWS * 3, validation=0.2)
        self.train("run", 6, "--ranks", 2, "--parallel.tensor=2", "--train.evaluate_interval=6")
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(self.folder / "exported").eval()
        with torch.no_grad():
            expected = model(**self.batch()[0]).logits.double().softmax(1)
        self.write([*ROWS[:4], "", *({"text": row["text"]} for row in ROWS[4:])])
        shutil.rmtree(self.folder / "data")  # tokenizer and classes are in the run's folder
        answers = self.predict("rows.jsonl", "--top", 0, "--batch", 3)
        self.assertEqual([answer["row"] for answer in answers], [1, 2, 3, 4, 6, 7, 8, 9])
        (self.folder / "lines.txt").write_text("".join(row["text"] + "\n" for row in ROWS))
        for answer, line, row in zip(answers, self.predict("lines.txt", "--top", 0), expected.tolist(), strict=True):
            self.assertEqual(answer["class"], CLASSES[max(range(3), key=row.__getitem__)])
            for each in answer["top"]:
                self.assertAlmostEqual(each["probability"], row[CLASSES.index(each["class"])], delta=TOLERANCE)
            self.assertEqual(line["class"], answer["class"])
            self.assertAlmostEqual(line["probability"], answer["probability"], places=6)
        one = self.predict("rows.jsonl", "--top", 0, "--batch", 3, "--threads", 1)
        for layout in ([], ["--parallel.pipeline=2"], ["--parallel.zero=3"]):
            self.assertEqual(self.predict("rows.jsonl", "--top", 0, "--batch", 3, "--threads", 1, "--ranks", 2, *layout), one)
        split = self.predict("rows.jsonl", "--ranks", 2, "--parallel.tensor=2")
        for answer, alone in zip(split, one, strict=True):
            self.assertEqual((answer["row"], answer["class"]), (alone["row"], alone["class"]))
            self.assertAlmostEqual(answer["probability"], alone["probability"], delta=TOLERANCE)
        card = (self.folder / "exported/README.md").read_text()
        self.assertIn("pipeline_tag: text-classification", card)
        self.assertIn("validation_accuracy", card)

    def test_wrong_rows_cost_one_line(self):
        self.prepare_rows()
        self.train("run", 1)
        for rows, words in [([*ROWS, "{"], ["rows.jsonl:9", "not valid JSON"]), ([{"label": "x"}], ["rows.jsonl:1", "text"]),
                            ([{**ROWS[0], "text_pair": "x"}], ["rows.jsonl:1", "text_pair"]), (["", " "], ["no rows"])]:
            self.write(rows)
            self.fail_with(2, words, "predict", "run", "rows.jsonl")
        (self.folder / "run/classes.json").unlink()
        self.fail_with(2, ["classes.json"], "predict", "run", "rows.jsonl")


class Refusals(ClassifierTest):
    def test_what_does_not_fit_is_one_line(self):
        self.prepare_rows()
        command = self.command("bad", 2)
        for option, *expected in [
                ("--model.family=llama", "model.classes is 3", 'model.family "llama"'),
                ("--data.masked_share=0.15", "data.masked_share is 0.15", "hides no tokens"),
                ("--data.packing=whole", 'data.packing is "whole"', "classify"),
                ("--model.classes=2", "model.classes is 2", "has 3"),
                ("--objective.beta=0.2", "objective.beta is set"),
                ("--objective.name=next_token", "masked_share is 0")]:
            with self.subTest(option=option):
                self.fail_with(2, expected, *command, option)
        (self.folder / "llama.toml").write_text('[data]\npath = "data/rows"\n[objective]\nname = "classify"\n')
        self.fail_with(2, ['objective.name is "classify"', 'model.family "llama"'], "train", "llama.toml")
        self.fail_with(2, ["model.classes is 3", 'model.family "llama"'], "train", "llama.toml", "--model.classes=3")
        self.fail_with(2, ["data/rows.idx has labels", 'set it to "classify"'], "train", "--init", "hf", "--data.path=data/rows",
                       "--objective.name=next_token", "--model.classes=0", "--data.masked_share=0.15", "--data.mask_token=3")
        self.succeed("data", "prepare", "--input", "rows.jsonl", "--as-text", "--tokenizer", "json", "--tokenizer-model",
                     "tokenizer.json", "--end-of-document", "[SEP]", "--output", "data/text")
        self.fail_with(2, ["data/text.classes.json does not exist", "--format labelled"], *command, "--data.path=data/text")

    def test_a_plan_needs_the_number_of_classes(self):
        (self.folder / "cluster.toml").write_text(CLUSTER)
        (self.folder / "bert.toml").write_text('[model]\nfamily = "bert"\nvocab_size = 300\n[data]\npath = "data/rows"\n'
                                               '[objective]\nname = "classify"\n')
        command = ["simulate", "bert.toml", "cluster.toml"]
        self.fail_with(2, ["model.classes is 0", "set model.classes"], *command)
        self.assertIn("2 classes", self.succeed(*command, "--model.classes=2"))
        self.prepare_rows()
        self.assertIn("3 classes", self.succeed(*command))

    def test_other_classes_than_the_models_are_one_line(self):
        self.prepare_rows([*ROWS, {"text": "x", "label": "zero"}])
        self.fail_with(2, ["model.classes is 3", "data/rows.classes.json has 4"], *self.command("bad", 2))
        self.fail_with(2, ["model.classes is 4", "id2label", "it is 3"], *self.command("bad", 2, "--model.classes=0"))
        self.prepare_rows([{**row, "label": f"my {row['label']}"} for row in ROWS])
        self.fail_with(2, ['class 0 of the data is "my bad"', '"bad"'], *self.command("bad", 2))
        # Numbers are those of the model.
        self.prepare_rows([{**row, "label": CLASSES.index(row["label"])} for row in ROWS])
        self.train("run", 1)
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        names = json.loads((self.folder / "exported/config.json").read_text())["id2label"]
        self.assertEqual(names, {str(i): name for i, name in enumerate(CLASSES)})


class Guide(ClassifierTest):
    def test_its_commands_work(self):
        self.save("bert", architecture="BertForMaskedLM")
        self.write(ROWS * 8)
        (self.folder / "rows.jsonl").rename(self.folder / "reviews.jsonl")
        guide = (pathlib.Path(__file__).parents[2] / "docs/guide/classification.md").read_text()
        commands = [shlex.split(line)[1:] for line in guide.splitlines() if line.startswith("    trireme ")]
        self.assertEqual([command[0] for command in commands], ["data", "train", "checkpoint"])
        for command in commands:
            self.succeed(*command)
        transformers.AutoModelForSequenceClassification.from_pretrained(self.folder / "classifier")


if __name__ == "__main__":
    unittest.main(verbosity=2)
