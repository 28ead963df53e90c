"""Images in an object store: training and predictions are those of a disk, and what is refused."""
import struct
import tarfile
import unittest

import numpy

from predictions import VISION, PredictTest, write_images, write_shards
from store_server import StoreServer

USER, SIZE, CLASSES = 2, 16, 4
URL = "s3://data/images"
ODD = "red + 100% @café? #1"  # a class


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
        image = "files/train/red, or so/00.png"
        for name in ("images/t10k-images-idx3-ubyte", "images.tar", image):
            local = self.predict("store", name, environment=here)
            remote = self.predict("store", f"s3://data/{name}", environment=there)
            for answer in local:
                answer["path"] = "s3://data/" + answer["path"]
            self.assertEqual(remote, local)

    def write_shards(self):
        write_images(self.folder / "files/validation", 2, SIZE, seed=2)
        for part in ("train", "validation"):
            write_shards(self.folder / "files" / part, self.folder / "shards" / part)
            (self.folder / f"shards/{part}/shards.txt").write_text("0.tar\n1.tar\n")

    def test_folders_and_archives_train_as_from_a_disk(self):
        self.write_shards()
        there = self.server.environment()
        for part in ("train", "validation"):
            (self.folder / "files" / part / "red, or so").rename(self.folder / "files" / part / ODD)
        for name in ("files", "shards"):
            command = lambda run, path: (*self.command(run, path), "--ranks", 2, "--train.global_batch=8",  # noqa: E731
                                         "--train.micro_batch=4", "--train.evaluate_sequences=6")
            self.succeed(*command(f"{name}-disk", name))
            self.succeed(*command(f"{name}-store", f"s3://data/{name}"), environment=there)
            self.assertEqual(self.curve(f"{name}-store"), self.curve(f"{name}-disk"))
            losses = [[line.get("validation_loss") for line in self.metrics(f"{name}-{run}")] for run in ("store", "disk")]
            self.assertEqual(*losses)
        # With a cache, a second run asks for no image again.
        for run in ("cold", "warm"):
            sent = self.server.bytes_sent
            self.succeed(*self.command(run, "s3://data/shards"), "--data.cache=cache", "--train.evaluate_sequences=6",
                         environment=there)
            sent = self.server.bytes_sent - sent
        self.assertLess(sent, sum(path.stat().st_size for path in (self.folder / "shards").rglob("*.tar")))

    def test_a_web_server_has_archives_that_a_list_names(self):
        self.write_shards()
        server = StoreServer(self.folder, keys=False)
        self.addCleanup(server.stop)
        self.succeed(*self.command("disk", "shards"), "--train.evaluate_sequences=6")
        self.succeed(*self.command("web", f"{server.url}/data/shards"), "--train.evaluate_sequences=6")
        self.assertEqual(self.curve("web"), self.curve("disk"))
        self.fail_with(USER, [f"{server.url}/data/files is on a web server", "has no shards.txt"],
                       *self.command("x", f"{server.url}/data/files"))
        (self.folder / "shards/train/shards.txt").write_text("0.tar\n../1.tar\n")
        self.fail_with(USER, ["shards.txt:2 has \"../1.tar\"", "no name of an archive"],
                       *self.command("x", f"{server.url}/data/shards"), "--data.format=tar")

    def test_what_cannot_be_read_is_one_line(self):
        right = self.server.environment()
        self.fail_with(USER, ["s3://data/none has no images of a known format"], *self.command("x", "s3://data/none"),
                       environment=right)
        self.write_shards()
        whole = (self.folder / "shards/train/1.tar").read_bytes()
        (self.folder / "shards/train/1.tar").write_bytes(whole[:whole.rindex(b"\x89PNG") + 100])
        self.fail_with(USER, ["s3://data/shards/train/1.tar at byte", ".png\" has", "ends within it"],
                       *self.command("x", "s3://data/shards"), environment=right)
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
