"""Runs that begin with image classifiers of torchvision, timm and transformers compute what these compute."""
import json
import os
import sys
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
# Before the import of timm: transformers would take the parts of torchvision for the whole.
from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

from export_images_test import DEVIATION, MEAN, TOLERANCE
from predictions import VISION, PredictTest, write_images

import timm  # of the parts that export_images_test brings
import torchvision.models.resnet

USER, CHECKPOINT = 2, 4
SIZE, PER_CLASS = 16, 8


def pixels(paths):
    """What evaluation makes of images that have the model's size, in fp64."""
    images = numpy.stack([numpy.asarray(Image.open(path).convert("RGB")) for path in paths])
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255
    mean, deviation = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (scaled - mean) / deviation


class Imports(PredictTest):
    def prepare(self):
        write_images(self.folder / "images/train", PER_CLASS, SIZE)
        write_images(self.folder / "images/validation", 3, SIZE, seed=2)
        (self.folder / "vision.toml").write_text(VISION)

    def randomise(self, model):
        """Weights of every size, and statistics that are not those of a new model."""
        torch.manual_seed(1)
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                if name.endswith("running_mean"):
                    tensor.normal_()
                elif name.endswith("running_var") or tensor.dim() == 1:
                    tensor.uniform_(0.5, 1.5)
        return self.with_wide_answers(model)

    def with_wide_answers(self, model):
        """A new head gives almost the same answer to every image; statistics move its answers as a whole."""
        images = pixels(sorted((self.folder / "images/train").glob("*/*.png"))).float()
        head = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
        logits_of = self.logits_of(model)
        with torch.no_grad():
            for _ in range(20):
                logits_of(images, training=True)
            logits = logits_of(images, training=False)
            head.weight /= logits.std(0).max()
            head.bias -= logits_of(images, training=False).mean(0)
        return model

    def begin(self, init, run, *options, ranks=1):
        """A step on all images that changes no weight."""
        return self.succeed("train", "vision.toml", "--init", init, f"--output.folder={run}", "--ranks", ranks,
                            "--train.steps=1", f"--train.global_batch={3 * PER_CLASS}",
                            f"--train.micro_batch={3 * PER_CLASS // ranks}", "--optimizer.learning_rate=0",
                            "--train.evaluate_interval=0", "--checkpoint.interval=1", "--train.precision=fp64", *options)

    def assert_same(self, run, model, num_classes=3):
        """The answers of a run after that step are those of the model after one forward in training."""
        answers = self.predict(run, "images/validation", "--top", 0)
        model.double()
        logits_of = self.logits_of(model)
        with torch.no_grad():
            logits_of(pixels(sorted((self.folder / "images/train").glob("*/*.png"))), training=True)
            logits = logits_of(pixels([self.folder / answer["path"] for answer in answers]), training=False)
        self.assertEqual(logits.shape[1], num_classes)
        classes = json.loads((self.folder / run / "images.json").read_text())["classes"]
        theirs = torch.softmax(logits.double(), 1)
        for answer, row in zip(answers, theirs, strict=True):
            ours = {each["class"]: each["probability"] for each in answer["top"]}
            for name, probability in zip(classes, row):
                self.assertLess(abs(ours[name] - probability.item()), TOLERANCE)
        self.assertGreater(theirs.std(0).max().item(), 1000 * TOLERANCE)

    def logits_of(self, model):
        def compute(images, training):
            result = model.train(training)(images)
            return getattr(result, "logits", result)
        return compute

    def test_a_state_dict_of_torchvision_is_the_same_model(self):
        for family, ranks in (("resnet18", 2), ("resnet50", 1)):
            with self.subTest(family=family):
                model = self.randomise(getattr(torchvision.models.resnet, family)(num_classes=3))
                torch.save(model.state_dict(), self.folder / f"{family}.pth")
                self.begin(f"{family}.pth", family, ranks=ranks)
                self.assert_same(family, model)
        folder = self.folder / "plain"
        folder.mkdir()
        model = self.randomise(torchvision.models.resnet.resnet18(num_classes=3))
        save_file(model.state_dict(), folder / "model.safetensors")
        self.begin("plain", "from-plain")
        self.assert_same("from-plain", model)

    def test_a_checkpoint_of_a_trainer_has_the_model_in_it(self):
        model = self.randomise(torchvision.models.resnet.resnet18(num_classes=3))
        state = {"module." + name: tensor for name, tensor in model.state_dict().items()}
        torch.save({"epoch": 3, "state_dict": state, "optimizer": {"momentum": torch.ones(2)}}, self.folder / "trained.pth")
        self.assertIn('names begin with "state_dict.module."', self.begin("trained.pth", "run"))
        self.assert_same("run", model)

    def test_a_folder_of_timm_is_the_same_model(self):
        for safe in (True, False):
            with self.subTest(safe=safe):
                model = self.randomise(timm.create_model("resnet18", num_classes=3))
                timm.models.save_for_hf(model, self.folder / f"timm-{safe}", safe_serialization=safe)
                self.begin(f"timm-{safe}", f"run-{safe}")
                self.assert_same(f"run-{safe}", model)

    def test_folders_of_transformers_are_the_same_model(self):
        resnet = ResNetConfig(depths=[2, 2, 2, 2], layer_type="basic", hidden_sizes=[64, 128, 256, 512], num_labels=3)
        vit = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=SIZE,
                        patch_size=4, num_labels=3, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        for name, kind, config in (("resnet", ResNetForImageClassification, resnet), ("vit", ViTForImageClassification, vit)):
            with self.subTest(model=name):
                torch.manual_seed(2)
                model = kind(config)
                if name == "resnet":
                    self.randomise(model)
                else:
                    self.with_wide_answers(model)
                model.save_pretrained(self.folder / name)
                self.begin(name, f"{name}-run")
                self.assert_same(f"{name}-run", model)

    def test_an_export_is_read_again(self):
        model = self.randomise(torchvision.models.resnet.resnet18(num_classes=3))
        torch.save(model.state_dict(), self.folder / "first.pth")
        self.begin("first.pth", "first")
        for form in ("hf", "timm", "safetensors"):
            self.succeed("checkpoint", "export", "first", "--output", form, "--format", form)
            self.begin(form, f"from-{form}")
            self.succeed("checkpoint", "export", f"from-{form}", "--output", f"{form}-again", "--format", "safetensors")
        read = [(self.folder / f"{form}-again/model.safetensors").read_bytes() for form in ("hf", "timm", "safetensors")]
        self.assertEqual(read[0], read[1])
        self.assertEqual(read[0], read[2])

    def test_a_new_head_takes_the_place_of_another(self):
        torch.save(torchvision.models.resnet.resnet18(num_classes=7).state_dict(), self.folder / "seven.pth")
        self.begin("seven.pth", "seven")
        answer = self.predict("seven", "images/validation", "--top", 0)[0]
        self.assertEqual(len(answer["top"]), 7)
        head = ["--model.classes=3", "--init.names=conv1.*,bn1.*,layer*", "--init.missing=fc.*"]
        self.begin("seven.pth", "three", *head)
        self.assertEqual(len(self.predict("three", "images/validation", "--top", 0)[0]["top"]), 3)
        self.refuse(CHECKPOINT, ["seven.pth", "with a different shape", "fc.weight"], "seven.pth", "--model.classes=3")

    def refuse(self, code, parts, init, *options):
        self.fail_with(code, parts, "train", "vision.toml", "--init", init, "--output.folder=none", "--train.steps=1", *options)

    def test_what_is_another_model_costs_one_line(self):
        torch.save(torchvision.models.resnet.resnet18(num_classes=3).state_dict(), self.folder / "plain.pth")
        self.refuse(USER, ["model.family is resnet34", "resnet18"], "plain.pth", "--model.family=resnet34")
        self.refuse(USER, ["model.stem is small"], "plain.pth", "--model.stem=small")
        torch.save(torchvision.models.resnet.wide_resnet50_2(num_classes=3).state_dict(), self.folder / "wide.pth")
        self.refuse(CHECKPOINT, ["wide.pth", "resnet50", "different shape", "layer1.0.bn1"], "wide.pth")
        torch.save({"features.0.weight": torch.ones(2)}, self.folder / "other.pth")
        self.refuse(USER, ["other.pth", "no config.json", "layer1.0.conv1.weight"], "other.pth")
        timm.models.save_for_hf(timm.create_model("resnet18d", num_classes=3), self.folder / "resnet18d")
        self.refuse(USER, ["architecture", "resnet18d", "resnet152"], "resnet18d")
        timm.models.save_for_hf(timm.create_model("resnet18", num_classes=3), self.folder / "groups",
                                model_args={"output_stride": 8})
        self.refuse(USER, ["model_args.output_stride", "no such key"], "groups")
        (self.folder / "short.pth").write_bytes((self.folder / "plain.pth").read_bytes()[:5000])
        self.refuse(CHECKPOINT, ["short.pth"], "short.pth")


if __name__ == "__main__":
    unittest.main()
