#!/usr/bin/env python3
"""PyTorch's own distributed_test on our backend: pytorch_suite_test.py [--ranks N] [--backend gloo] [--outcomes FILE] [TEST ...]

Fails when a test fails, and when an outcome is not what pytorch_suite.json says: that file lists every
test that is not run, with the reason, so nothing is left out in silence.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest

LIST = pathlib.Path(__file__).with_name("pytorch_suite.json")
FOLDER_PREFIX = "trireme-pytorch-suite-"


def stand_behind_gloo(torch, trireme_torch):
    """Has torch.distributed make our groups where it is asked for "gloo": what it runs, and what it looks for, it
    decides by that name. For tests alone: elsewhere torch takes what is called so for its own class."""
    from torch.distributed import distributed_c10d
    c10d = torch._C._distributed_c10d
    kinds = c10d.ProcessGroup.BackendType

    class OfOurs(type):
        def __call__(cls, store, rank, size, timeout):
            return trireme_torch._C.create_backend(store, rank, size, timeout, "gloo", [], None, "",
                                                   trireme_torch._make_gloo)

        def __instancecheck__(cls, instance):
            return isinstance(instance, c10d.Backend)

    class ProcessGroupGloo(metaclass=OfOurs):
        pass

    def register(group, device, kind, backend, original=c10d.ProcessGroup._register_backend):
        # In C++, DDP's logger reads Gloo's fields of whatever has Gloo's kind.
        original(group, device, kinds.CUSTOM if kind == kinds.GLOO else kind, backend)

    distributed_c10d.ProcessGroupGloo = ProcessGroupGloo
    distributed_c10d.Backend.backend_type_map["gloo"] = kinds.CUSTOM
    c10d.ProcessGroup._register_backend = register
    c10d.Backend.options = property(lambda backend: types.SimpleNamespace())  # torch notes things there


def load_suite(backend, ranks, folder):
    """The suite's base classes, imported as it wants: what it runs depends on the environment."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(ranks), TEMP_DIR=folder, MASTER_ADDR="127.0.0.1",
                      KINETO_LOG_LEVEL="5", OMP_NUM_THREADS="1", TMPDIR=folder)
    tempfile.tempdir = folder  # the suite leaves its files behind
    for name in ("barrier", "test_dir"):
        os.mkdir(os.path.join(folder, name))
    import torch
    import trireme_torch
    if backend == "gloo":
        stand_behind_gloo(torch, trireme_torch)
    from torch.testing._internal.common_distributed import DistTestCases
    torch.set_num_threads(1)
    for feature in ("ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature].add("trireme")
    from torch.testing._internal.distributed import distributed_test
    return torch, distributed_test


def make_test_case(torch, distributed_test):
    class PyTorchSuite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            # Forked, not spawned: importing torch anew takes longer than most tests.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return PyTorchSuite


class Outcomes(unittest.TextTestResult):
    """name -> (passed | skipped | failed, what was said)"""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.by_name = {}

    def note(self, test, outcome, text=""):
        self.by_name[test._testMethodName] = (outcome, text)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failed", str(error[1]))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed", str(error[1]))


def expectations(listed, ranks, backend):
    """name -> (outcome, pattern of what is said, reason), for the tests that do not pass at `ranks` ranks."""
    expected = {}
    for reason, entry in listed["not_eligible"].items():
        for name in entry["tests"]:
            expected[name] = ("skipped", entry["says"], reason)
    for entry in listed["needs_ranks"]:
        if ranks not in entry["ranks"]:
            for name in entry["tests"]:
                expected[name] = ("skipped", entry["says"], f"needs {entry['ranks']} ranks")
    for name, entry in listed["fails"].items():
        expected[name] = ("failed", entry["says"], entry["reason"])
    if backend == "gloo":  # what is said of the others names that
        expected = {name: (outcome, "", reason) for name, (outcome, _, reason) in expected.items()
                    if name not in listed["runs_as_gloo"]}
    return expected


def check(outcomes, expected, is_complete):
    """What differs from the list, one line each."""
    problems = []
    for name, (outcome, text) in sorted(outcomes.items()):
        wanted, says, _ = expected.get(name, ("passed", "", ""))
        if outcome != wanted:
            problems.append(f"{name}: {outcome}, and {LIST.name} expects it {wanted}: {text.strip()[-300:]}")
        elif not re.search(says, text):
            problems.append(f"{name}: {outcome} because of {text.strip()[-300:]!r}, and {LIST.name} says {says!r}")
    if is_complete:
        problems += [f"{name}: in {LIST.name} and not in the suite" for name in sorted(set(expected) - set(outcomes))]
    return problems


def clean(text):
    return re.sub(r"\s+", " ", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", choices=("trireme", "gloo"), default="trireme",
                        help="what the backend is called; as \"gloo\", PyTorch runs more of its tests")
    parser.add_argument("--outcomes", help="write what happened to this file, as JSON")
    parser.add_argument("tests", nargs="*", help="of the suite; all by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        torch, distributed_test = load_suite(arguments.backend, arguments.ranks, folder)
        case = make_test_case(torch, distributed_test)
        names = arguments.tests or unittest.TestLoader().getTestCaseNames(case)
        runner = unittest.TextTestRunner(resultclass=Outcomes, verbosity=0)
        outcomes = runner.run(unittest.TestSuite(case(name) for name in names)).by_name
    if arguments.outcomes:
        pathlib.Path(arguments.outcomes).write_text(json.dumps(outcomes, indent=1))
    listed = json.loads(LIST.read_text())
    counts = {kind: sum(outcome == kind for outcome, _ in outcomes.values()) for kind in ("passed", "skipped", "failed")}
    running = ".".join(torch.__version__.split(".")[:2])
    if running != listed["torch"]:  # another release has other tests: what it skips is not known
        expected = expectations(listed, arguments.ranks, arguments.backend)
        problems = [f"{name}: {clean(text)[-300:]}" for name, (outcome, text) in sorted(outcomes.items())
                    if outcome == "failed" and expected.get(name, ("",))[0] != "failed"]
    else:
        problems = check(outcomes, expectations(listed, arguments.ranks, arguments.backend), is_complete=not arguments.tests)
    print(f"{arguments.ranks} ranks, as {arguments.backend}, torch {running}, list of torch {listed['torch']}: " +
          ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    for problem in problems:
        print(f"pytorch_suite: {clean(problem)}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
