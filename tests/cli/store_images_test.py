"""Records of images in an object store: training and predictions are those of a disk, and what is refused."""
import struct
import tarfile
import unittest

import numpy

from predictions import VISION, PredictTest, write_images
from store_server import StoreServer

USER, SIZE, CLASSES = 2, 16, 4
URL = "s3://data/images"


def write_records(folder, part, count):
    """Images as MNIST's files, each class a bright column."""
    draw = numpy.random.default_rng(count)
    labels = numpy.arange(count, dtype=numpy.uint8) % CLASSES
    images = draw.integers(0, 64, (count, SIZE, SIZE), dtype=numpy.uint8)
    images[numpy.arange(count), :, labels] += 190
    (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, SIZE, SIZE) + images.tobytes())
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.tobytes())


class StoreImages(PredictTest):
    def prepare(self):
        (self.folder / "images").mkdir()
        write_records(self.folder / "images", "train", 48)
        write_records(self.folder / "images", "t10k", 12)
        write_images(self.folder / "files/train", 3, SIZE)
        (self.folder / "vision.toml").write_text(VISION)
        self.server = StoreServer(self.folder)
        self.addCleanup(self.server.stop)

    def command(self, run, path):
        return ("train", "vision.toml", f"--output.folder={run}", f"--data.path={path}", "--train.evaluate_sequences=12")

    def test_training_and_predictions_are_those_of_a_disk(self):
        here, there = {}, self.server.environment()
        self.succeed(*self.command("disk", "images"))
        self.succeed(*self.command("store", URL), environment=there)
        self.assertEqual(self.curve("store"), self.curve("disk"))
        self.assertEqual(*([line.get("validation_loss") for line in self.metrics(run)] for run in ("store", "disk")))
        with tarfile.open(self.folder / "images.tar", "w") as archive:
            archive.add(self.folder / "files/train", arcname="train")
        image = "files/train/blue/00.png"
        for name in ("images/t10k-images-idx3-ubyte", "images.tar", image):
            local = self.predict("store", name, environment=here)
            remote = self.predict("store", f"s3://data/{name}", environment=there)
            for answer in local:
                answer["path"] = "s3://data/" + answer["path"]
            self.assertEqual(remote, local)

    def test_what_cannot_be_read_is_one_line(self):
        right = self.server.environment()
        for path in ("s3://data/files", "s3://data/none"):
            self.fail_with(USER, [f"data.path is {path}, in a store", "copy folders of images and tar archives to a disk"],
                           *self.command("x", path), environment=right)
        self.fail_with(USER, ["cannot read s3://data/images/train-images-idx3-ubyte: the store refuses", "403"],
                       *self.command("x", URL), environment={**right, "AWS_SECRET_ACCESS_KEY": "another"})
        (self.folder / "images/train-labels-idx1-ubyte").unlink()
        self.fail_with(USER, ["there is no s3://data/images/train-labels-idx1-ubyte"], *self.command("x", URL), environment=right)
        write_records(self.folder / "images", "train", 48)
        self.succeed(*self.command("run", "images"))
        self.fail_with(USER, ["s3://data/files/train/ is a folder of a store", "tar archive"], "predict", "run",
                       "s3://data/files/train/", environment=right)
        self.fail_with(USER, ["s3://data/none.png does not exist"], "predict", "run", "s3://data/none.png", environment=right)


if __name__ == "__main__":
    unittest.main()
