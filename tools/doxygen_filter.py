#!/usr/bin/env python3
"""A header as doxygen wants it: `//` above or behind a declaration becomes `///` or `///<`.

The contract lines (Shapes:, Comm:, Collective:, Throws:, Source:) become paragraphs of their own.
"""

import re
import sys

CONTRACT = re.compile(r"^(\s*///) (Shapes|Comm|Collective|Throws|Source|Also Throws):\s*")


def filtered(text):
    lines, in_head = [], True
    for line in text.splitlines():
        if in_head and line.startswith("//"):
            lines.append("///" + line[2:])  # what the file is
            continue
        if in_head:
            in_head = False
            if lines:
                lines.insert(0, "/// @file")
        line = re.sub(r"^(\s*)//(?!/)", r"\1///", line)
        line = re.sub(r"(\S.*?[;,{}]) {2,}// ?", r"\1  ///< ", line)
        if line.lstrip().startswith("///"):
            line = re.sub(r"<(?=[a-z/])", r"\\<", line)  # a placeholder, not a tag
        contract = CONTRACT.match(line)
        if contract:
            lines.append(f"{contract[1]}")
            line = CONTRACT.sub(rf"{contract[1]} **{contract[2]}:** ", line)
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as source:
        sys.stdout.write(filtered(source.read()))
