#!/usr/bin/env python3
"""Checks the length of sources and of their comments: fails at 500 lines, and at a comment's line of
more than 100 columns, which clang-format leaves alone; warns above 250 lines (.cc) and 120 (.h)."""

import sys

from source_files import Report, repository_files, root_argument

LIMIT = 500
COLUMNS = 100
AIMS = {".cc": 250, ".h": 120}


def main():
    root = root_argument(__doc__)
    report = Report()
    files = repository_files(root, ".cc", ".h", ".py", ".sh", ".cmake", "CMakeLists.txt")
    for path in files:
        text = (root / path).read_text()
        lines = text.count("\n")
        aim = AIMS.get(path.suffix, LIMIT)
        if lines >= LIMIT:
            report.error(path, lines, f"has {lines} lines, {LIMIT} or more", "split it by what it does")
        elif lines > aim:
            report.warn(path, lines, f"{lines} lines; aim for {aim}")
        if path.suffix in AIMS:
            for number, line in enumerate(text.splitlines(), 1):
                if len(line) > COLUMNS and line.lstrip().startswith("//") and " " in line[3:COLUMNS]:
                    report.error(path, number, f"a comment of {len(line)} columns",
                                 f"break it at {COLUMNS}")
    return report.finish("length", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
