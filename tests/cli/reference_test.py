"""The reference pages say what the program says: see tools/reference_pages.py."""
import os
import pathlib
import subprocess
import sys
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "reference_pages.py"


class Pages(unittest.TestCase):
    def test_that_they_are_those_of_the_help(self):
        checked = subprocess.run([sys.executable, "-B", TOOL, os.environ["TRIREME_PROGRAM"], "--check"], capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
