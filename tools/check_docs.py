#!/usr/bin/env python3
"""Checks that every relative link in a Markdown file leads to a file of the repository and to a heading that it has; that
a page which a source names (docs/guide/run.md) is there; and that commands run no program of the build tree that the
reader has not built: `make build` builds trireme, and the same block builds any other."""

import re
import sys
from urllib.parse import unquote

from source_files import Report, repository_files, root_argument

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
PAGE = re.compile(r"(?:(?<![\w./-])|(?<=\}/))docs/[\w./-]+\.md\b")
PROGRAM = re.compile(r"^(?: {4}|\t)(.*?)\bbuild/release/bin/(\w+)")


def anchors(text):
    """The anchors that GitHub makes of the headings: lower case, words joined by dashes, a number behind a repetition."""
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = 0
        while anchor in found:
            count += 1
            anchor = f"{base}-{count}"
        found.add(anchor)
    return found


def unbuilt_programs(text):
    """(line, program) of commands that run what no line of their indented block has built."""
    built = set()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith(("    ", "\t")):
            built = {"trireme"}
            continue
        built.update(word for words in re.findall(r"--target ([\w ]+)|tools/build\.sh release ([\w ]+)", line)
                     for word in " ".join(words).split())
        match = PROGRAM.match(line)
        if match and match.group(2) not in built:
            yield number, match.group(2)


def main():
    root = root_argument(__doc__).resolve()
    report = Report()
    files = repository_files(root, ".md")
    for path in files:
        text = (root / path).read_text()
        text = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        for match in LINK.finditer(text):
            link = match.group(1) or match.group(2)
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
                continue
            line = text.count("\n", 0, match.start()) + 1
            name, _, anchor = link.partition("#")
            target = ((root / path).parent / unquote(name)).resolve() if name else (root / path).resolve()
            if not target.exists() or not target.is_relative_to(root):
                report.error(path, line, f"link to {link} leads nowhere", "correct it or write the file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                report.error(path, line, f"link to {link}: no such heading", "correct it")
        for number, program in unbuilt_programs((root / path).read_text()):
            report.error(path, number, f"runs {program}, which is not built",
                         f"begin with cmake --build build/release --target {program}")
    sources = repository_files(root, ".h", ".cc", ".py", ".sh", ".cmake", ".toml", "CMakeLists.txt", "Makefile")
    for path in sources:
        if path.parts[:2] == ("tests", "tools"):
            continue  # they name pages of their own
        text = (root / path).read_text()
        for match in PAGE.finditer(text):
            if not (root / match.group()).is_file():
                report.error(path, text.count("\n", 0, match.start()) + 1, f"names {match.group()}, which is not there",
                             "docs/README.md lists the pages")
    return report.finish("docs", f"{len(files)} files, {len(sources)} sources")


if __name__ == "__main__":
    sys.exit(main())
