#!/usr/bin/env python3
"""Checks the length of sources, comments and folders.

Fails at 500 lines; at a library source above 400 lines without a comment at its top that begins with
"Length:" and says why; at a comment line of more than 100 columns, which clang-format leaves alone;
at a folder of trireme/ with more than 15 units (a .h and its .cc are one). Warns above 250 lines (.cc)
and 120 (.h).
"""

import sys

from source_files import Report, repository_files, root_argument

LIMIT = 500
REASON_ABOVE = 400
UNITS = 15
COLUMNS = 100
AIMS = {".cc": 250, ".h": 120}


def main():
    root = root_argument(__doc__)
    report, units = Report(), {}
    files = repository_files(root, ".cc", ".h", ".py", ".sh", ".cmake", "CMakeLists.txt")
    for path in files:
        text = (root / path).read_text()
        lines = text.count("\n")
        aim = AIMS.get(path.suffix, LIMIT)
        if lines >= LIMIT:
            report.error(path, lines, f"has {lines} lines, {LIMIT} or more", "split it by what it does")
        elif lines > aim:
            report.warn(path, lines, f"{lines} lines; aim for {aim}")
        if path.suffix in AIMS and path.parts[0] == "trireme":
            units.setdefault(path.parent, set()).add(path.stem)
            if lines > REASON_ABOVE and not text.startswith("// Length: "):
                report.error(path, 1, f"has {lines} lines, more than {REASON_ABOVE}",
                             "split it, or begin it with '// Length: why'")
        if path.suffix in AIMS:
            for number, line in enumerate(text.splitlines(), 1):
                if len(line) > COLUMNS and line.lstrip().startswith("//") and " " in line[3:COLUMNS]:
                    report.error(path, number, f"a comment of {len(line)} columns",
                                 f"break it at {COLUMNS}")
    for folder, names in sorted(units.items()):
        if len(names) > UNITS:
            report.error(folder, 1, f"has {len(names)} units, more than {UNITS}", "make rooms of them")
    return report.finish("length", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
