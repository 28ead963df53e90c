"""Exported image classifiers and recommendation models: transformers and timm compute the program's answers."""
import json
import os
import re
import sys
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
# Before the import of timm: transformers would take the parts of torchvision for the whole.
from transformers import ResNetForImageClassification, ViTForImageClassification

from predictions import CLICKS, VISION, PredictTest, write_images

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import torchvision_parts  # noqa: E402

torchvision_parts.use("torchvision")
import timm  # noqa: E402
import torchvision.models.resnet  # noqa: E402

transformers.utils.logging.disable_progress_bar()
USER = 2
TOLERANCE = 1e-5  # of logits, in fp32
SIZE = 16
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pixels(paths):
    """What evaluation makes of images that have the model's size."""
    images = numpy.stack([numpy.asarray(Image.open(path).convert("RGB")) for path in paths])
    scaled = torch.from_numpy(images.copy()).permute(0, 3, 1, 2).float() / 255
    return (scaled - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)


class Exports(PredictTest):
    def prepare(self):
        write_images(self.folder / "images/train", 8, SIZE)
        write_images(self.folder / "images/validation", 3, SIZE, seed=2)
        (self.folder / "vision.toml").write_text(VISION)

    def train(self, run, *options):
        self.succeed("train", "vision.toml", f"--output.folder={run}", "--train.evaluate_sequences=9", *options)
        answers = self.predict(run, "images/validation", "--top", 0)
        self.classes = json.loads((self.folder / run / "images.json").read_text())["classes"]
        self.inputs = pixels([self.folder / answer["path"] for answer in answers])
        by_name = [{each["class"]: each["probability"] for each in answer["top"]} for answer in answers]
        self.log_p = torch.tensor([[each[name] for name in self.classes] for each in by_name]).log()

    def assert_logits(self, logits):
        """Logits are known up to a constant of each row."""
        self.assertLess((torch.log_softmax(logits.double(), 1) - self.log_p).abs().max().item(), TOLERANCE)

    def export(self, run, output, *options):
        return json.loads(self.succeed("checkpoint", "export", run, "--output", output, "--json", *options))

    def load_hugging_face(self, output, architecture):
        model, info = architecture.from_pretrained(self.folder / output, output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse([key for key in info[kind] if "num_batches_tracked" not in key], kind)
        return model.eval()

    def card_code(self, output):
        card = (self.folder / output / "README.md").read_text()
        code = re.search(r"```python\n(.*?)```", card, re.DOTALL).group(1)
        return card, code.replace("FOLDER", str(self.folder / output))

    def run_card(self, output):
        """The model that the card's own code loads."""
        names = {}
        exec(self.card_code(output)[1], names)
        return names

    def test_a_vit_in_transformers_and_timm(self):
        self.train("run", "--ranks", 2, "--parallel.tensor=2")
        report = self.export("run", "hf", "--license", "apache-2.0")
        self.assertEqual((report["format"], report["architecture"]), ("hf", "ViTForImageClassification"))
        model = self.load_hugging_face("hf", ViTForImageClassification)
        self.assertEqual(report["parameters"], sum(p.numel() for p in model.parameters()))
        with torch.no_grad():
            self.assert_logits(model(self.inputs).logits)
        self.assertEqual(model.config.id2label, dict(enumerate(self.classes)))
        processor = json.loads((self.folder / "hf/preprocessor_config.json").read_text())
        self.assertEqual((tuple(processor["image_mean"]), tuple(processor["image_std"])), (MEAN, DEVIATION))
        self.assertEqual(processor["size"], {"height": SIZE, "width": SIZE})
        card, _ = self.card_code("hf")
        for words in ("license: apache-2.0", "library_name: transformers", "| step | 12 |", "validation_accuracy",
                      f"| parameters | {report['parameters']} |", "training data"):
            self.assertIn(words, card)
        report = self.export("run", "timm", "--format", "timm")
        with torch.no_grad():
            self.assert_logits(self.run_card("timm")["model"](self.inputs))
        cfg = timm.create_model(f"local-dir:{self.folder / 'timm'}", pretrained=True).pretrained_cfg
        self.assertEqual((tuple(cfg["mean"]), cfg["input_size"], cfg["label_names"]), (MEAN, (3, SIZE, SIZE), self.classes))

    def test_an_epsilon_that_timm_has_needs_no_argument(self):
        self.train("run", "--model.norm_epsilon=1e-6")
        self.export("run", "timm", "--format", "timm")
        self.assertNotIn("norm_layer", self.card_code("timm")[1])
        model = timm.create_model(f"local-dir:{self.folder / 'timm'}", pretrained=True).eval()
        with torch.no_grad():
            self.assert_logits(model(self.inputs))

    def test_a_resnet_in_transformers_timm_and_torchvision(self):
        options = ["--train.steps=2", "--checkpoint.interval=2", "--train.evaluate_interval=0"]
        for family in ("resnet18", "resnet50"):
            with self.subTest(family=family):
                self.train(family, f"--model.family={family}", "--ranks", 2, *options)
                self.export(family, f"{family}-hf")
                model = self.load_hugging_face(f"{family}-hf", ResNetForImageClassification)
                with torch.no_grad():
                    self.assert_logits(model(self.inputs).logits)
                self.export(family, f"{family}-timm", "--format", "timm")
                with torch.no_grad():
                    self.assert_logits(self.run_card(f"{family}-timm")["model"](self.inputs))
                self.export(family, f"{family}-plain", "--format", "safetensors")
                model = getattr(torchvision.models.resnet, family)(num_classes=3).eval()
                missing = model.load_state_dict(load_file(self.folder / f"{family}-plain/model.safetensors"), strict=False)
                self.assertTrue(all(name.endswith("num_batches_tracked") for name in missing.missing_keys))
                self.assertFalse(missing.unexpected_keys)
                with torch.no_grad():
                    self.assert_logits(model(self.inputs))

    def test_the_average_has_the_running_statistics_of_the_last_step(self):
        self.train("run", "--model.family=resnet18", "--train.steps=3", "--average.decay=0.5", "--checkpoint.interval=3",
                   "--train.evaluate_interval=0")
        self.export("run", "last", "--format", "safetensors")
        self.export("run", "average", "--format", "safetensors", "--average")
        last, average = (load_file(self.folder / name / "model.safetensors") for name in ("last", "average"))
        self.assertEqual(set(last), set(average))
        self.assertTrue(torch.equal(last["bn1.running_var"], average["bn1.running_var"]))
        self.assertFalse(torch.equal(last["conv1.weight"], average["conv1.weight"]))
        self.assertIn("moving average", self.card_code("average")[0])

    def test_what_other_programs_lack_costs_one_line(self):
        self.train("run", "--model.family=resnet18", "--model.stem=small", "--train.steps=1", "--checkpoint.interval=1",
                   "--train.evaluate_interval=0")
        command = ["checkpoint", "export", "run", "--output", "out", "--format"]
        for form in ("hf", "timm"):
            self.fail_with(USER, [form, "model.stem", "safetensors"], *command, form)
        self.fail_with(USER, ["peft", "adapters"], *command, "peft")
        self.fail_with(USER, ["--license", "identifier"], *command, "safetensors", "--license", "my own: one")
        self.assertFalse((self.folder / "out").exists())
        self.succeed(*command, "safetensors")
        config = json.loads((self.folder / "out/config.json").read_text())
        self.assertEqual((config["family"], config["model"]["stem"], config["classes"]), ("resnet18", "small", self.classes))
        code = self.card_code("out")[1]
        self.assertIn("torch.nn.Identity()", code)


class Recommend(PredictTest):
    def prepare(self):
        self.succeed("data", "generate", "--samples", 300, "--scale", 0.0001, "--output", "day_0.tsv")
        (self.folder / "clicks.toml").write_text(CLICKS)

    def train(self, *options):
        self.succeed("train", "clicks.toml", "--ranks", 2, "--train.steps=3", "--checkpoint.interval=3",
                     "--train.evaluate_interval=0", *options)

    def export(self, *options):
        self.succeed("checkpoint", "export", "run", "--output", "out", *options)
        return load_file(self.folder / "out/model.safetensors"), json.loads((self.folder / "out/config.json").read_text())

    def test_a_dlrm_computes_the_answers_from_its_parts(self):
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day_0.tsv", "--validation", 0, "--output",
                     "data/clicks")
        self.train()
        weights, config = self.export("--license", "mit")
        self.assertEqual((config["family"], config["width"], config["bottom"], len(config["tables"])), ("dlrm", 8, [16], 26))
        answers = self.predict("run", "day_0.tsv")
        dictionary = (self.folder / "data/clicks/dictionary.txt").read_text().split("\n")
        begin, ids = 0, []
        for table in config["tables"]:
            names = dictionary[begin:begin + table["rows"] - 1]
            begin += table["rows"] - 1
            ids.append({name: row + 1 for row, name in enumerate(names)})
        for line, answer in list(zip((self.folder / "day_0.tsv").read_text().splitlines(), answers, strict=True))[:20]:
            fields = line.split("\t")
            dense = torch.tensor([max(float(x or 0), 0) for x in fields[1:14]]).log1p()
            vectors = [mlp(weights, "bottom", dense, last_relu=True)]
            for table, known, text in zip(config["tables"], ids, fields[14:], strict=True):
                vectors.append(weights[table["name"] + ".weight"][known.get(text, 0)])
            x = torch.stack(vectors)
            pairs = (x @ x.T)[torch.tril_indices(27, 27, -1).unbind()]
            logit = mlp(weights, "top", torch.cat([vectors[0], pairs]), last_relu=False)
            self.assertAlmostEqual(torch.sigmoid(logit.double()).item(), answer["probability"], places=5)
        card = (self.folder / "out/README.md").read_text()
        self.assertIn("license: mit", card)
        self.fail_with(USER, ["hf", "safetensors"], "checkpoint", "export", "run", "--output", "no", "--format", "hf")

    def test_open_tables_come_with_their_ids(self):
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day_0.tsv", "--validation", 0, "--ids", "hash",
                     "--output", "data/clicks")
        self.train("--tables.open=all")
        weights, config = self.export()
        ids = load_file(self.folder / "out/ids.safetensors")
        for table in config["tables"]:
            self.assertTrue(table["open"])
            self.assertEqual(len(ids[table["name"] + ".ids"]), len(weights[table["name"] + ".weight"]))
            self.assertEqual(len(ids[table["name"] + ".ids"]), table["rows"])


def mlp(weights, name, x, last_relu):
    layers = sorted({key.rsplit(".", 1)[0] for key in weights if key.startswith(name + ".")},
                    key=lambda layer: int(layer.rsplit(".", 1)[1]))
    for layer in layers:
        x = weights[layer + ".weight"] @ x + weights[layer + ".bias"]
        if last_relu or layer != layers[-1]:
            x = torch.relu(x)
    return x


if __name__ == "__main__":
    unittest.main()
