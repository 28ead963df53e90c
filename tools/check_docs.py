#!/usr/bin/env python3
"""Checks that every relative link in a Markdown file leads to a file of the repository."""

import re
import sys
from urllib.parse import unquote

from source_files import Report, repository_files, root_argument

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def main():
    root = root_argument(__doc__).resolve()
    report = Report()
    files = repository_files(root, ".md")
    for path in files:
        text = (root / path).read_text()
        text = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        for match in LINK.finditer(text):
            link = match.group(1) or match.group(2)
            if re.match(r"[a-z][a-z0-9+.-]*:|#|//", link):
                continue
            target = ((root / path).parent / unquote(link.split("#")[0])).resolve()
            if not target.exists() or not target.is_relative_to(root):
                report.error(path, text.count("\n", 0, match.start()) + 1,
                             f"link to {link} leads nowhere", "correct it or write the file")
    return report.finish("docs", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
