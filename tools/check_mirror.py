#!/usr/bin/env python3
"""Checks that tests/ mirrors trireme/, and that every source and test is listed in its CMakeLists.

A PUBLIC header with a source is included by a test, tests/<layer>/<unit>_test.cc by custom; one
without a source at least by a header that a test includes.
"""

import re
import sys

from check_layers import headers_of
from source_files import Report, repository_files, root_argument

INCLUDE = re.compile(r'^#include "(trireme/[^"]+)"', re.MULTILINE)


def listed(cmake, name):
    text = re.sub(r"#[^\n]*", "", cmake.read_text()) if cmake.is_file() else ""
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", text) is not None


def listing(root, path):
    """The nearest CMakeLists.txt above `path`, and the path as it must stand there."""
    for folder in path.parents:
        if (root / folder / "CMakeLists.txt").is_file():
            return folder / "CMakeLists.txt", str(path.relative_to(folder))
    return path.parent / "CMakeLists.txt", path.name


def main():
    root = root_argument(__doc__)
    report = Report()
    files = repository_files(root, ".h", ".cc")
    public = headers_of(root, "PUBLIC")
    includes = {str(path): set(INCLUDE.findall((root / path).read_text())) for path in files}
    tested = set().union(*(names for path, names in includes.items() if path.startswith("tests/")))
    for path in files:
        test = "/".join(("tests", *path.parts[1:-1], f"{path.stem}_test.cc"))
        if str(path) in public and str(path) not in tested and test not in includes:
            has_source = str(path.with_suffix(".cc")) in includes
            if has_source or not any(str(path) in includes.get(name, ()) for name in tested):
                report.error(path, 1, "is PUBLIC and no test includes it",
                             f"write {test}")
        if path.parts[0] == "trireme" or (path.parts[0] == "tests" and path.name.endswith("_test.cc")):
            cmake, name = listing(root, path)
            if not listed(root / cmake, name):
                report.error(path, 1, f"is not listed in {cmake}", "list it, or delete the file")
    return report.finish("mirror", f"{len(public)} public headers")


if __name__ == "__main__":
    sys.exit(main())
