"""Optimizer states of four times the memory that is left train from disk, and not without it."""
import json
import resource
import time
import unittest

from program import TIMEOUT, ProgramTest

DONE = 0
MIB = 1 << 20
# 25.8 M parameters in 72 matrices; in bf16 with fp32 masters 12 bytes of optimizer states each.
SIZE = ["--model.layers=8", "--model.width=512", "--model.heads=8", "--model.kv_heads=8", "--model.ffn_width=1408",
        "--train.precision=bf16", "--train.global_batch=1", "--train.micro_batch=1", "--train.steps=3",
        "--optimizer.warmup_steps=1", "--checkpoint.interval=0"]
DISK = ["--offload.optimizer=disk", f"--offload.buffer_bytes={8 * MIB}"]


class MemoryLimit(ProgramTest):
    def run_limited(self, run, limit, *overrides):
        """(exit code, line of the error, most data memory seen); `limit` on RLIMIT_DATA or None.

        It counts what the process has mapped to write for itself: heaps, stacks, buffers; not the
        page cache."""
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        try:
            process = self.start("train", "tiny.toml", *SIZE, f"--output.folder={run}", *overrides)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        most = 0
        end = time.monotonic() + TIMEOUT
        while process.poll() is None and time.monotonic() < end:
            with open(f"/proc/{process.pid}/status") as status:
                for line in status:
                    if line.startswith("VmData:"):
                        most = max(most, int(line.split()[1]) * 1024)
            time.sleep(0.002)
        _, errors = process.communicate(timeout=TIMEOUT)
        return process.returncode, errors, most

    def state_bytes(self, run):
        summary = json.loads(self.succeed("checkpoint", "inspect", run, "--json"))
        return sum(t["bytes"] for t in summary["tensors"] if t["name"].startswith("optimizer."))

    def test_states_of_four_times_the_memory_left(self):
        # What the model needs without any optimizer state, and with all of them in memory.
        code, line, baseline = self.run_limited(
            "stateless", None, "--optimizer.name=sgd", "--optimizer.momentum=0", "--train.master_weights=false")
        self.assertEqual((code, line), (DONE, ""))
        code, line, whole = self.run_limited("memory", None)
        self.assertEqual((code, line), (DONE, ""))
        states = self.state_bytes("memory")
        limit = baseline + states // 4

        code, line, most = self.run_limited("disk", limit, *DISK)
        self.assertEqual((code, line), (DONE, ""))
        self.assertEqual(self.curve("disk"), self.curve("memory"))
        code, line, _ = self.run_limited("too-large", limit)
        self.assertNotEqual(code, DONE)
        self.assertRegex(line, "(?i)memory|alloc")
        print("MiB: states %d, without states %d, limit %d, from disk %d, in memory %d"
              % tuple(n // MIB for n in (states, baseline, limit, most, whole)), flush=True)

        # The way through a checkpoint fits as well.
        code, line, _ = self.run_limited("disk", limit, *DISK, "--train.steps=4")
        self.assertEqual((code, line), (DONE, ""))
        self.assertEqual(len(self.curve("disk")), 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
