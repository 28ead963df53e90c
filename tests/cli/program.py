"""What the program's tests share: a temporary folder with tiny data and a tiny config."""
import array
import contextlib
import ctypes
import ctypes.util
import glob
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from tiny_problems import LANGUAGE, changed, write_text

PROGRAM = os.environ["TRIREME_PROGRAM"]
TIMEOUT = 120  # seconds; only a hang reaches it
LINKS = tempfile.TemporaryDirectory(prefix="trireme-links-")
unittest.addModuleCleanup(LINKS.cleanup)

CONFIG = changed(LANGUAGE, {"checkpoint.interval": 5, "output.folder": "run"})
# Four devices of a CPU, for `trireme plan`.
CLUSTER = """
[cluster]
device = "cpu"
devices_per_node = 4
[device]
memory_gib = 1
"""


def piece_bytes(folder, manifest, piece):
    """The bytes of a piece of a checkpoint's tensor, from its chunks as docs/design/checkpoint-format.md has it."""
    parts = []
    for chunk in piece["chunks"]:
        file, begin, stored, _, codec, *_ = chunk.split()
        assert codec == "raw", codec
        content = (folder / manifest["files"][int(file)]["name"]).read_bytes()
        start = 8 + int.from_bytes(content[:8], "little") + int(begin)
        parts.append(content[start:start + int(stored)])
    return b"".join(parts)


def checksum(content):
    """Of a checkpoint's manifest or a header, as docs/design/checkpoint-format.md has it."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return f"{library.XXH3_64bits(content, len(content)):016x}"


def zstd_of(content):
    """A file of zstd's with this content, in blocks that are stored as they are (RFC 8878)."""
    size = 1 << 17
    blocks = [content[at:at + size] for at in range(0, len(content), size)]
    heads = [(len(block) << 3 | (at == len(blocks) - 1)).to_bytes(3, "little") for at, block in enumerate(blocks)]
    return b"\x28\xb5\x2f\xfd\x00\x38" + b"".join(head + block for head, block in zip(heads, blocks))


def documents(prefix):
    """The texts of byte tokens, by docs/design/token-files.md: each ends in token 256."""
    tokens = array.array("H", pathlib.Path(f"{prefix}.bin").read_bytes())
    texts, begin = [], 0
    for end in (at for at, token in enumerate(tokens) if token == 256):
        texts.append(bytes(tokens[begin:end].tolist()).decode())
        begin = end + 1
    return texts


def preloading(variable):
    """The environment in which a library is loaded first whose path the variable has.

    By another path, as LD_PRELOAD takes spaces and colons for the ends of names.
    """
    link = pathlib.Path(LINKS.name, variable)
    if not link.is_symlink():
        link.symlink_to(os.environ[variable])
    return {"LD_PRELOAD": str(link)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class ProgramTest(unittest.TestCase):
    """Each test has a folder of its own: text/, data/tiny.bin/.idx, tiny.toml."""
    program = PROGRAM

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.launchers = []  # process ids
        # What launchers leave when their ranks are killed goes with the test too.
        (self.folder / "tmp").mkdir()
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder / "tmp")}
        self.prepare()

    def prepare(self):
        write_text(self.folder / "text")
        (self.folder / "tiny.toml").write_text(CONFIG)
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bytes",
                     "--output", "data/tiny")

    def start(self, *arguments, environment=None):
        """A running program, killed at the end of the test when it still runs."""
        process = subprocess.Popen([self.program, *map(str, arguments)], cwd=self.folder, text=True,
                                   errors="backslashreplace", stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   env={**self.environment, **(environment or {})})
        self.addCleanup(end, process)
        self.launchers.append(process.pid)
        return process

    def start_and_await_step(self, *arguments, **options):
        """Starts the program and returns it once it has printed a step."""
        process = self.start(*arguments, **options)
        while not process.stdout.readline().startswith("step"):
            self.assertIsNone(process.poll())
        return process

    def assert_a_killed_run_resumes_with_the_same_bits(self, command):
        """command(run): the arguments that train in the folder `run`, on several ranks."""
        self.succeed(*command("reference"))
        process = self.start_and_await_step(*command("run"))
        time.sleep(random.uniform(0, 0.3))
        for rank in children(process.pid)[:1]:
            os.kill(rank, 9)
        process.communicate()
        self.succeed(*command("run"))
        self.assertEqual(self.curve("run"), self.curve("reference"))

    def run_program(self, *arguments, **options):
        process = self.start(*arguments, **options)
        output, errors = process.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def segments(self):
        """What this test's programs have left in /dev/shm; a job's name begins with its launcher."""
        return [path for pid in self.launchers for path in glob.glob(f"/dev/shm/trireme-{pid}-*")]

    def succeed(self, *arguments, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fail_with(self, code, expected, *arguments, **options):
        """One line on stderr that holds every word of `expected`, and that exit code."""
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Atrireme: [^\n]+\n\Z")
        for word in expected:
            self.assertIn(word, result.stderr)
        return result.stderr

    def metrics(self, run="run"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def curve(self, run="run"):
        """[(step, loss, grad_norm)], the numbers as they are printed: equal text, equal bits."""
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        objects = [json.loads(line, parse_float=str) for line in lines]
        return [(o["step"], str(o["loss"]), str(o["grad_norm"])) for o in objects]

    def await_step(self, step, process, run="run"):
        """Waits until metrics.jsonl has the step's line; `process` must not end before."""
        path = self.folder / run / "metrics.jsonl"
        while not path.exists() or path.read_text().count("\n") < step:
            self.assertIsNone(process.poll())
            time.sleep(0.002)

    def end_server(self, process):
        """Asks a server to end; none of its ranks and segments stay."""
        ranks = children(process.pid)
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertFalse(any(is_running(rank) for rank in ranks))
        self.assertEqual(self.segments(), [])

    def checkpoints(self, run="run"):
        return sorted(p.name for p in (self.folder / run / "checkpoints").iterdir())


def children(pid):
    """The ranks that a launcher has started."""
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def rank_of(launcher, rank):
    """The process id of one of them."""
    for pid in children(launcher.pid):
        if f"RANK={rank}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise AssertionError(f"no rank {rank}")


def state(pid):
    """The kernel's letter for what a process does, such as T for stopped; X when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def is_running(pid):
    return state(pid) not in "XZ"


def freeze(pids):
    """Stops processes between two of their instructions, until SIGCONT."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        while state(pid) not in "TXZ":
            time.sleep(0.001)


def end(process):
    if process.poll() is None:
        process.kill()
    process.communicate()
