"""What the tests of `predict` and of exported models share: tiny images and clicks, and their configs."""
import io
import json
import tarfile

import numpy
from PIL import Image

import tiny_problems
from program import ProgramTest
from tiny_problems import changed

CLASSES = ["blue", "green", "red, or so"]
VISION = changed(tiny_problems.VISION, {
    "model.family": None, "model.patch_size": 4, "model.width": 16, "model.heads": 2, "model.ffn_width": 24,
    "train.steps": 12, "train.global_batch": 12, "train.micro_batch": 6, "train.evaluate_interval": 12,
    "train.evaluate_sequences": 30, "optimizer.learning_rate": 2e-3, "optimizer.warmup_steps": 1,
    "checkpoint.interval": 12, "output.folder": "run"})
CLICKS = changed(tiny_problems.RECOMMEND, {
    "train.micro_batch": 32, "train.evaluate_interval": 20, "train.evaluate_sequences": 300, "optimizer.learning_rate": 1e-2,
    "optimizer.warmup_steps": 1, "checkpoint.interval": 20, "output.folder": "run"})


def write_images(folder, per_class, size=16, seed=1):
    """Noise with more of one colour, whose name is the class."""
    draw = numpy.random.default_rng(seed)
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = draw.integers(0, 200, (size, size, 3), dtype=numpy.uint8)
            pixels[:, :, 2 - number] += 40
            Image.fromarray(pixels).save(folder / name / f"{i:02}.png")


def write_shards(images, shards):
    """Images in folders of classes as two archives, with the numbers of their classes in .cls and .json."""
    shards.mkdir(parents=True)
    files = list(enumerate(sorted(images.rglob("*.png"))))
    classes = sorted({file.parent.name for _, file in files})
    for number in range(2):
        with tarfile.open(shards / f"{number}.tar", "w") as archive:
            for i, file in files[number::2]:
                label = classes.index(file.parent.name)
                archive.add(file, arcname=f"{i:04}.png")
                text = (str(label) if i % 3 else json.dumps({"label": label})).encode()
                entry = tarfile.TarInfo(f"{i:04}.cls" if i % 3 else f"{i:04}.json")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))


class PredictTest(ProgramTest):
    def predict(self, *arguments, **options):
        """The answers, one object each."""
        return [json.loads(line) for line in self.succeed("predict", *arguments, **options).splitlines()]
