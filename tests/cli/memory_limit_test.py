"""What a limit on a rank's memory allows: ZeRO-3 where DDP is too large, states on disk where four times the memory
that is left would not hold them."""
import json
import resource
import time
import unittest

from program import TIMEOUT, ProgramTest, children

DONE, USER = 0, 2
MIB = 1 << 20
# 25.8 M parameters in 72 matrices; in bf16 with fp32 masters 12 bytes of optimizer states each.
SIZE = ["--model.layers=8", "--model.width=512", "--model.heads=8", "--model.kv_heads=8", "--model.ffn_width=1408",
        "--train.precision=bf16", "--train.global_batch=1", "--train.micro_batch=1", "--train.steps=3",
        "--optimizer.warmup_steps=1", "--checkpoint.interval=0"]
DISK = ["--offload.optimizer=disk", f"--offload.buffer_bytes={8 * MIB}"]


def data_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended a moment ago


class MemoryLimit(ProgramTest):
    def run_limited(self, run, limit, *overrides):
        """(exit code, line of the error, most data memory of a rank seen); `limit` on RLIMIT_DATA or None.

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
            for pid in [process.pid, *children(process.pid)]:
                most = max(most, data_bytes(pid))
            time.sleep(0.002)
        _, errors = process.communicate(timeout=TIMEOUT)
        return process.returncode, errors, most

    def state_bytes(self, run):
        summary = json.loads(self.succeed("checkpoint", "inspect", run, "--json"))
        return sum(t["bytes"] for t in summary["tensors"] if t["name"].startswith("optimizer."))

    def test_zero_3_where_ddp_is_too_large(self):
        # Shared memory does not count as data: all of it is each rank's own here.
        common = ["--ranks=4", "--threads=1", "--train.global_batch=4", "--train.symmetric_memory=false"]
        ddp, zero = ["--parallel.zero=0"], ["--parallel.zero=3"]
        code, line, whole = self.run_limited("ddp", None, *common, *ddp)
        self.assertEqual((code, line), (DONE, ""))
        code, line, shared_out = self.run_limited("zero", None, *common, *zero)
        self.assertEqual((code, line), (DONE, ""))
        limit = (whole + shared_out) // 2
        print("MiB of a rank: DDP %d, ZeRO-3 %d, limit %d" % tuple(n // MIB for n in (whole, shared_out, limit)),
              flush=True)

        code, line, _ = self.run_limited("zero-limited", limit, *common, *zero)
        self.assertEqual((code, line), (DONE, ""))
        self.assertEqual(self.curve("zero-limited"), self.curve("ddp"))
        code, line, _ = self.run_limited("ddp-limited", limit, *common, *ddp)
        self.assertEqual(code, USER, line)
        self.assertRegex(line, r"\Atrireme: [^\n]*out of memory[^\n]*--parallel.zero=3[^\n]*\n\Z")

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
        self.assertEqual(code, USER, line)
        self.assertRegex(line, r"\Atrireme: [^\n]*(memory|memory for)[^\n]*offload[^\n]*\n\Z")
        print("MiB: states %d, without states %d, limit %d, from disk %d, in memory %d"
              % tuple(n // MIB for n in (states, baseline, limit, most, whole)), flush=True)

        # The way through a checkpoint fits as well.
        code, line, _ = self.run_limited("disk", limit, *DISK, "--train.steps=4")
        self.assertEqual((code, line), (DONE, ""))
        self.assertEqual(len(self.curve("disk")), 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
