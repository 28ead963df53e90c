"""What the tests of `predict` and of exported models share: tiny images and clicks, and their configs."""
import io
import json
import tarfile

import numpy
from PIL import Image

from program import ProgramTest

CLASSES = ["blue", "green", "red, or so"]
VISION = """
[task]
name = "vision"
[model]
patch_size = 4
layers = 2
width = 16
heads = 2
ffn_width = 24
[data]
path = "images"
[train]
steps = 12
global_batch = 12
micro_batch = 6
evaluate_interval = 12
evaluate_sequences = 30
[optimizer]
learning_rate = 2e-3
warmup_steps = 1
[checkpoint]
interval = 12
[output]
folder = "run"
"""
CLICKS = """
[task]
name = "recommend"
[model]
width = 8
bottom = "16"
top = "16"
[data]
path = "data/clicks"
[train]
steps = 20
global_batch = 64
micro_batch = 32
evaluate_interval = 20
evaluate_sequences = 300
gradient_clip = 0
[tables]
learning_rate = 0.1
[optimizer]
learning_rate = 1e-2
warmup_steps = 1
[checkpoint]
interval = 20
[output]
folder = "run"
"""


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
