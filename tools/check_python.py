#!/usr/bin/env python3
"""Checks that every script can be parsed: those of long tests and benchmarks run rarely."""

import ast
import sys

from source_files import Report, repository_files, root_argument


def main():
    root = root_argument(__doc__)
    report = Report()
    paths = repository_files(root, ".py")
    for path in paths:
        try:
            ast.parse((root / path).read_text(), str(path))
        except SyntaxError as error:
            report.error(path, error.lineno or 1, error.msg, "run it")
    return report.finish("python", f"{len(paths)} scripts")


if __name__ == "__main__":
    sys.exit(main())
