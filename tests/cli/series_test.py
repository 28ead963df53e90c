"""What a run writes for those who look at it: the series of ranks and, without an agent, the events."""
import json
import math
import os
import signal
import struct
import unittest

from program import TIMEOUT, ProgramTest, rank_of

HEADER = struct.Struct("<8sIIQQqqqII")  # docs/design/series-format.md


def names_at(data, at):
    count, = struct.unpack_from("<I", data, at)
    at += 4
    names = []
    for _ in range(count):
        size, = struct.unpack_from("<H", data, at)
        names.append(data[at + 2:at + 2 + size].decode())
        at += 2 + size
    return names, at


def read_series(path):
    """([(step, [{column: value} by rank])], [(step, axis, waiter, awaited, seconds)])"""
    data = path.read_bytes()
    rows, waits, at = [], [], 0
    while at + HEADER.size <= len(data):
        magic, kind, _, size, _, _, _, _, count, _ = HEADER.unpack_from(data, at)
        assert magic == b"TRISERI1", magic
        payload = data[at + HEADER.size:at + HEADER.size + size]
        at += HEADER.size + size
        if len(payload) < size:
            break
        if kind == 3:
            axes, begin = names_at(payload, 0)
            for i in range(count):
                step, waiter, awaited, axis, seconds = struct.unpack_from("<qiiIf", payload, begin + 24 * i)
                waits.append((step, axes[axis], waiter, awaited, seconds))
            continue
        assert kind == 1, kind
        ranks, = struct.unpack_from("<I", payload, 0)
        columns, begin = names_at(payload, 4)
        steps = struct.unpack_from(f"<{count}q", payload, begin)
        values = struct.unpack_from(f"<{count * ranks * len(columns)}f", payload, begin + 8 * count)
        assert begin + 8 * count + 4 * len(values) == size
        for i, step in enumerate(steps):
            of_step = values[i * ranks * len(columns):(i + 1) * ranks * len(columns)]
            rows.append((step, [dict(zip(columns, of_step[rank * len(columns):])) for rank in range(ranks)]))
    return rows, waits


class Series(ProgramTest):
    def train(self, *options, steps=20):
        self.succeed("train", "tiny.toml", "--threads=1", f"--train.steps={steps}", *options)

    def series(self):
        return read_series(self.folder / "run/series/ranks.trs")

    def events(self):
        return [json.loads(line) for line in (self.folder / "run/events.jsonl").read_text().splitlines()]

    def test_every_rank_and_step_is_there(self):
        self.train("--ranks=2", "--checkpoint.interval=0")
        rows, waits = self.series()
        self.assertEqual([step for step, _ in rows], list(range(1, 21)))
        metrics = self.metrics("run")
        for (step, ranks), line in zip(rows, metrics):
            self.assertEqual(len(ranks), 2)
            self.assertAlmostEqual(max(rank["step_seconds"] for rank in ranks) / line["step_seconds"], 1, delta=1e-4)
            for rank in ranks:
                parts = rank["own_seconds"] + rank["data_seconds"] + rank["wait_seconds"]
                self.assertLessEqual(rank["step_seconds"], parts * 1.001)
                self.assertLessEqual(rank["communication_seconds/data"], rank["wait_seconds"] * 1.001)
                self.assertGreater(rank["tokens"], 0)
                self.assertGreater(rank["memory_bytes/weights"], 0)
                self.assertFalse(math.isnan(rank["peak_bytes"]))
        self.assertEqual({wait[0] for wait in waits} - {16, 20}, set())
        for _, _, waiter, awaited, seconds in waits:
            self.assertEqual({waiter, awaited}, {0, 1})
            self.assertGreater(seconds, 0)

    def test_layouts_have_their_axes(self):
        self.train("--ranks=4", "--parallel.tensor=2", "--parallel.pipeline=2", "--train.micro_batch=1",
                   "--checkpoint.interval=0", steps=16)
        rows, waits = self.series()
        axes = {column for column in rows[0][1][0] if column.startswith("communication")}
        self.assertEqual(axes, {"communication_seconds/tensor", "communication_seconds/pipeline"})
        self.assertTrue({wait[1] for wait in waits} & {"tensor", "pipeline"}, waits)

    def test_a_resume_cuts_and_goes_on(self):
        self.train("--ranks=2", steps=10)
        self.train("--ranks=1", steps=20)
        rows, _ = self.series()
        self.assertEqual([(step, len(ranks)) for step, ranks in rows],
                         [(step, 2 if step <= 10 else 1) for step in range(1, 21)])

    def test_the_key_switches_it_off(self):
        self.train("--watch.ranks=false", "--optimizer.warmup_steps=1", steps=2)
        self.assertFalse((self.folder / "run/series").exists())

    def test_events_tell_start_checkpoints_and_end(self):
        for ranks in (1, 2):
            self.train(f"--ranks={ranks}", "--checkpoint.interval=10", "--checkpoint.mode=sync",
                       f"--output.folder=run{ranks}")
            lines = (self.folder / f"run{ranks}/events.jsonl").read_text().splitlines()
            events = [event for event in map(json.loads, lines) if event.get("cause") != "alert"]  # of a busy machine
            self.assertEqual([event["event"] for event in events], ["start", "recovery", "notice", "notice", "end"])
            self.assertEqual([event.get("step") for event in events], [0, 1, 10, 20, 20])
            self.assertEqual(events[-1]["text"], "finished")

    def test_a_killed_rank_is_in_the_events(self):
        process = self.start("train", "tiny.toml", "--ranks=2", "--threads=1", "--train.steps=1000000",
                             "--checkpoint.interval=0")
        self.await_step(3, process)
        os.kill(rank_of(process, 1), signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        events = [event for event in self.events() if event.get("cause") != "alert"]
        self.assertEqual([event["event"] for event in events], ["start", "recovery", "failure", "end"])
        self.assertEqual((events[2]["rank"], events[2]["cause"]), (1, "killed"))


if __name__ == "__main__":
    unittest.main()
