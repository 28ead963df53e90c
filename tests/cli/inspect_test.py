"""`trireme data inspect`: what token files hold, and what a run reads of each; and images of folders with files beside."""
import json
import re
import unittest

from predictions import CLASSES, VISION, PredictTest, write_images
from program import CONFIG, ProgramTest

USER = 2
SOURCES = "code=data/code:0.7,web=data/web:0.3"


class Inspect(ProgramTest):
    def prepare(self):
        for name, lines in (("code", 400), ("web", 100)):
            (self.folder / name).mkdir()
            for i in range(10):
                (self.folder / name / f"{i}.txt").write_text(f"{name} " * lines)
            self.succeed("data", "prepare", "--input", name, "--tokenizer", "bytes", "--validation-fraction", 0.2,
                         "--output", f"data/{name}")
        config = CONFIG.replace('path = "data/tiny"', f'sources = "{SOURCES}"').replace("steps = 20", "steps = 12")
        (self.folder / "blend.toml").write_text(config)

    def inspect(self, *arguments):
        return json.loads(self.succeed("data", "inspect", *arguments, "--json"))

    def tokens_of(self, prefix):
        return (self.folder / f"data/{prefix}.bin").stat().st_size // 2

    def test_a_prefix_has_documents_and_tokens(self):
        found = self.inspect("data/code")
        self.assertEqual(set(found), {"sources"})
        [source] = found["sources"]
        self.assertEqual((source["path"], source["tokens"], source["validation_tokens"], source["weight"]),
                         ("data/code", self.tokens_of("code"), self.tokens_of("code.validation"), 1))
        self.assertEqual(source["documents"] + source["validation_documents"], 10)
        output = self.succeed("data", "inspect", "data/code")
        self.assertIn(f"source  data/code: {source['documents']} documents, {source['tokens']} tokens; for validation", output)
        used = self.inspect("data/code", "--tokens", 3 * source["tokens"])
        self.assertEqual((used["run_tokens"], used["sources"][0]["epochs"]), (3 * source["tokens"], 3))

    def test_a_list_divides_a_run_by_weights(self):
        found = self.inspect(SOURCES, "--tokens", 10_000)
        self.assertEqual([each["name"] for each in found["sources"]], ["code", "web"])
        for source, weight in zip(found["sources"], (0.7, 0.3)):
            self.assertAlmostEqual(source["weight"], weight)
            self.assertEqual(source["used_tokens"], round(10_000 * weight))
            self.assertAlmostEqual(source["epochs"], 10_000 * weight / self.tokens_of(source["name"]))
        output = self.succeed("data", "inspect", SOURCES)
        self.assertRegex(output, r"(?m)^source  web: \d+ documents, \d+ tokens; .*\n +weight 30 %$")
        self.assertNotIn("epochs", output)

    def test_a_config_and_a_run_say_what_training_says(self):
        found = self.inspect("blend.toml")
        self.assertEqual((found["steps"], found["run_tokens"]), (12, 12 * 16 * 32))
        self.assertEqual(sum(each["used_tokens"] for each in found["sources"]), found["run_tokens"])
        start = self.succeed("train", "blend.toml", "--threads", 1)
        passes = re.findall(r"(?m)^data    \w+: .*, (\S+) passes$", start)
        self.assertEqual([f"{each['epochs']:.2f}" for each in found["sources"]], passes)
        self.assertEqual(self.inspect("run"), found)
        more = self.inspect("blend.toml", "--train.steps=24")
        self.assertEqual((more["steps"], more["run_tokens"]), (24, 2 * found["run_tokens"]))
        other = self.inspect("run", "--tokens", 64_000)
        self.assertEqual((other["run_tokens"], "steps" in other), (64_000, False))

    def test_mistakes_cost_one_line(self):
        (self.folder / "vision.toml").write_text(VISION)
        for words, *arguments in [
                (["data/none.bin", "data prepare"], "data/none"), (["web no weight", ":0.7"], "code=data/code:1,web=data/web"),
                (["web=data/none"], "code=data/code:1,web=data/none:1"), (["data, a folder", "data/code"], "data"),
                (["none.toml"], "none.toml"), (["vision.toml", "task vision", "language"], "vision.toml"),
                (["--train.steps=2", "key of a config"], "data/code", "--train.steps=2"),
                (["--tokens", "at least 1"], "data/code", "--tokens", 0)]:
            with self.subTest(arguments=arguments):
                self.fail_with(USER, words, "data", "inspect", *arguments)


class ImageFolders(PredictTest):
    """Folders of images as people have them."""
    def prepare(self):
        (self.folder / "vision.toml").write_text(VISION.replace("evaluate_sequences = 30", "evaluate_sequences = 6"))

    def add_strays(self, folder):
        for name in (".DS_Store", "blue/Thumbs.db", "blue/.hidden.png", "green/notes.txt"):
            (self.folder / folder / name).write_text("no image")

    def train(self, *options):
        return self.succeed("train", "vision.toml", "--data.path=images", *options)

    def test_classes_alone_are_split_and_strays_are_counted(self):
        write_images(self.folder / "images", 10)
        self.add_strays("images")
        output = self.train("--data.validation_share=0.2")
        self.assertRegex(output, r"data    images, 24 images of 3 x 16 x 16, without 4 files that are not images \(")
        result = json.loads(self.succeed("classify", "--checkpoint", "run", "--json"))
        self.assertEqual((result["images"], result["left_out"]), (6, 4))
        self.assertIn("left out 4 files that are not images", self.succeed("classify", "--checkpoint", "run"))
        answers = self.run_program("predict", "run", "images")
        self.assertEqual(answers.stdout.count("\n"), 30)
        self.assertIn("left out   4 files that are not images", answers.stderr)

    def test_a_folder_for_validation_is_taken_where_there_is_one(self):
        write_images(self.folder / "images", 8)
        write_images(self.folder / "images/val", 2, seed=2)
        self.assertIn("24 images", self.train())
        self.assertEqual(json.loads(self.succeed("classify", "--checkpoint", "run", "--json"))["images"], 6)

    def test_train_alone_is_split_too(self):
        write_images(self.folder / "images/train", 10)
        self.assertIn("24 images", self.train("--data.validation_share=0.2"))
        self.assertIn("30 images", self.train("--data.validation_share=0", "--train.evaluate_interval=0",
                                              "--output.folder=all"))

    def test_a_folder_without_images_is_refused(self):
        for name in CLASSES:
            (self.folder / "images" / name).mkdir(parents=True)
        self.fail_with(USER, ["images", "no images of a known format"], "train", "vision.toml")
        (self.folder / "images" / CLASSES[0] / "notes.txt").write_text("no image")
        self.fail_with(USER, ["images", "no images of a known format"], "train", "vision.toml")
        write_images(self.folder / "one", 4)
        (self.folder / "one/empty").mkdir()
        self.fail_with(USER, ["one/empty has no images"], "train", "vision.toml", "--data.path=one")


if __name__ == "__main__":
    unittest.main()
