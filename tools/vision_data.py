#!/usr/bin/env python3
"""Makes small image sets from Debian packages: OUT/train/CLASS/*.png and OUT/validation/CLASS/*.png.

  tools/setup.sh vision                                      # installs the packages, and Pillow into .venv
  .venv/bin/python tools/vision_data.py icons data/icons     # 48 x 48 icons in colour, classes by their use
  .venv/bin/python tools/vision_data.py glyphs data/glyphs   # 32 x 32 grey characters, 62 classes

No network, no account: the images come from installed packages. The same packages, Pillow and options give the
same bytes. OUT/about.json keeps all of them, with the counts.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import string
import subprocess
import sys
import tempfile
import time

ICONS = "oxygen-icon-theme"
FONTS = ["fonts-dejavu-core", "fonts-dejavu-extra", "fonts-freefont-ttf", "fonts-liberation"]
# Fonts of these families are only in the validation set: a sans, a serif and a monospaced one.
VALIDATION_FAMILIES = ["DejaVuSansMono", "FreeSerif", "LiberationSans"]
LETTERS = re.compile(r"(Bold|Oblique|Italic|Regular|ExtraLight)*\.(ttf|otf)$")

try:
    import numpy
    import PIL
    from PIL import Image, ImageChops, ImageDraw, ImageFont
except ImportError as missing:
    sys.exit(f"vision_data: {missing}; run tools/setup.sh vision, then .venv/bin/python tools/vision_data.py")


class Refused(Exception):
    """The user can mend it."""


class Progress:
    """A line on stderr every few seconds, for work that takes longer."""

    def __init__(self, what, total):
        self.what, self.total, self.done, self.last = what, total, 0, time.monotonic()

    def step(self):
        self.done += 1
        if time.monotonic() - self.last > 2:
            self.last = time.monotonic()
            print(f"vision_data: {self.what}: {self.done} of {self.total}", file=sys.stderr, flush=True)


def files_of(package):
    found = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
    if found.returncode != 0:
        raise Refused(f"the package {package} is not installed; run tools/setup.sh vision")
    return [pathlib.Path(line) for line in found.stdout.splitlines()]


def version_of(package):
    return subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True).stdout


def share_of(name):
    """A number from 0 to 1 that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def flatten(path):
    """The icon in RGB on white."""
    with Image.open(path) as image:
        colour = image.convert("RGBA")
    white = Image.new("RGBA", colour.size, "white")
    return Image.alpha_composite(white, colour).convert("RGB")


def find_icons(size):
    """(category, name, image) of every icon of that size, sorted; links, other sizes and exact copies left out."""
    place = re.compile(rf"/{size}x{size}/([a-z]+)/([^/]+)\.png$")
    found = [(match[1], match[2], path) for path in files_of(ICONS) if (match := place.search(str(path)))]
    if not found:
        raise Refused(f"{ICONS} has no icons of {size} x {size} pixels; try 16, 22, 32, 48, 64 or 128")
    progress, icons, seen = Progress("icons read", len(found)), [], set()
    left_out = collections.Counter()
    for category, name, path in sorted(found):
        progress.step()
        if path.is_symlink():
            left_out["links"] += 1
            continue
        image = flatten(path)
        key = hashlib.sha256(image.tobytes()).digest()
        if image.size != (size, size):
            left_out["of another size"] += 1
        elif key in seen:
            left_out["copies of another icon"] += 1
        else:
            seen.add(key)
            icons.append((category, name, image))
    return icons, left_out


def group_alike(icons, distance):
    """For each icon the name of the first one in its group. Icons whose root mean square difference is below
    `distance` grey levels are in one group, and so are those linked by a chain of such pairs."""
    pixels = numpy.stack([numpy.asarray(image, numpy.float64).ravel() for _, _, image in icons])
    products = pixels @ pixels.T  # whole numbers below 2^53: exact in any order
    squares = products.diagonal()
    alike = squares[:, None] + squares - 2 * products < distance * distance * pixels.shape[1]
    first = list(range(len(icons)))
    for i in range(len(icons)):
        members = {first[j] for j in (i, *numpy.flatnonzero(alike[i, :i]))}
        if len(members) > 1:
            root = min(members)
            first = [root if f in members else f for f in first]
    return [f"{icons[f][0]}/{icons[f][1]}" for f in first]


def make_icons(options, folder):
    icons, left_out = find_icons(options.size)
    sizes = collections.Counter(category for category, _, _ in icons)
    dropped = sorted(category for category, count in sizes.items() if count < options.minimum)
    icons = [icon for icon in icons if icon[0] not in dropped]
    if len(sizes) - len(dropped) < 2:
        raise Refused(f"--minimum {options.minimum} leaves {len(sizes) - len(dropped)} categories; the largest have "
                      f"{', '.join(str(count) for _, count in sizes.most_common(3))} icons")
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} {reason}")
    for category in dropped:
        print(f"dropped: {category}, {sizes[category]} icons, fewer than --minimum {options.minimum}")
    groups = group_alike(icons, options.alike)
    progress = Progress("icons written", len(icons))
    for (category, name, image), group in zip(icons, groups):
        part = "validation" if share_of(group) < options.validation else "train"
        path = folder / part / category / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, optimize=False)
        progress.step()
    return [ICONS]


def family_of(path):
    """DejaVuSansMono of DejaVuSansMono-BoldOblique.ttf, FreeSerif of FreeSerifBold.ttf."""
    return LETTERS.sub("", path.name).rstrip("-")


def draw_glyph(character, font_path, rng, size=32):
    """A dark character on lighter paper: of random size, place, angle and tones, with noise on every pixel."""
    scale = 2  # drawn larger, so that a turned edge is smooth
    font = ImageFont.truetype(str(font_path), round(rng.uniform(0.55, 0.85) * size * scale),
                              layout_engine=ImageFont.Layout.BASIC)
    ink, paper = rng.randint(0, 100), rng.randint(150, 255)
    image = Image.new("L", (size * scale, size * scale), paper)
    middle = [size * scale / 2 + rng.uniform(-2, 2) * scale for _ in "xy"]
    ImageDraw.Draw(image).text(middle, character, font=font, fill=ink, anchor="mm")
    image = image.rotate(rng.uniform(-12, 12), Image.Resampling.BICUBIC, fillcolor=paper)
    image = image.resize((size, size), Image.Resampling.BOX)
    strength = rng.randint(0, 24)
    noise = Image.frombytes("L", (size, size), rng.randbytes(size * size)).point(
        [round(level * 2 * strength / 255) for level in range(256)])
    return ImageChops.add(image, noise, offset=-strength)


def make_glyphs(options, folder):
    fonts = {path for package in FONTS for path in files_of(package) if path.suffix in (".ttf", ".otf")}
    fonts = sorted(path for path in fonts if path.is_file() and not path.is_symlink())
    of_part = {"train": [f for f in fonts if family_of(f) not in VALIDATION_FAMILIES],
               "validation": [f for f in fonts if family_of(f) in VALIDATION_FAMILIES]}
    counts = {"train": options.number, "validation": options.validation_number}
    classes = [(f"digit_{c}", c) for c in string.digits] + [(f"upper_{c}", c) for c in string.ascii_uppercase] + \
              [(f"lower_{c}", c) for c in string.ascii_lowercase]
    progress = Progress("glyphs written", len(classes) * sum(counts.values()))
    for part, number in counts.items():
        print(f"{part}: {len(of_part[part])} fonts of {len({family_of(f) for f in of_part[part]})} families")
        for name, character in classes:
            (folder / part / name).mkdir(parents=True)
            for i in range(number):
                # Each image has its own numbers: more images leave the first ones as they are.
                rng = random.Random(f"{options.seed}/{part}/{name}/{i}")
                image = draw_glyph(character, rng.choice(of_part[part]), rng)
                image.save(folder / part / name / f"{i:05}.png", optimize=False)
                progress.step()
    return FONTS


def count(folder):
    """{part: {class: images}}; refuses a class that one part lacks."""
    counts = {part: {path.name: len(list(path.iterdir())) for path in sorted((folder / part).glob("*"))}
              for part in ("train", "validation")}
    alone = sorted(counts["train"].keys() ^ counts["validation"].keys())
    if alone:
        raise Refused(f"the class {alone[0]} has images in one of train and validation only; change --validation")
    return counts


def make(options):
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise Refused(f"{options.out} exists and is not an empty folder; remove it or choose another place")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    # Made beside it and moved there whole: what is there is complete.
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=f".{options.out.name}.", dir=options.out.parent))
    try:
        packages = options.make(options, unfinished)
        counts = count(unfinished)
        chosen = {key: value for key, value in vars(options).items() if key not in ("make", "out")}
        about = {"set": chosen, "pillow": PIL.__version__, "packages": {p: version_of(p) for p in packages},
                 "images": counts}
        (unfinished / "about.json").write_text(json.dumps(about, indent=1) + "\n")
        unfinished.chmod(0o777 & ~umask())
        os.replace(unfinished, options.out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    for part, classes in counts.items():
        print(f"{options.out / part}: {sum(classes.values())} images of {len(classes)} classes")


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def whole(least, most):
    def parse(text):
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not from {least} to {most}")
        return value
    return parse


def fraction(text):
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = parser.add_subparsers(title="sets", required=True, metavar="icons|glyphs", dest="name")

    icons = sets.add_parser(
        "icons", help="icons of the theme Oxygen, by category", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"Icons of the Debian package {ICONS} (LGPL 3) in RGB on white. A class is a category of the\n"
                    "theme: actions, apps, devices, mimetypes, places, status. Links, exact copies and small\n"
                    "categories are left out. All icons have one size, and icons that look alike are all in train or\n"
                    "all in validation. Some 1100 images; the classes differ in size, so compare an accuracy with the\n"
                    "share of the largest class, about a half.")
    icons.add_argument("--size", type=whole(8, 256), default=48, help="width and height in pixels (default: 48)")
    icons.add_argument("--minimum", type=whole(2, 10**6), default=40,
                       help="drop categories with fewer icons (default: 40)")
    icons.add_argument("--validation", type=fraction, default=0.2,
                       help="share of the icons for validation (default: 0.2)")
    icons.add_argument("--alike", type=whole(0, 255), default=16,
                       help="root mean square difference in grey levels below which icons are alike (default: 16)")
    icons.set_defaults(make=make_icons)

    glyphs = sets.add_parser(
        "glyphs", help="characters 0-9A-Za-z, drawn", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"The 62 characters 0-9A-Za-z drawn with the fonts of the Debian packages\n{', '.join(FONTS)}:\n"
                    "random size, place, angle, tones and noise. The validation set is drawn with other families\n"
                    f"({', '.join(VALIDATION_FAMILIES)}). Some characters look alike in some fonts (0 O o,\n"
                    "1 l I), so no model is right about all.")
    glyphs.add_argument("--number", type=whole(1, 10**5), default=200, metavar="N",
                        help="training images per class (default: 200)")
    glyphs.add_argument("--validation-number", type=whole(1, 10**5), default=40, metavar="N",
                        help="validation images per class (default: 40)")
    glyphs.add_argument("--seed", type=whole(0, 2**63 - 1), default=1, help="another seed draws other images (default: 1)")
    glyphs.set_defaults(make=make_glyphs)
    for parser_of_set in (icons, glyphs):
        parser_of_set.add_argument("out", type=pathlib.Path, metavar="OUT", help="a new or empty folder")
    return parser.parse_args()


def main():
    try:
        make(arguments())
    except (Refused, OSError) as error:
        print(f"vision_data: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
