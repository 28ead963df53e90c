#!/usr/bin/env python3
"""Writes docs/reference/operators.md: the operators that have a rule for split tensors.

    tools/operators_page.py build/release/bin/spmd_test            # write
    tools/operators_page.py build/release/bin/spmd_test --check    # exit 1 if the page differs

The page is made of the rules, in trireme/spmd/operator_table.cc; a test of the program checks it.
"""
import os
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reference" / "operators.md"


def main():
    program, check = sys.argv[1], "--check" in sys.argv[2:]
    environment = dict(os.environ)
    if not check:
        environment["TRIREME_OPERATORS_PAGE"] = str(PAGE)
    run = [program, "--gtest_filter=OperatorTable.IsThePageOfTheReference"]
    return subprocess.run(run, env=environment, stdout=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
