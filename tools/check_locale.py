#!/usr/bin/env python3
"""Checks that the library writes and reads text as the classic locale does, whatever the program's is.

A program that links Trireme may have called std::locale::global(std::locale("de_DE.UTF-8")) or setlocale(). Outside of
the files of EXEMPT nothing uses what follows it: string streams, std::stod and its like, the letters of <cctype>, and
floating-point conversions of printf (trireme/base/locale/text.h has format(); trireme/cli may print them, because run_program()
sets its thread's locale).
"""

import re
import sys

from source_files import Report, repository_files, root_argument, without_comments

# The one place, each with why.
EXEMPT = {
    "trireme/base/locale/text.h": "makes the streams classic",
    "trireme/base/locale/text.cc": "calls vsnprintf under the classic locale",
}
FIXES = [
    (re.compile(r"std::(?:basic_)?[io]?stringstream\b"), "follows the program's locale",
     "use TextWriter or TextReader (trireme/base/locale/text.h)"),
    (re.compile(r"\b(?:std::)?(?:sto[fd]|stold|strto[fd]|strtold|atof)\s*\("), "reads numbers in the program's locale",
     "use std::from_chars"),
    (re.compile(r"\bstd::(?:is(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)|to(?:lower|upper))\b"),
     "takes letters from the program's locale", "compare with the characters themselves"),
    (re.compile(r"\bstd::(?:w?regex|put_time|get_time|put_money|get_money)\b"), "follows the program's locale",
     "write it without"),
]
FLOAT = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?[lL]?[aAeEfFgG]")
PRINTF = re.compile(r"(?<![\w:])(?:std::)?(?:f|sn?|d|vf|vsn?)?(?:printf|scanf)\s*\(")


def arguments_at(text, begin):
    """The text of a call's arguments, from behind its opening parenthesis; literals count as one token."""
    depth, at = 1, begin
    while at < len(text) and depth > 0:
        if text[at] == '"':
            at = re.compile(r'"(?:\\.|[^"\\\n])*"').match(text, at).end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[begin:at]


def check(report, path, text):
    for number, line in enumerate(without_comments(text, strings_too=True).splitlines(), 1):
        for pattern, what, fix in FIXES:
            if found := pattern.search(line):
                report.error(path, number, f"{found.group().rstrip(' (')} {what}", fix)
    if path.parts[:2] == ("trireme", "cli"):
        return
    code = without_comments(text)
    for call in PRINTF.finditer(code):
        literals = "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', arguments_at(code, call.end())))
        if FLOAT.search(literals.replace("%%", "")):
            report.error(path, code.count("\n", 0, call.start()) + 1,
                         f"{call.group().rstrip(' (')} prints a number in the program's locale",
                         "use format() (trireme/base/locale/text.h)")


def main():
    root = root_argument(__doc__)
    report = Report()
    files = [path for path in repository_files(root, ".h", ".cc") if path.parts[0] in ("trireme", "python")]
    for path in files:
        if str(path) not in EXEMPT:
            check(report, path, (root / path).read_text())
    return report.finish("locale", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
