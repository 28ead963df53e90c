#!/usr/bin/env python3
"""Checks the length of sources: fails at 500 lines; warns above 250 (.cc) and 120 (.h)."""

import sys

from source_files import Report, repository_files, root_argument

LIMIT = 500
AIMS = {".cc": 250, ".h": 120}


def main():
    root = root_argument(__doc__)
    report = Report()
    files = repository_files(root, ".cc", ".h", ".py", ".sh", ".cmake", "CMakeLists.txt")
    for path in files:
        lines = (root / path).read_bytes().count(b"\n")
        aim = AIMS.get(path.suffix, LIMIT)
        if lines >= LIMIT:
            report.error(path, lines, f"has {lines} lines, {LIMIT} or more", "split it by what it does")
        elif lines > aim:
            report.warn(path, lines, f"{lines} lines; aim for {aim}")
    return report.finish("length", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
