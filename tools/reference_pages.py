#!/usr/bin/env python3
"""Writes docs/reference/commands.md and keys.md from the help of the program, and checks them.

    tools/reference_pages.py build/release/bin/trireme            # write
    tools/reference_pages.py build/release/bin/trireme --check    # exit 1 if a page differs

A test of the program checks them.
"""
import difflib
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reference"
KEYS_BEGIN = "Every config key can be given as an option"
INDENT = 30  # of the second column, in columns


def help_of(program, command):
    """Its lines, without the exit codes that end each help."""
    text = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout
    return text.split("\nExit codes: ")[0].rstrip().splitlines()


def subcommands(lines):
    if "Subcommands:" not in lines:
        return []
    return [match[1] for line in lines[lines.index("Subcommands:") + 1:]
            if (match := re.match(r"  ([a-z][a-z-]*)(  |$)", line))]


def commands_page(program):
    page = ["# Commands", "", "Written from the program's `--help` by tools/reference_pages.py. The keys of a config, which",
            "`train`, `plan` and `simulate` take as options too, are on [a page of their own](keys.md).", "",
            "Exit codes: 0 done, 1 bug, 2 something that the user can mend (config, arguments, data), 3 a rank was lost (run",
            "again to resume), 4 a checkpoint cannot be used."]

    def add(command):
        lines = help_of(program, command)
        below = subcommands(lines)
        shown = lines[:lines.index("Subcommands:")] if below else lines
        keys = next((i for i, line in enumerate(shown) if line.startswith(KEYS_BEGIN)), len(shown))
        if command:
            page.extend(["", f"{'#' * (1 + len(command))} trireme {' '.join(command)}", "", "```text",
                         *"\n".join(shown[:keys]).strip().splitlines(), "```"])
        for name in below:
            add([*command, name])

    add([])
    return "\n".join(page) + "\n"


def key_groups(program):
    """[(title, {section: [(name, default, meaning)]})], in the order of the help: each task's keys, then everyone's."""
    lines = help_of(program, ["train"])
    begin = next(i for i, line in enumerate(lines) if line.startswith(KEYS_BEGIN))
    groups = []
    for line in lines[begin + 1:]:
        if not line:
            continue
        if match := re.match(r"  --([a-z_0-9]+)\.([a-z_0-9.]+)=('[^']*'|\S+)(?: +(.*))?$", line):
            groups[-1][1].setdefault(match[1], []).append([match[2], match[3], match[4] or ""])
        elif line.startswith(" " * INDENT):
            row = list(groups[-1][1].values())[-1][-1]
            row[2] = f"{row[2]} {line.strip()}".strip()
        else:
            groups.append((line, {}))
    return groups


def table(sections):
    lines = []
    for section, rows in sections.items():
        lines.extend(["", f"### {section}", "", "| key | default | meaning |", "|---|---|---|"])
        lines.extend(f"| `{name}` | `{default}` | {meaning.replace('|', chr(92) + '|')} |" for name, default, meaning in rows)
    return lines


def keys_page(program):
    page = ["# Keys of a config", "", "Written from `trireme train --help` by tools/reference_pages.py. A key of section train stands below `[train]` in the",
            "TOML file, as `steps = 300`, or on the command line, as `--train.steps=300`, which wins. Texts are shown in quotes."]
    groups = key_groups(program)
    for title, sections in groups[-1:] + groups[:-1]:
        if match := re.match(r'\[task\] name = "(\w+)": (.*)', title):
            title = f"Task {match[1]}: {match[2]}"
        page.extend(["", f"## {title[0].upper()}{title[1:]}", *table(sections)])
    return "\n".join(page) + "\n"


def main():
    program, check = sys.argv[1], "--check" in sys.argv[2:]
    built = [f"{FOLDER.parent.parent}/{place}" for place in (".venv", "build")]  # another clone has others
    differs = False
    for name, text in (("commands.md", commands_page(program)), ("keys.md", keys_page(program))):
        path = FOLDER / name
        if found := [place for place in built if place in text]:
            sys.exit(f"the program's help for {name} names {found[0]}, which another clone does not have")
        if not check:
            path.write_text(text)
        elif (stands := path.read_text() if path.exists() else "") != text:
            differs = True
            print(f"{path} differs from the program's help; run tools/reference_pages.py {program}")
            print(*list(difflib.unified_diff(stands.splitlines(), text.splitlines(), lineterm="", n=0))[2:22], sep="\n")
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
