"""Learners of four hosts that are killed, stopped and cut off, with `trireme meet` and with torchft's DiLoCo.

The hosts and the service are those of `trireme network`. Every event is drawn from the seed and its number. After each, all
learners must have ended a round again before the next one. Measured from the event on: seconds to the next step of each
other learner and to the end of their next round (the slowest counts), the longest time in which one of them did no step, and
from the end of the fault to the first round that the learner itself has ended. After every round the hashes of the common
weights are compared (of trireme's outer momentum too). A campaign writes a line for each event to --folder and goes on
there when it is started again.

    benchmarks/recovery/learner_kills.py --events 100 --seed 1 --folder runs/learner_kills [--torchft PYTHON]
"""

import argparse
import datetime
import json
import os
import random
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import learner_hosts  # noqa: E402
from learner_hosts import Hosts, Learners  # noqa: E402
from trireme_runs import ROOT, add_arguments, prepare_random_tokens, write_note  # noqa: E402

PLACES, EVERY, LEASE = 4, 20, 2.0
PATIENCE = 60  # seconds for all learners to end a round after a fault
# What happens, how often, how many learners it hits, and for how long it lasts in leases. A killed one is started again then.
KINDS = {
    "killed": (4, 1, (0.0, 2.0)),
    "two killed": (1, 2, (0.0, 2.0)),
    "stopped for less than the lease": (2, 1, (0.1, 0.9)),
    "stopped for longer": (2, 1, (1.2, 2.5)),
    "cut off for less than the lease": (1, 1, (0.1, 0.9)),
    "cut off for longer": (2, 1, (1.2, 2.5)),
}
CONFIG = learner_hosts.CONFIG.format(global_batch=PLACES, micro_batch=1, interval=EVERY, keep=4)


class Meeting(Learners):
    name, lines_name = "trireme meet", "metrics.jsonl"

    def __init__(self, hosts, folder, lease):
        super().__init__(hosts, folder, lease)
        if not (self.folder / "tokens.bin").exists():
            prepare_random_tokens(hosts.program, self.folder)
        (self.folder / "learner.toml").write_text(CONFIG)
        self.hashes, self.seen, self.compared = {}, set(), 0
        self.address = f"{hosts.address(0)}:29500"

    def service_command(self):
        return [self.hosts.program, "meet", "--listen", self.address, "--learners", len(self.places), "--lease", self.lease]

    def learner_command(self, place):
        return [self.hosts.program, "train", self.folder / "learner.toml", "--threads", 1, f"--data.path={self.folder}/tokens",
                f"--output.folder={self.folder}/run-{place}", f"--parallel.learners={len(self.places)}",
                f"--outer.every={EVERY}", f"--outer.meeting={self.address}", f"--outer.place={place}"]

    def is_round(self, line):
        return "learner_loss" in line

    def poll(self):
        super().poll()
        for place in self.places:
            for manifest in self.folder.glob(f"run-{place}/checkpoints/step-*/manifest.json"):
                self.take_hash(place, manifest)

    def take_hash(self, place, manifest):
        """A round's checkpoint has the common weights under the model's names; digests are of all their bytes."""
        try:
            saved = manifest.stat().st_mtime_ns
            if (place, saved) in self.seen:
                return
            content = json.loads(manifest.read_text())
        except FileNotFoundError:  # removed meanwhile
            return
        self.seen.add((place, saved))
        own = ("optimizer.", *(f"learners.{each}." for each in self.places))
        digests = {name: [[chunk.split()[5] for chunk in piece["chunks"]] for piece in tensor["pieces"]]
                   for name, tensor in content["tensors"].items() if not name.startswith(own)}
        first = self.hashes.setdefault(content["step"], {})
        self.compared += bool(first) and place not in first
        first[place] = json.dumps(digests, sort_keys=True)

    def unequal(self):
        """Rounds after which two learners had other bits."""
        return sorted(step for step, of_places in self.hashes.items() if len(set(of_places.values())) > 1)

    def check_samples(self):
        """No step of a place counts twice: its part of the step's batch is a function of both.

        Within a process steps only grow, and one that has ended a round has trained each of its steps since the round before.
        The service's rounds grow too, and each names a learner once.
        """
        steps = set()
        for told in (self.folder / "service.out").read_text().split("learners meet at "):  # from each of its starts
            rounds = [line.split() for line in told.splitlines() if line.startswith("round of step ")]
            numbers = [int(words[3].rstrip(":")) for words in rounds]
            if any(after - before != EVERY for before, after in zip(numbers, numbers[1:])):
                raise RuntimeError(f"rounds do not follow each other: {numbers}")
            steps.update(numbers)
        checked = 0
        for place in self.places:
            begins = [*self.begins[place], float("inf")]
            for begin, end in zip(begins, begins[1:]):
                trained = [line for line in self.lines[place].all if begin <= line["time"] < end]
                numbers = [line["step"] for line in trained]
                if any(after <= before for before, after in zip(numbers, numbers[1:])):
                    raise RuntimeError(f"learner {place} did a step twice in one process: {numbers}")
                for line in filter(self.is_round, trained):
                    needed = range(line["step"] - EVERY + 1, line["step"] + 1)
                    if line["step"] not in steps or not set(needed) <= set(numbers):
                        raise RuntimeError(f"learner {place} ended the round of step {line['step']} with steps {numbers}")
                    checked += 1
        return checked

    def summary(self):
        return {"rounds": sum(len(each) > 1 for each in self.hashes.values()), "compared": self.compared, "unequal": self.unequal(),
                "ended_by_themselves": self.ended, "rounds_with_each_step_once": self.check_samples()}


class TorchFt(Learners):
    name, lines_name = "torchft", "lines.jsonl"
    python = ""

    def service_command(self):
        return [self.python, "-B", Path(__file__).parent / "torchft_learner.py", "lighthouse", self.hosts.address(0),
                int(self.lease * 1000)]

    def learner_command(self, place):
        (self.folder / f"run-{place}").mkdir(exist_ok=True)
        return [self.python, "-B", Path(__file__).parent / "torchft_learner.py", "learner", self.hosts.address(0),
                self.hosts.address(place + 1), place, EVERY, self.lines[place].path]

    def is_round(self, line):
        return "hash" in line

    def summary(self):
        """Learners that were in a round of the same number have the same hash, or the round counts as unequal."""
        begin = min(begins[0] for begins in self.begins.values())
        hashes, compared = {}, 0
        for place in self.places:
            for line in self.lines[place].all:
                if line["time"] > begin and self.is_round(line):
                    # Training begins anew when all are lost at a time: a number then comes again.
                    of_round = hashes.setdefault((line["run"], line["round"]), {})
                    compared += bool(of_round) and place not in of_round
                    of_round[place] = line["hash"]
        return {"rounds": sum(len(each) > 1 for each in hashes.values()), "compared": compared, "ended_by_themselves": self.ended,
                "unequal": sorted(key for key, each in hashes.items() if len(set(each.values())) > 1)}


class Campaign:
    def __init__(self, system, seed):
        self.system, self.seed = system, seed
        self.file = system.folder / f"events-{seed}.jsonl"
        self.done = [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def hit(self, kind, places):
        for place in places:
            if kind.startswith("cut"):
                self.system.hosts.set_link(place + 1, "down")
            elif kind.startswith("stopped"):
                self.system.signal(place, signal.SIGSTOP)
            else:
                self.system.kill(place)

    def mend(self, kind, places):
        for place in places:
            if kind.startswith("cut"):
                self.system.hosts.set_link(place + 1, "up")
            elif kind.startswith("stopped"):
                self.system.signal(place, signal.SIGCONT)
            else:
                self.system.start(place)

    def await_rounds(self, begins):
        """When each place ended a round after its time; None for those that did not."""
        deadline = time.time() + PATIENCE
        while True:
            self.system.poll()
            found = {place: self.system.first(place, begin, end_of_round=True) for place, begin in begins.items()}
            if None not in found.values() or time.time() > deadline:
                return found
            time.sleep(0.02)

    def one_event(self, number):
        draw = random.Random(f"{self.seed}/{number}")
        self.watch(draw.uniform(0, 2))  # to come at any moment of a round
        kind = draw.choices(list(KINDS), [weight for weight, _, _ in KINDS.values()])[0]
        _, count, lasts = KINDS[kind]
        places = sorted(draw.sample(list(self.system.places), count))
        lasts = draw.uniform(*lasts) * self.system.lease
        others = [place for place in self.system.places if place not in places]
        ended = len(self.system.ended)
        begin = time.time()
        self.hit(kind, places)
        self.watch(begin + lasts - time.time())
        self.mend(kind, places)
        mended = time.time()
        rounds = self.await_rounds({place: begin for place in others} | {place: mended for place in places})
        hung = [place for place, when in rounds.items() if when is None]
        event = {"event": number, "kind": kind, "places": places, "lasts": round(lasts, 2), "hung": hung,
                 "ended": self.system.ended[ended:]}
        steps = [self.system.first(place, begin) for place in others]
        if None not in steps:
            event["next_step"] = max(steps) - begin
        if not set(hung) & set(others):
            event["next_round"] = max(rounds[place] for place in others) - begin
            event["pause"] = max(self.system.longest_pause(place, begin, rounds[place]) for place in others)
        if not set(hung) & set(places):
            event["back"] = max(rounds[place] for place in places) - mended
        return event

    def watch(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            self.system.poll()
            time.sleep(0.02)

    def run(self, num_events):
        """The events, and what the system says of its rounds."""
        system = self.system
        try:
            self.start_all()
            for number in range(len(self.done), num_events):
                event = self.one_event(number)
                self.done.append(event)
                with self.file.open("a") as file:
                    file.write(json.dumps(event) + "\n")
                print(f"[{number + 1}/{num_events}] {system.name}: {event['kind']} {event['places']}, " +
                      ", ".join(f"{key} {event[key]:.2f} s" for key in ("next_step", "next_round", "pause", "back") if key in event) +
                      (f", HUNG {event['hung']}" if event["hung"] else "") + (f", ENDED {event['ended']}" if event["ended"] else ""),
                      flush=True)
                if event["hung"]:  # all begin again, so that the next event is one of a training that runs
                    system.end()
                    self.start_all()
            summary = system.summary()
        finally:
            system.end()
        with (system.folder / f"summary-{self.seed}.jsonl").open("a") as file:
            file.write(json.dumps(summary) + "\n")
        return summary

    def start_all(self):
        self.system.start_service()
        for place in self.system.places:
            self.system.start(place)
        now = time.time()
        late = [place for place, when in self.await_rounds({place: now for place in self.system.places}).items() if when is None]
        if late:
            raise RuntimeError(f"learners {late} ended no round within {PATIENCE} s of their start, see {self.system.folder}")


def rows_of(system, events):
    rows = []
    for kind in [*KINDS, "all"]:
        found = [event for event in events if kind in ("all", event["kind"])]
        if not found:
            continue
        cells = [system, kind, str(len(found)), str(sum(bool(event["hung"]) for event in found)),
                 str(sum(len(event["ended"]) for event in found))]
        for key in ("next_step", "next_round", "pause", "back"):
            values = [event[key] for event in found if key in event]
            cells.append(f"{statistics.median(values):.1f} / {max(values):.1f}" if values else "")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def report(campaigns, seed):
    text = (f"# Learners killed, stopped and cut off, {datetime.date.today()}\n\n{PLACES} learners on hosts of their own (50 Mbit/s, "
            f"20 ms round trip), rounds of {EVERY} steps, a lease (torchft: heartbeat timeout) of {LEASE:g} s, seed {seed}. "
            "Seconds are medians / worst.\n\n| system | learners were | events | hung | ended by themselves | others' next step | "
            "others' next round | others' longest pause | own next round after the fault |\n" + "|---" * 9 + "|\n")
    for campaign in campaigns:
        text += "\n".join(rows_of(campaign.system.name, campaign.done)) + "\n"
    text += "\n| system | rounds compared | comparisons | unequal |\n|---|---|---|---|\n"
    for campaign in campaigns:
        summaries = [json.loads(line) for line in
                     (campaign.system.folder / f"summary-{seed}.jsonl").read_text().splitlines()]
        counts = [sum(each) for each in zip(*[(one["rounds"], one["compared"], len(one["unequal"])) for one in summaries])]
        text += f"| {campaign.system.name} | " + " | ".join(map(str, counts)) + " |\n"
    return text


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # learners end with it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/learner_kills")
    parser.add_argument("--torchft", metavar="PYTHON", help="a Python that has torchft: its learners too")
    args = parser.parse_args()
    TorchFt.python = args.torchft and os.path.abspath(args.torchft)
    args.folder.mkdir(parents=True, exist_ok=True)
    campaigns = []
    for kind in (Meeting, TorchFt) if args.torchft else (Meeting,):
        with Hosts(args.trireme.resolve(), args.folder, PLACES) as hosts:
            campaigns.append(Campaign(kind(hosts, args.folder / kind.name.split()[-1], LEASE), args.seed))
            print(json.dumps(campaigns[-1].run(args.events)), flush=True)
    text = report(campaigns, args.seed)
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-learner-kills.md", text)


if __name__ == "__main__":
    main()
