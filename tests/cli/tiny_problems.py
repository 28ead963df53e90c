"""Tiny data and configs on which whole runs take a second: a language model, a ViT and a recommendation model."""

import json
import random
import struct

LANGUAGE = """
[model]
layers = 2
width = 32
heads = 4
kv_heads = 2
ffn_width = 64
sequence_length = 32
[data]
path = "data/tiny"
[train]
steps = 20
global_batch = 16
micro_batch = 4
[optimizer]
warmup_steps = 2
"""
VISION = """
[task]
name = "vision"
[model]
family = "vit"
patch_size = 2
layers = 2
width = 24
heads = 4
ffn_width = 40
[data]
path = "images"
[train]
steps = 20
global_batch = 16
micro_batch = 4
[optimizer]
warmup_steps = 2
"""
RECOMMEND = """
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
micro_batch = 16
gradient_clip = 0
[tables]
learning_rate = 0.1
[optimizer]
warmup_steps = 2
"""
CONFIGS = {"tiny.toml": LANGUAGE, "vision.toml": VISION, "clicks.toml": RECOMMEND}
PREPARE = [
    ["--input", "text", "--tokenizer", "bytes", "--output", "data/tiny"],
    ["--format", "csv", "--input", "clicks.csv", "--numeric", "age:standard,price", "--category", "city", "--label",
     "clicked", "--validation", "0.25", "--output", "data/clicks"],
]


def changed(config, keys):
    """The config with these keys, such as {"train.steps": 3}; those that are None are left out."""
    lines = config.strip().splitlines()
    for key, value in keys.items():
        section, name = key.split(".")
        if f"[{section}]" not in lines:
            lines.append(f"[{section}]")
        begin = lines.index(f"[{section}]") + 1
        end = next((at for at in range(begin, len(lines)) if lines[at].startswith("[")), len(lines))
        place = next((at for at in range(begin, end) if lines[at].split(" = ")[0] == name), end)
        lines[place:min(place + 1, end)] = [] if value is None else [f"{name} = {json.dumps(value)}"]
    return "\n" + "\n".join(lines) + "\n"


def write_text(folder):
    """Six files of words, drawn from a fixed seed."""
    draw = random.Random(1)
    folder.mkdir()
    for i in range(6):
        lines = [" ".join(draw.choices(["def", "return", "import", "self", "value"], k=8)) for _ in range(60)]
        (folder / f"{i}.txt").write_text("\n".join(lines) + "\n")


def write_digits(folder, num_train=160, num_test=16):
    """MNIST's four files: images of 8 x 8, in which a bright column tells the class."""
    draw = random.Random(1)
    folder.mkdir()
    for name, count in (("train", num_train), ("t10k", num_test)):
        labels = bytes(draw.randrange(4) for _ in range(count))
        pixels = bytes(255 - draw.randrange(64) if at % 8 == label else draw.randrange(64)
                       for label in labels for at in range(64))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 8, 8) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)


def write_clicks(path):
    """Rows of people, of whom the older ones of some cities click."""
    draw = random.Random(1)
    lines = ["age,price,city,clicked"]
    for _ in range(600):
        age, city = draw.randint(18, 80), draw.choice(["Bonn", "Kiel", "Halle", "Ulm"])
        lines.append(f"{age},{draw.uniform(1, 1e4):.2f},{city},{int(city != 'Bonn' and age > 40)}")
    path.write_text("\n".join(lines) + "\n")


def write_problems(folder, run):
    """Configs and data in `folder`. run: runs `trireme` there with these words."""
    for name, text in CONFIGS.items():
        (folder / name).write_text(text)
    write_text(folder / "text")
    write_digits(folder / "images")
    write_clicks(folder / "clicks.csv")
    for words in PREPARE:
        run("data", "prepare", *words)
