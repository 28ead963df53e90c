#!/usr/bin/env python3
"""units_of.py TREE < sources: the translation units of a configured build tree that compile the sources.

A unit is the source itself, or the joined file that includes it and its neighbours (TriremePrecompile.cmake).
"""

import json
import re
import sys
from pathlib import Path


def main():
    root = Path(__file__).resolve().parent.parent
    units = {}
    for entry in json.loads((Path(sys.argv[1]) / "compile_commands.json").read_text()):
        unit = Path(entry["file"])
        members = [unit]
        if unit.parent.name == "joined":
            members = [root / path for path in re.findall(r'#include "([^"]+)"', unit.read_text())]
        units.update({str(Path(member).resolve()): str(unit) for member in members})
    sources = [str(Path(line).resolve()) for line in sys.stdin.read().splitlines()]
    for source in sources:
        if source not in units:
            print(f"units_of: no unit of {sys.argv[1]} compiles {source}", file=sys.stderr)
    print("\n".join(sorted({units[source] for source in sources if source in units})))


if __name__ == "__main__":
    main()
