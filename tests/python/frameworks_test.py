#!/usr/bin/env python3
"""Programs of Lightning, Accelerate, transformers' Trainer and DeepSpeed on backend "trireme" and on gloo: the same
losses and averages, bit for bit, on two ranks. tools/setup.sh frameworks installs them.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path(__file__).parent / "frameworks" / "programs.py"


class Frameworks(unittest.TestCase):
    def run_program(self, framework, backend):
        with tempfile.TemporaryDirectory(prefix="trireme-frameworks-") as folder:
            results = Path(folder) / "results.json"
            command = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                       PROGRAMS, framework, backend, results]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=800)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            return json.loads(results.read_text())

    def check(self, framework):
        ours = self.run_program(framework, "trireme")
        self.assertEqual(ours, self.run_program(framework, "gloo"))
        return ours

    def test_lightning(self):
        logged = self.check("lightning")
        self.assertEqual(len(logged["losses"]), 16)
        self.assertIn("batches", logged)  # an average over integers of the ranks

    def test_fabric(self):
        self.assertEqual(self.check("fabric")["sum"], 3)  # of 3 and 4, towards zero

    def test_accelerate(self):
        self.assertEqual(self.check("accelerate")["metrics"], [0, 1, 2, 1, 2, 3])

    def test_trainer_of_transformers(self):
        self.assertEqual(sum("loss" in entry for entry in self.check("transformers")["logged"]), 8)

    def test_deepspeed_zero_1(self):
        self.check("deepspeed")

    def test_deepspeed_zero_3(self):
        self.check("deepspeed_3")


if __name__ == "__main__":
    for name in ("torch", "lightning", "accelerate", "transformers", "deepspeed"):
        print(name, importlib.metadata.version(name))
    sys.exit(unittest.main(verbosity=1))
