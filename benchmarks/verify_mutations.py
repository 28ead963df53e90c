"""Runs `trireme verify` on mistakes that are made on purpose, and on layouts without any.

Each mistake of tests/mutations is made in a drawn layout of a tiny model. Says whether verify finds it and names
it at the right tensor first, and whether two detectors that people use today do: a relative difference above 1e-5
of the loss or the gradient norm in fp32 within 3 steps, and one above 1 % of the loss within 20 steps. Layouts
without a mistake count its false alarms; some of them are of learners. Every result is a line of results.jsonl in --folder: the same command
goes on where it was stopped, by SIGTERM or after --minutes. Exits with 1 when a mistake is not found, or on a
false alarm.

    benchmarks/verify_mutations.py --layouts 200
    benchmarks/verify_mutations.py --only final-norm-unsummed --layouts 0 --learners 0
"""

import argparse
import fnmatch
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/cli"))
from tiny_problems import write_problems  # noqa: E402

STEPS = 3  # the curve has those of the config
THRESHOLD, CURVE_THRESHOLD = 1e-5, 0.01
# Replicas that a mistake makes differ are to be trained and saved.
OF_MISTAKE = ["checkpoint.compare_replicas=false"]


class Place:
    """A folder with data and config, and the program that runs there."""

    def __init__(self, program, folder):
        self.program, self.folder = Path(program).resolve(), Path(folder)
        self.curves = {}  # of A, by its keys
        if not (self.folder / "prepared").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(self.folder.iterdir()):
                sys.exit(f"{folder} has other files, or those of a start that was stopped; remove it or give another")
            write_problems(self.folder, self.prepare)
            (self.folder / "prepared").touch()

    def prepare(self, *words):
        """`trireme`, which lies beside the program and has the commands for data."""
        result = self.run(*words, program=self.program.with_name("trireme"))
        if result.returncode != 0:
            sys.exit(f"{' '.join(words)} failed: {result.stderr.strip()}")

    def run(self, *words, program=None):
        return subprocess.run([str(program or self.program), *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})

    def mistakes(self):
        """The rows of the table, as the program has it."""
        return [json.loads(line) for line in self.run("table").stdout.splitlines()]

    def metrics(self, run):
        path = self.folder / run / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def verify(self, ranks, keys, common, steps=STEPS, config="tiny.toml", ranks_a=1):
        """The report of A, one rank or one of each learner, against B with these keys; or {"refused": line}. A run that
        fails otherwise than by a refusal has the finding "failed"."""
        shutil.rmtree(self.folder / "twins", ignore_errors=True)
        words = ["verify", config, "--json", "--output", "twins", "--steps", steps, "--ranks-a", ranks_a, "--ranks-b", ranks]
        words += [word for key in keys for word in ("--b", key)] + [f"--{key}" for key in common]
        result = self.run(*words)
        if result.stdout.startswith("{"):
            return json.loads(result.stdout)
        line = (result.stderr.strip().splitlines() or [f"ended with code {result.returncode}"])[-1]
        is_refusal = result.returncode == 2 and ("ended with code" not in line or "ended with code 2:" in line)
        return {"refused": line, "finding": "refused" if is_refusal else "failed"}

    def curve(self, ranks, keys):
        """The losses of a run in fp32; short when it ended early."""
        shutil.rmtree(self.folder / "curve", ignore_errors=True)
        result = self.run("train", "tiny.toml", "--ranks", ranks, "--output.folder=curve", "--checkpoint.interval=0",
                          "--train.precision=fp32", *(f"--{key}" for key in keys))
        return [step["loss"] for step in self.metrics("curve")] if result.returncode == 0 else []

    def curve_of_a(self, common):
        key = " ".join(common)
        if key not in self.curves:
            self.curves[key] = self.curve(1, common)
        return self.curves[key]


def relative(a, b):
    """Infinite where only one is a number."""
    if a is None or b is None:
        return 0 if a is b else float("inf")
    return abs(a - b) / max(abs(a), 1e-30)


def largest(a, b):
    """The largest relative difference of two lists; infinite when one is shorter."""
    return max(map(relative, a, b)) if a and len(a) == len(b) else float("inf")


def is_named(first, expected):
    """Whether the first probe that differs is one of "kind:pattern; ..."."""
    name = first["name"].removesuffix("@gradient")
    return any(first["kind"] == kind and fnmatch.fnmatchcase(name, pattern)
               for kind, pattern in (part.strip().split(":", 1) for part in expected.split(";")))


def drawn_layout(mistake, generator):
    """One of a mistake's layouts: (ranks, keys)."""
    ranks, *keys = generator.choice(mistake["layouts"].split(";")).split()
    return int(ranks), keys


def try_mistake(place, mistake, seed, steps=STEPS, curve=True, learners=1):
    """What verify and the other detectors say of a mistake. learners: so many make it, each in the drawn layout"""
    ranks, layout = drawn_layout(mistake, random.Random(f"{seed} {mistake['name']}"))
    keys = [*layout, f"mutation.name={mistake['name']}", *OF_MISTAKE]
    common = mistake["common"].split()
    if learners > 1:
        common += [f"parallel.learners={learners}", "outer.every=2"]
    ranks *= learners
    found = place.verify(ranks, keys, common, steps, ranks_a=learners)
    result = {"layout": f"{ranks} ranks, {' '.join(layout)}"}
    if "refused" in found:
        return {**result, **found, "made": 0, "named": False}
    first = found.get("first") or {"step": 0, "kind": "", "name": ""}
    a, b = place.metrics("twins/a-fp32"), place.metrics("twins/b-fp32")
    # A step that ranks with unequal copies have ended is not in the metrics.
    made = max(((step.get("mutations_made") or 0) for step in place.metrics("twins/b-fp64")), default=1)
    learner = f"learner {first['learner']}, " if "learner" in first else ""
    result.update(finding=found["finding"], first=f"step {first['step']}, {learner}{first['kind']} {first['name']}".strip(),
                  named=found["finding"] == "bug" and is_named(first, mistake["expected"]), made=made,
                  threshold=max(largest([s[key] for s in a], [s[key] for s in b]) for key in ("loss", "grad_norm")))
    if curve:
        result["curve"] = largest(place.curve_of_a(common), place.curve(ranks, keys + common))
    return result


def drawn_axes(left, axes, generator):
    """Keys that share a model among so many ranks, by some of these axes and ZeRO."""
    keys = []
    for axis in generator.sample(axes, len(axes)):
        degree = generator.choice([1, 2]) if left > 1 else 1
        if degree > 1:
            keys.append(f"parallel.{axis}={degree}")
            left //= degree
    if "parallel.tensor=2" in keys and generator.random() < 0.5:
        keys.append("parallel.sequence_parallel=true")
    if "parallel.context=2" in keys and generator.random() < 0.5:
        keys.append("parallel.context_form=all-to-all")
    if left > 1:
        keys.append(f"parallel.zero={generator.choice([0, 1, 2, 3])}")
    return keys


def drawn_clean(generator):
    """A layout without a mistake: (config, ranks, keys of B, keys of both, ranks of A). Not every one is possible."""
    config = generator.choice(["tiny.toml"] * 4 + ["vision.toml", "clicks.toml"])
    ranks = generator.choice([2, 2, 4])
    common, axes = [], ["tensor", "pipeline", "context"]
    if config == "tiny.toml":
        common = generator.choice([[], [], ["model.experts=4"], ["model.tied_embedding=true"], ["model.kv_heads=1"]])
        axes += ["expert"] if "model.experts=4" in common else []
    if config == "clicks.toml":
        common, axes = [f"model.family={generator.choice(['dlrm', 'dlrm-dcnv2', 'wide-deep'])}"], []
    keys = drawn_axes(ranks, axes, generator)
    if generator.random() < 0.3:
        keys.append(f"train.micro_batch={generator.choice([1, 2])}")
    if config != "clicks.toml" and generator.random() < 0.3:
        keys.append(f"train.recompute={generator.choice(['selective', 'full'])}")
    return config, ranks, keys, common, 1


METHODS = ["average", "diloco", "gossip", "push-sum", "gradient-tracking", "d2"]


def drawn_learners(generator):
    """The same with learners: A has one rank of each."""
    learners = generator.choice([2, 2, 2, 3])
    config = generator.choice(["tiny.toml"] * 3 + ["vision.toml"])
    method, every = generator.choice(METHODS), generator.choice([1, 2])
    common = [f"parallel.learners={learners}", f"outer.method={method}", f"outer.every={every}"]
    axes = ["tensor", "pipeline", "context"]
    if learners == 3:
        common += ["train.global_batch=12", "train.micro_batch=2"]
    if method in METHODS[:2]:
        if every == 2:
            common += generator.choice([[], ["outer.fragments=2"], ["outer.delay=1", "outer.mix=0.5"]])
        common += generator.choice([[], [], ["outer.begin=1"]])
    if config == "tiny.toml" and generator.random() < 0.3:
        common.append("model.experts=4")
        axes.append("expert")
    inner = generator.choice([2, 2, 4]) if learners == 2 else 2
    return config, learners * inner, drawn_axes(inner, axes, generator), common, learners


def try_clean(place, number, seed, steps=STEPS, drawn=drawn_clean):
    """The finding of the layout with this number. Draws again where a layout is refused."""
    generator = random.Random(f"{seed} {'clean' if drawn is drawn_clean else drawn.__name__} {number}")
    refused = []
    while len(refused) < 20:
        config, ranks, keys, common, ranks_a = drawn(generator)
        layout = " ".join([f"{config}, {ranks} ranks,", *keys, *common])
        found = place.verify(ranks, keys, common, steps, config, ranks_a)
        if found["finding"] != "refused":
            return {"layout": layout, "finding": found["finding"], "refused": refused,
                    "rounding": found.get("largest_rounding_fp64"), "first": found.get("first") or found.get("refused")}
        refused.append(f"{layout}: {found['refused']}")
    sys.exit("20 drawn layouts were refused:\n" + "\n".join(refused))


class Results:
    """Lines of JSON by what they are about; those of an earlier start are kept."""

    def __init__(self, path, end=float("inf")):
        """end: nothing new is made after this time.monotonic()."""
        self.path, self.end = path, end
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):  # half a line of a start that was killed
            path.write_text("".join(lines[:-1]))
            lines.pop()
        self.found = {line["about"]: line for line in map(json.loads, lines)}

    def get(self, about, make):
        """None when there is no time left to make it."""
        if about not in self.found:
            if time.monotonic() > self.end:
                return None
            line = {"about": about, **make()}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self.found[about] = line
        return self.found[about]


def table_of(mistakes, results):
    yes = lambda value: "yes" if value else "no"
    lines = ["| mistake | stands for | layout | found | named | first | threshold | curve |",
             "|---|---|---|---|---|---|---|---|"]
    for mistake, result in zip(mistakes, results):  # those that there was time for
        made = "" if result["made"] else " (never made)"
        lines.append(f"| {mistake['name']} | {mistake['source']} | {result['layout']} | "
                     f"{yes(result['finding'] == 'bug')}{made} | {yes(result['named'])} | "
                     f"{result.get('first') or result.get('refused')} | "
                     f"{yes(result.get('threshold', 0) > THRESHOLD)} | "
                     f"{yes(result.get('curve', 0) > CURVE_THRESHOLD)} |")
    return lines


def counts_of(results):
    count = lambda is_meant: sum(1 for result in results if is_meant(result))
    return {"mistakes": len(results), "found": count(lambda r: r["finding"] == "bug"),
            "named": count(lambda r: r["named"]), "never_made": count(lambda r: not r["made"]),
            "threshold": count(lambda r: r.get("threshold", 0) > THRESHOLD),
            "curve": count(lambda r: r.get("curve", 0) > CURVE_THRESHOLD)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", default=ROOT / "build/release/bin/mutations", type=Path, help="the program")
    parser.add_argument("--folder", default="runs/mutations", type=Path, help="for data, runs and results.jsonl; its own")
    parser.add_argument("--only", metavar="NAME", help="this mistake alone")
    parser.add_argument("--layouts", type=int, default=200, help="layouts without a mistake")
    parser.add_argument("--learners", type=int, default=20, help="layouts with learners and without a mistake")
    parser.add_argument("--seed", type=int, default=1, help="of the layouts")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so many")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # kills the program that runs
    place = Place(args.mutations, args.folder)
    mistakes = [m for m in place.mistakes() if args.only in (None, m["name"])]
    if not mistakes:
        parser.error(f"--only: there is no mistake {args.only}; `{args.mutations} table` lists them")
    store = Results(args.folder / "results.jsonl", time.monotonic() + 60 * args.minutes)
    results, clean = [], []
    for number, mistake in enumerate(mistakes, 1):
        result = store.get(f"{mistake['name']} {args.seed}", lambda m=mistake: try_mistake(place, m, args.seed))
        if result is None:
            break
        results.append(result)
        print(f"bench: {number} of {len(mistakes)}: {mistake['name']}: {result['finding']}, "
              f"{result.get('first') or result.get('refused')}", file=sys.stderr, flush=True)
    for what, drawn, wanted in (("clean", drawn_clean, args.layouts), ("learners", drawn_learners, args.learners)):
        for number in range(wanted):
            result = store.get(f"{what} {number} {args.seed}", lambda n=number, d=drawn: try_clean(place, n, args.seed, drawn=d))
            if result is None:
                break
            clean.append(result)
            print(f"bench: {what} {number + 1} of {wanted}: {result['finding']}, {result['layout']}", file=sys.stderr, flush=True)
    alarms = [line for line in clean if line["finding"] not in ("same", "rounding")]
    summary = {**counts_of(results), "layouts": len(clean), "false_alarms": len(alarms)}
    if args.json:
        print(json.dumps({**summary, "results": results, "alarms": alarms}))
    else:
        print("\n".join(table_of(mistakes, results)))
        print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary.items()))
        for line in alarms:
            print(f"false alarm: {line['finding']} in {line['layout']}")
    return 1 if alarms or summary["found"] < len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
