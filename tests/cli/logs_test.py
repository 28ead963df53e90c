"""`trireme logs`, and the story of `trireme doctor`, on folders as `trireme run` leaves them."""
import datetime
import json
import signal
import subprocess
import unittest

from program import TIMEOUT, ProgramTest

DONE, USER, LOST = 0, 2, 3
MORNING = datetime.datetime(2026, 11, 25, 7, tzinfo=datetime.timezone.utc)


def time_text(seconds):
    return (MORNING + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def line(seconds, text, stream="out", epoch=1, step=5):
    return f"{time_text(seconds)} {epoch} {step} {stream}| {text}\n"


def event(at, kind, **members):
    return json.dumps({"time": time_text(at), "event": kind, **members}) + "\n"


EVENTS = (event(0, "start", epoch=1, step=0) + event(10, "recovery", epoch=1, step=1) +
          event(110, "failure", epoch=1, step=101, rank=3, host="b", cause="killed") +
          event(112, "start", epoch=2, step=101) + event(115, "recovery", epoch=2, step=92, seconds=5))


class LogsTest(ProgramTest):
    def prepare(self):
        (self.folder / "run/logs").mkdir(parents=True)

    def put(self, name, text):
        (self.folder / "run" / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def append(self, name, text):
        with (self.folder / "run" / name).open("a") as file:
            file.write(text)

    def texts(self, *arguments):
        """The texts that `trireme logs` shows, by its JSON."""
        output = self.succeed("logs", "run", "--json", *arguments)
        return [json.loads(line)["text"] for line in output.splitlines()]


class Logs(LogsTest):
    def put_some(self):
        self.put("logs/rank-00000.log", line(1, "a") + line(4, "d", step="-"))
        self.put("logs/rank-00003.log", line(2, "ERROR: b", "err", 2, 50))
        self.put("logs/agent-host-b.log", line(3, "c", "agent", 2))

    def test_lines_of_all_files_are_merged(self):
        self.put_some()
        self.assertEqual(self.succeed("logs", "run").splitlines(),
                         ["2026-11-25T07:00:01.000000Z rank 0 epoch 1 step 5 out| a",
                          "2026-11-25T07:00:02.000000Z rank 3 epoch 2 step 50 err| ERROR: b",
                          "2026-11-25T07:00:03.000000Z agent host-b epoch 2 step 5 agent| c",
                          "2026-11-25T07:00:04.000000Z rank 0 epoch 1 out| d"])
        objects = [json.loads(text) for text in self.succeed("logs", "run", "--json").splitlines()]
        self.assertEqual(objects[1], {"time": time_text(2), "rank": 3, "epoch": 2, "step": 50, "stream": "err",
                                      "level": "error", "text": "ERROR: b"})
        self.assertEqual(objects[2]["host"], "host-b")
        self.assertNotIn("rank", objects[2])
        self.assertNotIn("step", objects[3])

    def test_lines_of_a_rank_after_its_epoch_are_marked(self):
        self.put("events.jsonl", EVENTS)
        self.put("logs/rank-00000.log", line(111, "before") + line(113, "paused") + line(113, "new", epoch=2))
        self.put("logs/agent-b.log", line(113, "said", "agent"))
        self.assertEqual(self.succeed("logs", "run").splitlines(),
                         [f"{time_text(111)} rank 0 epoch 1 step 5 out| before",
                          f"{time_text(113)} agent b epoch 1 step 5 agent| said",
                          f"{time_text(113)} rank 0 epoch 1 (stale) step 5 out| paused",
                          f"{time_text(113)} rank 0 epoch 2 step 5 out| new"])
        objects = [json.loads(text) for text in self.succeed("logs", "run", "--json").splitlines()]
        self.assertEqual([object.get("stale", False) for object in objects], [False, False, True, False])

    def test_filters(self):
        self.put_some()
        self.assertEqual(self.texts("--rank", "3"), ["ERROR: b"])
        self.assertEqual(self.texts("--rank", "1-5"), ["ERROR: b"])
        self.assertEqual(self.texts("--rank=0,3"), ["a", "ERROR: b", "d"])
        self.assertEqual(self.texts("--since", "2026-11-25T07:00:03"), ["c", "d"])
        self.assertEqual(self.texts("--grep", "^[ab]$|b"), ["a", "ERROR: b"])
        self.assertEqual(self.texts("--level", "error"), ["ERROR: b"])
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.append("logs/rank-00000.log", f"{now} 1 6 out| now\n")
        self.assertEqual(self.texts("--since", "10m"), ["now"])
        self.assertEqual(self.texts("--grep", "nowhere"), [])

    def test_nothing_of_a_log_reaches_the_terminal_or_breaks_json(self):
        hostile = b"\x1b[2J\x1b]0;title\x07\xff\xc2\x9b31m\x00\rx\ttab"
        self.put("logs/rank-00000.log", line(1, "").encode()[:-1] + hostile + b"\n" + hostile * 10000)
        shown = self.succeed("logs", "run")
        self.assertIn("\\x1b[2J", shown)
        self.assertIn("\ttab", shown)
        for character in "\x1b\x07\x9b\x00\r":
            self.assertNotIn(character, shown)
        self.assertGreater(len(self.texts()), 5)
        self.fail_with(USER, ["\\x1b[2J", "not a folder"], "logs", "\x1b[2J")

    def test_half_written_and_foreign_files(self):
        self.put_some()
        self.append("logs/rank-00003.log", "2026-11-25T07:0")
        for name in ("notes", "rank-3.log", "rank-00001.log.gz"):
            self.put("logs/" + name, "x\n")
        (self.folder / "run/events.jsonl").write_bytes(b"\0{\n" * 100)
        self.assertEqual(self.texts(), ["a", "ERROR: b", "2026-11-25T07:0", "c", "d"])

    def test_what_cannot_be_shown_is_one_line(self):
        self.fail_with(USER, ["nowhere", "not a folder"], "logs", "nowhere")
        (self.folder / "other").mkdir()
        self.fail_with(USER, ["other", "no logs", "trireme run"], "logs", "other")
        self.put_some()
        self.fail_with(USER, ["--grep", "("], "logs", "run", "--grep", "(")
        self.fail_with(USER, ["--grep", "repeats"], "logs", "run", "--grep", "a{999}{999}")
        self.fail_with(USER, ["--rank", "x"], "logs", "run", "--rank", "x")
        self.fail_with(USER, ["--rank 7"], "logs", "run", "--rank", "7")
        self.fail_with(USER, ["--since", "soon"], "logs", "run", "--since", "soon")
        self.fail_with(USER, ["--level", "loud", "warning"], "logs", "run", "--level", "loud")
        (self.folder / "run/logs/rank-00009.log").mkdir()
        self.fail_with(USER, ["rank-00009.log"], "logs", "run")

    def test_follow_ends_with_the_run(self):
        self.put("events.jsonl", event(0, "start", epoch=1, step=0))
        process = self.start("logs", "run", "--follow", "--json")

        def next_text():
            return json.loads(process.stdout.readline())["text"]
        self.append("logs/rank-00000.log", line(1, "a"))
        self.assertEqual(next_text(), "a")
        self.append("logs/rank-00001.log", line(2, "b"))
        self.assertEqual(next_text(), "b")
        # Rotated while it is followed.
        (self.folder / "run/logs/rank-00000.log").rename(self.folder / "run/logs/rank-00000.log.1")
        self.append("logs/rank-00000.log", line(3, "c"))
        self.assertEqual(next_text(), "c")
        self.append("logs/rank-00001.log", line(4, "d"))
        self.append("events.jsonl", event(9, "end", epoch=1, step=5))
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (DONE, ""))
        self.assertEqual([json.loads(text)["text"] for text in output.splitlines()], ["d"])

    def test_a_follower_can_be_stopped(self):
        self.put_some()
        process = self.start("logs", "run", "--follow")
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_a_large_log_takes_little_memory(self):
        text = "".join(line(second, "x" * 1000) for second in range(1000))
        for rank in range(4):
            with (self.folder / f"run/logs/rank-0000{rank}.log").open("w") as file:
                for _ in range(20):
                    file.write(text)
        few = self.peak("--since", "2026-11-26", expected=0)
        self.assertLessEqual(self.peak(expected=80000), few + 1)  # the text is 80 MiB

    def peak(self, *arguments, expected):
        """The most memory that the program takes, in units of 64 MiB; it shows `expected` lines."""
        script = ("import resource, subprocess, sys; "
                  "lines = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout.count(b'\\n'); "
                  "print(lines, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 65536)")
        result = subprocess.run(["python3", "-c", script, self.program, "logs", "run", *arguments], cwd=self.folder,
                                env=self.environment, capture_output=True, text=True, check=True)
        lines, peak = map(int, result.stdout.split())
        self.assertEqual(lines, expected)
        return peak


class Story(LogsTest):
    def test_doctor_tells_the_story_of_a_program_without_a_recorder(self):
        self.put("events.jsonl", EVENTS + event(3715, "end", epoch=2, step=3692))
        shown = self.succeed("doctor", "run")
        self.assertIn("goodput 99.3 %: 1h 01m of 1h 01m in steps that were kept", shown)
        self.assertIn("lost    15.0 s: killed, 1 time, 5.0 s until the next step, 10 steps repeated, 10.0 s", shown)
        report = json.loads(self.succeed("doctor", "run", "--json"))
        self.assertTrue(report["healthy"])
        self.assertAlmostEqual(report["story"]["goodput"], 3690 / 3715)
        self.assertEqual(report["story"]["hosts"], [{"host": "b", "failures": 1}])

    def test_a_run_that_ended_with_a_failure_is_not_healthy(self):
        self.put("events.jsonl", EVENTS + event(120, "end", epoch=2, step=95, cause="three deaths at step 95"))
        result = self.run_program("doctor", "run", "--json")
        self.assertEqual(result.returncode, LOST)
        self.assertFalse(json.loads(result.stdout)["healthy"])

    def test_hostile_events_are_shown_safely(self):
        self.put("events.jsonl", EVENTS.replace("killed", "\\u001b[2J") + "\0\x1b[2J\n" + "[" * 100000)
        result = self.run_program("doctor", "run")
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        self.assertNotIn("\x1b", result.stdout)
        self.assertIn("unreadable", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
