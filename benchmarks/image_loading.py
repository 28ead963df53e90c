#!/usr/bin/env python3
"""Images per second and core: BatchReader beside torch.utils.data.DataLoader, from the same files.

    benchmarks/image_loading.py [--torchvision SITE] [--rounds 5] [--workers 2]

Both read JPEG files with random resized crops to 224 x 224 and flips, in batches of 64 uint8 images, from a folder by
class and from a tar archive. The peer's transforms are torchvision's where SITE has it
(pip install --no-deps --target SITE torchvision), otherwise the same in Pillow. Rounds alternate; medians are printed.
Needs Pillow, and pictures to start from: Debian's oxygen-icon-theme.
"""

import argparse
import io
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
ICONS = Path("/usr/share/icons/oxygen/base")
CLASSES = 10


def make_picture(icons, draw, noise):
    """A gradient with a few enlarged icons on it, and noise."""
    width, height = draw.choice([(500, 375), (375, 500), (500, 333), (400, 300), (320, 320), (480, 360)])
    ramp = Image.linear_gradient("L").resize((width, height)).rotate(draw.choice([0, 90, 180]))
    colours = [tuple(draw.randrange(256) for _ in range(3)) for _ in range(2)]
    picture = Image.composite(*(Image.new("RGB", (width, height), c) for c in colours), ramp)
    for _ in range(3):
        side = draw.randrange(height // 3, height)
        icon = draw.choice(icons).resize((side, side), Image.Resampling.BICUBIC)
        picture.paste(icon, (draw.randrange(-side // 3, width), draw.randrange(-side // 3, height)), icon)
    values = numpy.asarray(picture, dtype=numpy.int16) + noise.normal(0, 10, (height, width, 3)).astype(numpy.int16)
    return Image.fromarray(values.clip(0, 255).astype(numpy.uint8))


def make_files(folder, count):
    """Writes folder/images/<class>/*.jpg and the same into folder/images.tar."""
    draw, noise = random.Random(1), numpy.random.default_rng(1)
    names = sorted(p for p in ICONS.glob("[12]*/**/*.png") if p.stat().st_size > 8000)
    assert names, f"no pictures in {ICONS}: apt-get install oxygen-icon-theme"
    icons = [Image.open(name).convert("RGBA") for name in names[:300]]
    num_bytes = 0
    with tarfile.open(folder / "images.tar", "w") as archive:
        def add(name, content):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

        for i in range(count):
            out = io.BytesIO()
            make_picture(icons, draw, noise).save(out, "JPEG", quality=90)
            content, label = out.getvalue(), i % CLASSES
            num_bytes += len(content)
            (folder / "images" / f"{label}").mkdir(parents=True, exist_ok=True)
            (folder / "images" / f"{label}" / f"{i:06}.jpg").write_bytes(content)
            add(f"{i:06}.jpg", content)
            add(f"{i:06}.cls", str(label).encode())
    return num_bytes / count


def torchvision_transform(site, size):
    """torchvision's own code; its package wants the extension of a CUDA build, which these classes do not use."""
    sys.path.append(str(ROOT / "tools"))
    import torchvision_parts

    torchvision_parts.use("torchvision", site=site)
    from torchvision import transforms
    return transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(),
                               transforms.PILToTensor()])


class PillowTransform:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        box = self.crop(*image.size)
        image = image.crop(box).resize((self.size, self.size), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()

    @staticmethod
    def crop(width, height):
        for _ in range(10):
            area = width * height * random.uniform(0.08, 1)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = random.randint(0, width - w), random.randint(0, height - h)
                return left, top, left + w, top + h
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2


class Folder(torch.utils.data.Dataset):
    def __init__(self, path, transform):
        self.files = sorted(path.glob("*/*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            return self.transform(image.convert("RGB")), int(self.files[index].parent.name)


class Tar(torch.utils.data.IterableDataset):
    """Reads the archive as a stream, as WebDataset does; each worker takes every n-th sample, without end."""

    def __init__(self, path, transform):
        self.path, self.transform = path, transform

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        while True:
            with tarfile.open(self.path, "r|") as archive:
                image = None
                for i, entry in enumerate(archive):
                    if i // 2 % worker.num_workers != worker.id:
                        continue
                    content = archive.extractfile(entry).read()
                    if entry.name.endswith(".jpg"):
                        image = content
                    else:
                        with Image.open(io.BytesIO(image)) as decoded:
                            yield self.transform(decoded.convert("RGB")), int(content)


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_peer(kind, path, transform, args):
    dataset = Tar(path, transform) if kind == "tar" else Folder(path, transform)
    sampler = None
    if kind == "folder":
        sampler = torch.utils.data.RandomSampler(dataset, num_samples=(args.batches + 8) * args.batch, replacement=True)
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch, sampler=sampler, num_workers=args.workers)
    batches = iter(loader)
    next(batches)  # starting is not measured
    pids = [os.getpid(), *(worker.pid for worker in batches._workers)]
    start, cpu_start = time.perf_counter(), cpu_seconds(pids)
    images = sum(len(next(batches)[1]) for _ in range(args.batches))
    return {"images": images, "seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds(pids) - cpu_start}


def run_ours(kind, path, args):
    command = [args.program, kind, path, args.workers, args.batch, args.size, args.batches]
    return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/bin/image_loading_benchmark")
    parser.add_argument("--torchvision", metavar="SITE", help="a folder that has torchvision")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=30, help="per round")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transform = torchvision_transform(args.torchvision, args.size) if args.torchvision else PillowTransform(args.size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mean = make_files(folder, args.files)
        print(f"{args.files} JPEG files of {mean / 1000:.0f} kB, {args.workers} workers, batches of {args.batch}, "
              f"{'torchvision' if args.torchvision else 'Pillow'} beside, medians of {args.rounds} rounds")
        print("| from | | images/s | images/s and core | ratio |\n|---|---|---|---|---|")
        for kind, path in (("folder", folder / "images"), ("tar", folder / "images.tar")):
            results = {"BatchReader": [], "DataLoader": []}
            for _ in range(args.rounds):
                results["BatchReader"].append(run_ours(kind, path, args))
                results["DataLoader"].append(run_peer(kind, path, transform, args))
            per_core = {who: statistics.median(r["images"] / r["cpu_seconds"] for r in found)
                        for who, found in results.items()}
            for who, found in results.items():
                rate = statistics.median(r["images"] / r["seconds"] for r in found)
                print(f"| {kind} | {who} | {rate:.0f} | {per_core[who]:.0f} | "
                      f"{per_core[who] / per_core['DataLoader']:.2f} |", flush=True)
        print("\n| whole files to | decoded at their size | as small as libjpeg can | ratio | mean difference |")
        print("|---|---|---|---|---|")
        for size in (224, 160, 112, 56):
            command = [str(args.program), "scaled", str(folder / "images"), str(size)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            plain, scaled = (1000 * found[key] / args.files for key in ("whole_seconds", "scaled_seconds"))
            print(f"| {size} x {size} | {plain:.2f} ms | {scaled:.2f} ms | {plain / scaled:.2f} | "
                  f"{found['mean_difference']:.2f} of 255 |", flush=True)


if __name__ == "__main__":
    main()
