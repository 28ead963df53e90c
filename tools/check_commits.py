#!/usr/bin/env python3
"""Checks the messages of commits: a subject of at most 72 characters, a blank line, and a body that says why.

Checks the commits behind BASE that HEAD has. A clone that lacks BASE, such as a shallow one, checks those that were made
after it. Merges are left out. Without git, or without a commit, there is nothing to check.
"""

import os
import subprocess
import sys

from source_files import Report, root_argument

MOST = 72
BASE = "25935aa402b8521e5be6b691907b283e560d5e42"
BASE_SECONDS = 1795723826  # when BASE was committed
TRAILERS = ("Signed-off-by:", "Co-authored-by:", "Reviewed-by:")


def git(root, *arguments):
    """Its output; None when git or the repository is missing, or git fails."""
    try:
        result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True)
    except OSError:
        return None
    return result.stdout.decode(errors="replace") if result.returncode == 0 else None


def messages(root):
    """(short hash, message) of the commits to check, newest first; None when there is no history."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or not os.path.samefile(top.rstrip("\n"), root):
        return None  # no repository, or a copy of the sources within another one
    has_base = git(root, "merge-base", "--is-ancestor", BASE, "HEAD") is not None
    text = git(root, "log", "--no-merges", "-z", "--format=%h %ct %B", f"{BASE}..HEAD" if has_base else "HEAD")
    if text is None:
        return None
    found = [entry.split(" ", 2) for entry in text.split("\0") if entry]
    return [(name, message) for name, seconds, message in found if has_base or int(seconds) > BASE_SECONDS]


def problems(message):
    subject, *rest = message.rstrip("\n").split("\n")
    if len(subject) > MOST:
        yield f"a subject of {len(subject)} characters; say it in at most {MOST}"
    if rest and rest[0].strip():
        yield "text in the second line; leave it blank"
    if not any(line.strip() and not line.startswith(TRAILERS) for line in rest):
        yield "no body; say below a blank line why, and how it was checked"


def main():
    root = root_argument(__doc__).resolve()
    report = Report()
    commits = messages(root)
    for name, message in commits or ():
        subject = message.split("\n")[0]
        for problem in problems(message):
            what, _, fix = problem.partition("; ")
            report.error("commit", name, f"'{subject}' has {what}", fix)
    return report.finish("commits", "no git history" if commits is None else f"{len(commits)} messages")


if __name__ == "__main__":
    sys.exit(main())
