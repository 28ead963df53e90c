"""`trireme doctor` on real runs: finished, going on, with a stopped rank, with a killed one."""
import json
import os
import signal
import time
import unittest

from program import TIMEOUT, ProgramTest, children

DONE, USER, LOST = 0, 2, 3


class Doctor(ProgramTest):
    def doctor(self, *arguments):
        """(exit code, parsed JSON)"""
        result = self.run_program("doctor", "run", "--json", *arguments)
        self.assertEqual(result.stderr, "")
        return result.returncode, json.loads(result.stdout)

    def doctor_until(self, condition):
        """The first (exit code, report) for which `condition(report)`; only a failure reaches the limit."""
        limit = time.monotonic() + TIMEOUT
        while True:
            code, report = self.doctor()
            if condition(report):
                return code, report
            self.assertLess(time.monotonic(), limit, report)

    def text(self, *arguments):
        result = self.run_program("doctor", "run", *arguments)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def start_training(self, ranks=2, *overrides):
        """A run that goes on, and its ranks' process ids by rank."""
        process = self.start_a_step("train", "tiny.toml", "--ranks", ranks, "--train.steps=1000000", *overrides)
        _, report = self.doctor()
        pids = {rank["rank"]: rank["process_id"] for rank in report["ranks"]}
        self.assertEqual(sorted(pids.values()), sorted(children(process.pid)))
        return process, pids

    def test_a_finished_run_is_healthy(self):
        for ranks in (2, 1):  # the second resumes, and finds nothing more to do
            with self.subTest(ranks=ranks):
                self.succeed("train", "tiny.toml", "--ranks", ranks)
                code, report = self.doctor()
                self.assertEqual((code, report["healthy"]), (DONE, True))
                self.assertEqual([finding["kind"] for finding in report["findings"]], ["finished"])
                self.assertEqual(report["findings"][0]["ranks"], list(range(ranks)))
                self.assertEqual([rank["process"] for rank in report["ranks"]], ["ended"] * ranks)
                self.assertRegex(self.text(), r"\Afinished: rank[^\n]+ none of which failed\n\Z")

    def test_a_stopped_rank_is_named_while_the_run_lives(self):
        process, pids = self.start_training()
        for rank in (1, 0):
            with self.subTest(rank=rank):
                os.kill(pids[rank], signal.SIGSTOP)
                # Named at once; a moment later with the call that the other rank waits in.
                code, report = self.doctor_until(
                    lambda report: report["findings"][0]["kind"] == "stopped" and
                    "operation" in report["findings"][0])
                self.assertEqual((code, report["healthy"]), (LOST, False))
                self.assertEqual(report["findings"][0]["ranks"], [rank])
                self.assertEqual(report["ranks"][rank]["process"], "stopped")
                self.assertRegex(self.text().splitlines()[0],
                                 rf"rank {rank} is stopped: process {pids[rank]} on .+; "
                                 rf"rank {1 - rank} waits in \w+ #\d+ of group .+ since .+ UTC \(.+ s\)")
                os.kill(pids[rank], signal.SIGCONT)
                code, report = self.doctor_until(
                    lambda report: report["findings"][0]["kind"] == "progress")
                self.assertEqual((code, report["healthy"]), (DONE, True))
                self.assertIn("calls a second", report["findings"][0]["text"])
        self.assertIsNone(process.poll())

    def test_a_rank_that_comes_too_late_ends_the_run_and_is_named(self):
        process, pids = self.start_training(2, "--parallel.timeout_seconds=2")
        os.kill(pids[1], signal.SIGSTOP)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, LOST, errors)
        self.assertRegex(errors, r"of group \S+ \(2 ranks\), after 2[.\d]* s: [^\n]*rank 1")
        self.assertEqual(self.segments(), [])

    def test_a_killed_rank_is_named_after_the_run(self):
        for victim in (1, 0):
            with self.subTest(victim=victim):
                process, pids = self.start_training()
                os.kill(pids[victim], signal.SIGKILL)
                _, errors = process.communicate(timeout=TIMEOUT)
                self.assertEqual(process.returncode, LOST, errors)
                code, report = self.doctor()
                self.assertEqual(code, LOST)
                first = report["findings"][0]
                self.assertEqual((first["kind"], first["ranks"]), ("died", [victim]), report)
                self.assertEqual(report["ranks"][victim]["process"], "gone")
                self.assertTrue(
                    self.text().startswith(f"rank {victim} died: process {pids[victim]} on "))

    def test_a_killed_launcher_takes_all_ranks(self):
        process, pids = self.start_training()
        process.kill()
        process.communicate(timeout=TIMEOUT)
        code, report = self.doctor_until(
            lambda report: [rank["process"] for rank in report["ranks"]] == ["gone"] * 2)
        self.assertEqual(code, LOST)
        died = [finding["ranks"] for finding in report["findings"] if finding["kind"] == "died"]
        self.assertEqual(sorted(died), [[0], [1]])

    def test_the_last_calls_are_listed(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        lines = self.text("--calls", 3).splitlines()
        self.assertEqual(len(lines), 1 + 2 * 4)
        self.assertRegex(lines[1], r"\Arank 0, process \d+ on .+ \(ended\):\Z")
        for line in lines[2:5]:
            self.assertRegex(line, r"\A +\d+\.\d{3} s ago  done     \w+ #\d+  \w+\(.*\)")
        _, report = self.doctor("--calls", 4)
        self.assertEqual([len(rank["calls"]) for rank in report["ranks"]], [4, 4])

    def test_what_cannot_be_read_is_one_line(self):
        self.fail_with(USER, ["nowhere", "no recorder folder"], "doctor", "nowhere")
        self.fail_with(USER, ["text", "no recorder folder"], "doctor", "text")
        self.fail_with(USER, ["--late-after", "-1"], "doctor", "run", "--late-after=-1")
        folder = self.folder / "run/recorder"
        folder.mkdir(parents=True)
        self.fail_with(USER, ["run/recorder", "no ring"], "doctor", "run")
        self.succeed("train", "tiny.toml")
        path = folder / "rank-00000.ring"
        whole = path.read_bytes()
        for content, words in ((whole[:-1], ["corrupt"]), (b"text", ["no recorder's ring"]),
                               (whole[:8] + b"\2" + whole[9:], ["format 2", "up to 1"]),
                               (whole[:33] + b"\2" + whole[34:], ["corrupt", "checksum"])):
            path.write_bytes(content)
            self.fail_with(USER, ["rank-00000.ring", *words], "doctor", "run")
        path.write_bytes(whole)
        self.assertEqual(self.doctor()[0], DONE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
