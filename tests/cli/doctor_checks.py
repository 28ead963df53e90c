"""What `trireme doctor` must say of a run, whatever transport its ranks talk over."""
import json
import os
import re
import signal
import time

from program import TIMEOUT, ProgramTest

DONE, USER, LOST = 0, 2, 3


def waiting_ranks(report):
    """The ranks that the findings of `report` say wait in a call, sorted."""
    texts = [named for finding in report["findings"] for named in re.findall(r"ranks? ([\d, and]+) waits? in", finding["text"])]
    return sorted({int(rank) for text in texts for rank in re.findall(r"\d+", text)})


class DoctorTest(ProgramTest):
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

    def check_stopped_rank(self, pids, rank):
        """`rank` of the ranks with these process ids is stopped, named, and goes on."""
        others = sorted(other for other in pids if other != rank)
        os.kill(pids[rank], signal.SIGSTOP)
        # Named at once; a moment later with the calls that the others wait in: of one all do, but a rank of another
        # host may have gone on to the next.
        code, report = self.doctor_until(
            lambda report: report["findings"][0]["kind"] == "stopped" and waiting_ranks(report) == others)
        self.assertEqual((code, report["healthy"]), (LOST, False))
        self.assertEqual(report["findings"][0]["ranks"], [rank])
        self.assertEqual(report["ranks"][rank]["process"], "stopped")
        self.assertRegex(self.text().splitlines()[0],
                         rf"rank {rank} is stopped: process {pids[rank]} on .+; "
                         rf"ranks? .+ waits? in \w+ #\d+ of group .+ since .+ UTC \(.+ s\)")
        os.kill(pids[rank], signal.SIGCONT)
        code, report = self.doctor_until(lambda report: report["findings"][0]["kind"] == "progress")
        self.assertEqual((code, report["healthy"]), (DONE, True))
        self.assertIn("calls a second", report["findings"][0]["text"])

    def check_killed_rank(self, processes, pids, victim, code=LOST, dies_alone=True):
        """`victim` is killed, `processes` end with `code`, and the rank is named: first when it `dies_alone`."""
        os.kill(pids[victim], signal.SIGKILL)
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT)
            if process.pid != pids[victim]:
                self.assertEqual(process.returncode, code, errors)
        code, report = self.doctor()
        self.assertEqual(code, LOST)
        died = [finding["ranks"] for finding in report["findings"] if finding["kind"] == "died"]
        self.assertEqual(died if dies_alone else sorted(died), [[victim]] if dies_alone else [[r] for r in sorted(pids)])
        self.assertEqual(report["findings"][0]["kind"], "died", report)
        self.assertEqual(report["ranks"][victim]["process"], "gone")
        self.assertIn(f"rank {victim} died: process {pids[victim]} on ", self.text())
