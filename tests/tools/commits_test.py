"""tools/check_commits.py: each rule of a commit's message, with the base, without it, and without git."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_commits  # noqa: E402

GOOD = "Add oars\n\nThe hull drifts without them. Checked by rowing.\n"


class Commits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trireme commits ")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def git(self, *arguments, seconds=check_commits.BASE_SECONDS + 60):
        date = f"{seconds} +0000"
        return subprocess.run(
            ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True,
            capture_output=True, text=True, env={**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}).stdout

    def commit(self, message, **when):
        self.git("commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", message, **when)

    def check(self, **environment):
        return subprocess.run([sys.executable, "-B", str(TOOLS / "check_commits.py"), "--root", str(self.root)],
                              capture_output=True, text=True, env={**os.environ, **environment})

    def assert_passes(self, words, **environment):
        result = self.check(**environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(words, result.stdout)

    def assert_fails(self, *words):
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_messages_after_the_base(self):
        self.git("init", "-q")
        self.commit(GOOD)
        self.assert_passes("commits: 1 messages, 0 problems")
        self.commit("x" * 72 + "\n\nBecause.\n")
        self.assert_passes("commits: 2 messages")
        self.commit("x" * 73 + "\n\nBecause.\n")
        self.assert_fails("'" + "x" * 73 + "' has a subject of 73 characters; say it in at most 72")

    def test_a_body_is_below_a_blank_line(self):
        self.git("init", "-q")
        self.commit("Add oars")
        self.assert_fails("'Add oars' has no body")
        self.git("commit", "-q", "--allow-empty", "--amend", "-m", "Add oars\n\nCo-authored-by: b <b@c>")
        self.assert_fails("has no body")
        self.git("commit", "-q", "--allow-empty", "--amend", "--cleanup=verbatim", "-m", "Add oars\nBecause.\n")
        self.assert_fails("has text in the second line")

    def test_older_commits_and_merges_are_left_out(self):
        self.git("init", "-q")
        self.commit("Old", seconds=check_commits.BASE_SECONDS)
        self.git("branch", "side")
        self.commit(GOOD)
        self.git("checkout", "-q", "side")
        self.commit(GOOD.replace("oars", "sails"))
        self.git("merge", "-q", "--no-edit", "-")
        self.assert_passes("commits: 2 messages, 0 problems")

    def test_nothing_to_check(self):
        self.assert_passes("no git history")
        self.git("init", "-q")
        self.assert_passes("no git history")
        self.commit("No body")
        self.assert_fails("has no body")
        self.assert_passes("no git history", PATH="/nonexistent")
        (self.root / "copy").mkdir()
        self.root = self.root / "copy"
        self.assert_passes("no git history")


if __name__ == "__main__":
    unittest.main()
