#!/usr/bin/env python3
"""cmake/test_suite.sh and ListTests.cmake: a test that fails, is skipped or never runs must not look green."""

import pathlib
import re
import subprocess
import tempfile
import unittest

CMAKE = pathlib.Path(__file__).resolve().parents[2] / "cmake"

# What a GoogleTest program prints, `die` after its second test.
PROGRAM = """#!/bin/sh
case $1 in
  --gtest_list_tests) printf 'Running main()\\nOars.\\n  Row\\n  Break\\n  Rest\\nSome/Crew.\\n  Size/0  # GetParam() = 3\\n'; exit ;;
esac
echo "asked for $1"
printf '[ RUN      ] Oars.Row\\n[       OK ] Oars.Row (0 ms)\\n'
printf '[ RUN      ] Oars.Break\\nsnap\\n[  FAILED  ] Oars.Break (1 ms)\\n'
%s
printf '[ RUN      ] Oars.Rest\\ntired\\n[  SKIPPED ] Oars.Rest (0 ms)\\n'
printf '[==========] 3 tests from 1 test suite ran. (1 ms total)\\n'
exit 1
"""


class Suite(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.write_program("")

    def write_program(self, middle):
        self.program = self.folder / "oars_test"
        self.program.write_text(PROGRAM % middle)
        self.program.chmod(0o755)

    def call(self, what, *arguments):
        return subprocess.run([CMAKE / "test_suite.sh", what, self.folder / "out.txt", *arguments], text=True,
                              capture_output=True, check=False)

    def test_each_test_has_its_own_result(self):
        run = self.call("run", self.program, "Oars.Row:Oars.Break")
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertIn("asked for --gtest_filter=Oars.Row:Oars.Break\n", run.stdout)
        self.assertEqual(self.call("result", "Oars.Row").returncode, 0)
        failed = self.call("result", "Oars.Break")
        self.assertEqual((failed.returncode, "snap" in failed.stdout, "tired" in failed.stdout), (1, True, False))
        self.assertEqual(self.call("result", "Oars.Rest").returncode, 77)
        for never in ("Oars.Ro", "Oars", "Oars.Drop"):
            self.assertEqual(self.call("result", never).returncode, 1)

    def test_a_program_that_dies_fails_its_suite(self):
        self.write_program("kill -9 $$")
        run = self.call("run", self.program, "Oars.Row")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stdout, "snap\n(.*\n)*.*ended with 137")
        self.write_program("exit 0")
        self.assertEqual(self.call("run", self.program, "Oars.Row").returncode, 1)
        # A sanitizer's exit status, with no test to blame.
        self.program.write_text(self.program.read_text().replace("FAILED  ", "      OK").replace("exit 0", ""))
        self.assertEqual(self.call("run", self.program, "Oars.Row").returncode, 1)

    def test_every_test_is_listed_with_its_suite(self):
        listing = self.folder / "list.cmake"
        subprocess.run(["cmake", "-D", f"program={self.program}", "-D", "filter=*", "-D", f"listing={listing}",
                        "-D", f"runner={CMAKE / 'test_suite.sh'}", "-D", "labels=oars;netns", "-D", "timeout=7",
                        "-P", CMAKE / "ListTests.cmake"], check=True)
        (self.folder / "CTestTestfile.cmake").write_text(f'include("{listing}")\n')
        result = subprocess.run(["ctest"], cwd=self.folder, text=True, capture_output=True, check=False)
        outcomes = dict(re.findall(r"Test +#\d+: (\S+(?: \S+)?) \.+\s*(\**\w+)", result.stdout))
        self.assertEqual(outcomes, {"oars_test: Oars": "Passed", "oars_test: Some/Crew": "Passed", "Oars.Row": "Passed",
                                    "Oars.Break": "***Failed", "Oars.Rest": "***Skipped",
                                    "Some/Crew.Size/0": "***Failed"}, result.stdout)
        labels = subprocess.run(["ctest", "-N", "-L", "^netns$"], cwd=self.folder, text=True, capture_output=True,
                                check=False)
        self.assertIn("Total Tests: 6", labels.stdout)


if __name__ == "__main__":
    unittest.main()
