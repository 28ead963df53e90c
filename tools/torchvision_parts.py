"""Imports modules of torchvision without its own __init__, for a test and benchmarks.

PyPI's wheel compiles its operators for CUDA, and __init__ fails without them; definitions in Python need none.
"""

import importlib.util
import sys
import types
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "build" / "torchvision"  # where tools/setup.sh test puts it


def use(*packages, site=SITE):
    """From now on `import torchvision.x` works, where `packages` are the ones whose __init__ is not run."""
    sys.path.append(str(site))
    for name in packages:
        package = types.ModuleType(name)
        package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
        sys.modules[name] = package
