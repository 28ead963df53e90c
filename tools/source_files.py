"""What the checks share: the repository's files, sources without comments, and the report."""

import argparse
import re
import subprocess
import sys
from pathlib import Path


def repository_files(root, *suffixes):
    """Files git tracks or would track (all files where there is no git), relative, sorted."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout.decode().split("\0")
        names = {name for name in listed if name and (root / name).is_file()}
    except (subprocess.CalledProcessError, FileNotFoundError):
        skipped = {".git", ".venv", "build", "runs", "data"}
        names = {str(path.relative_to(root)) for path in root.rglob("*")
                 if path.is_file() and path.relative_to(root).parts[0] not in skipped}
    return [Path(name) for name in sorted(names) if not suffixes or name.endswith(suffixes)]


_TOKENS = re.compile(
    r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'                         # string
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"         # character, not a digit separator
    r"|//[^\n]*|/\*.*?\*/", re.DOTALL)


def without_comments(text, strings_too=False):
    """C++ with comments (and literals) blanked; every line keeps its number."""
    def blank(match):
        token = match.group()
        if token.startswith("/") or strings_too:
            return re.sub(r"[^\n]", " ", token)
        return token
    return _TOKENS.sub(blank, text)


class Report:
    """Collects problems; each is one line: file:line: what; how to fix."""

    def __init__(self):
        self.errors = []

    def error(self, path, line, what, fix):
        self.errors.append(f"{path}:{line}: {what}; {fix}")

    def warn(self, path, line, what):
        print(f"{path}:{line}: warning: {what}")

    def finish(self, name, checked):
        for error in self.errors:
            print(error, file=sys.stderr)
        print(f"{name}: {checked}, {len(self.errors)} problems")
        return 1 if self.errors else 0


def root_argument(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent,
                        help="repository to check (default: this one)")
    return parser.parse_args().root
