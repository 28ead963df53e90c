"""tools/vision_data.py makes what it says: sorted images of one size, the same bytes each time, nothing in both parts."""
import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from PIL import Image, ImageChops

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "tools/vision_data.py"
SMALL = ["glyphs", "--number", "3", "--validation-number", "2"]


class VisionData(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_program(self, *arguments):
        return subprocess.run([sys.executable, "-B", PROGRAM, *map(str, arguments)], capture_output=True, text=True)

    def make(self, name, *arguments):
        """{path: (content, image)} of the new set."""
        result = self.run_program(*arguments, self.folder / name)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.output = result.stdout
        files = {}
        for path in sorted((self.folder / name).rglob("*.png")):
            with Image.open(path) as image:
                files[str(path.relative_to(self.folder / name))] = (path.read_bytes(), image.copy())
        return files

    def classes(self, files):
        """{part: {class: number of images}}"""
        counts = collections.defaultdict(collections.Counter)
        for path in files:
            part, name, _ = path.split("/")
            counts[part][name] += 1
        return counts

    def contents(self, files):
        return {path: content for path, (content, _) in files.items()}

    def test_glyphs(self):
        files = self.make("a", *SMALL)
        counts = self.classes(files)
        self.assertEqual(set(counts), {"train", "validation"})
        for part, number in {"train": 3, "validation": 2}.items():
            self.assertEqual(len(counts[part]), 62)
            self.assertEqual(set(counts[part].values()), {number})
        for path, (_, image) in files.items():
            self.assertEqual((image.mode, image.size), ("L", (32, 32)), path)
            lowest, highest = image.getextrema()
            self.assertGreater(highest - lowest, 40, path)
        about = json.loads((self.folder / "a/about.json").read_text())
        self.assertEqual(about["images"]["train"]["digit_0"], 3)
        self.assertIn("12 fonts of 3 families", self.output)

    def test_glyphs_have_the_same_bytes_each_time_and_others_with_another_seed(self):
        first = self.contents(self.make("a", *SMALL))
        self.assertEqual(self.contents(self.make("b", *SMALL)), first)
        self.assertEqual((self.folder / "a/about.json").read_bytes(), (self.folder / "b/about.json").read_bytes())
        other = self.contents(self.make("c", *SMALL, "--seed", 2))
        self.assertEqual([path for path in first if other[path] == first[path]], [])
        # More images leave the first ones as they are.
        more = self.contents(self.make("d", "glyphs", "--number", 4, "--validation-number", 2))
        self.assertEqual({path: more[path] for path in first}, first)

    def test_icons(self):
        files = self.make("a", "icons")
        counts = self.classes(files)
        self.assertEqual(set(counts["train"]), set(counts["validation"]))
        self.assertGreaterEqual(len(counts["train"]), 5)
        for name in counts["train"]:
            self.assertGreaterEqual(counts["train"][name] + counts["validation"][name], 40)
        self.assertRegex(self.output, r"left out: \d+ links")
        self.assertRegex(self.output, r"dropped: emotes, \d+ icons, fewer than --minimum 40")
        share = sum(counts["validation"].values()) / len(files)
        self.assertTrue(0.1 < share < 0.3, share)
        pixels = set()
        for path, (_, image) in files.items():
            self.assertEqual((image.mode, image.size), ("RGB", (48, 48)), path)
            pixels.add(hashlib.sha256(image.tobytes()).digest())
        self.assertEqual(len(pixels), len(files))
        self.assert_nothing_alike_in_both(files)
        self.assertEqual(self.contents(self.make("b", "icons")), self.contents(files))

    def assert_nothing_alike_in_both(self, files):
        parts = collections.defaultdict(list)
        for path, (_, image) in files.items():
            # An eighth of the size: the mean over 64 pixels differs no more than they do.
            parts[path.split("/")[0]].append((path, image, image.reduce(8)))
        for path, image, small in parts["validation"]:
            for other_path, other, other_small in parts["train"]:
                if self.distance(small, other_small) < 16:
                    self.assertGreaterEqual(self.distance(image, other), 16, f"{path} and {other_path}")

    def distance(self, a, b):
        levels = ImageChops.difference(a, b).histogram()
        squares = sum(count * (i % 256) ** 2 for i, count in enumerate(levels))
        return (squares / (3 * a.width * a.height)) ** 0.5

    def test_what_is_there_is_kept(self):
        place = self.folder / "a"
        place.mkdir()
        (place / "mine").write_text("x")
        result = self.run_program(*SMALL, place)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\Avision_data: [^\n]+not an empty folder[^\n]+\n\Z")
        self.assertEqual([path.name for path in self.folder.rglob("*")], ["a", "mine"])

    def test_what_cannot_be_is_refused_and_leaves_nothing(self):
        for arguments, words in {("icons", "--size", "47"): "try 16, 22, 32, 48",
                                 ("icons", "--minimum", "500"): "leaves 1 categories",
                                 ("icons", "--validation", "1.5"): "not between 0 and 1",
                                 ("glyphs", "--number", "0"): "not from 1 to 100000"}.items():
            result = self.run_program(*arguments, self.folder / "a")
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(words, result.stderr)
            self.assertEqual(list(self.folder.iterdir()), [], arguments)

    def test_help_teaches(self):
        self.assertIn("tools/setup.sh vision", self.run_program("--help").stdout)
        self.assertIn("share of the largest class", self.run_program("icons", "--help").stdout)
        self.assertIn("look alike", self.run_program("glyphs", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
