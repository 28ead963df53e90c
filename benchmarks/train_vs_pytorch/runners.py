"""Starts the programs that are compared: a peer's ranks, or jobs of `trireme train`.

Each runner returns a dict with the keys of METRICS and `last_loss`, or raises RunError.
"""

import dataclasses
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The figures that are compared, and their names in the table.
METRICS = {"tokens_per_second": "tokens/s", "peak_rss_bytes": "peak memory",
           "seconds_to_first_step": "start"}
# trireme's exit code for what the user can fix: here a layout that this version does not have.
REFUSED = 2
SPARSE_STEP = 4


class RunError(Exception):
    """A peer is not installed or did not run, or trireme refused a layout; the text is one line."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def peer_python(args, peer):
    if peer == "transformers":
        return Path(ROOT / "build/test-python").read_text().strip()
    if not peer.startswith("deepspeed"):
        return sys.executable
    if not Path(args.deepspeed_python).exists():
        raise RunError(f"no {args.deepspeed_python}; tools/setup_bench.sh makes it")
    return args.deepspeed_python


def peer_environment(args, peer, ranks, threads, folder):
    """torchrun's variables, and what the peer reads besides."""
    return {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "LLAMA_LAYERS": str(args.layers), "LLAMA_WIDTH": str(args.width), "LLAMA_PRECISION": args.precision,
            "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "START_TIME": str(time.time()),
            "OMP_NUM_THREADS": str(threads),
            # Compiled anew in every run unless the caller keeps what was compiled.
            "TORCHINDUCTOR_CACHE_DIR": args.compile_cache or str(folder / "inductor"),
            # DeepSpeed compiles its operators into the environment that setup_bench.sh makes.
            "DS_ACCELERATOR": "cpu", "LOCAL_SIZE": str(ranks),
            "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR") or
                                    str(Path(args.deepspeed_python).parent.parent / "ops")}


def reason(process, log):
    """One line that says why a rank failed: the last line of an exception, or of the log."""
    # torch prefixes lines of a process group's exceptions with "[rank0]: ".
    lines = [re.sub(r"^\[rank\d+\]: ", "", line).strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    text = (errors or lines or ["no output"])[-1]
    how = signal.Signals(-process.returncode).name if process.returncode < 0 else f"exit {process.returncode}"
    return f"{how}: {text[:160]}".replace("|", "/")


def wait_for_all(processes, logs, timeout):
    """Waits for the ranks of a peer. Ends all of them when one fails or the time is over."""
    deadline = time.monotonic() + timeout
    try:
        while any([process.poll() is None for process in processes]):
            for process, log in zip(processes, logs):
                if process.returncode:
                    raise RunError(reason(process, log))
            if time.monotonic() > deadline:
                raise RunError(f"not done after {timeout} s")
            time.sleep(0.05)
        for process, log in zip(processes, logs):
            if process.returncode:
                raise RunError(reason(process, log))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def run_peer(args, start, ranks, batch, threads, peer):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        command = [peer_python(args, peer), str(HERE / "pytorch_train.py"), f"--peer={peer}",
                   f"--batch={batch}", f"--microbatch={microbatch_of(args, batch)}", f"--steps={args.steps}", f"--warmup={args.warmup}",
                   f"--threads={threads}", f"--data={start.data}", f"--weights={start.weights}",
                   f"--compared-step={start.compared_step}"]
        logs = [folder / f"{rank}.log" for rank in range(ranks)]
        common = peer_environment(args, peer, ranks, threads, folder)
        processes = []
        for rank, log in enumerate(logs):
            with (folder / f"{rank}.out").open("w") as out, log.open("w") as errors:
                processes.append(subprocess.Popen(command, stdout=out, stderr=errors,
                                                  env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}))
        try:
            wait_for_all(processes, logs, args.peer_timeout)
        finally:
            # DeepSpeed leaves its shared memory behind; its names have the run's port.
            for left in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{common['MASTER_PORT']}_*"):
                left.unlink()
        return json.loads((folder / "0.out").read_text().splitlines()[-1])


def microbatch_of(args, batch):
    """Sequences per forward."""
    return batch if args.microbatch == 0 else args.microbatch


def config_text(args, steps, data, ranks, batch, output, precision=None):
    # Peers decay every parameter, so norms are decayed here too.
    return f"""
[model]
family = "llama"
layers = {args.layers}
width = {args.width}
heads = {args.width // 64}
kv_heads = {args.width // 64}
ffn_width = {args.width * 5 // 2}
sequence_length = 256
vocab_size = 8192
[data]
path = {json.dumps(str(data))}
[train]
steps = {steps}
global_batch = {batch * ranks}
micro_batch = {microbatch_of(args, batch)}
gradient_clip = 1.0
precision = {json.dumps(precision or args.precision)}
[optimizer]
learning_rate = 1e-4
warmup_steps = 0
schedule = "constant"
weight_decay = 0.1
groups = "*norm.weight: decay=0.1"
[checkpoint]
interval = 0
[output]
folder = {json.dumps(output)}
"""


@dataclasses.dataclass
class Start:
    """The data and weights that both sides begin with."""

    data: Path  # prefix of the tokens of one step: every step reads all of them, in whichever order
    weights: Path  # of trireme's checkpoint, a .safetensors
    model: tuple[str, ...] = ()  # options of trireme's model
    # The step whose loss all must agree on; -1: the last. A router's choice turns over at a rounding, and the
    # losses of a sparse model then part.
    compared_step: int = -1


def make_start(args, folder, sequences, model=()):
    """Random bytes for a step of `sequences` sequences, and the weights that trireme draws."""
    folder.mkdir()
    text, data = folder / "text", folder / "tokens"
    text.write_bytes(os.urandom(sequences * 256))  # and the end of the document
    checked([args.trireme, "data", "prepare", "--input", text, "--tokenizer", "bytes", "--validation-fraction", "0",
             "--output", data])
    (folder / "start.toml").write_text(config_text(args, 1, data, 1, 1, str(folder / "run"), "fp32"))
    checked([args.trireme, "train", folder / "start.toml", "--optimizer.learning_rate=0", "--checkpoint.interval=1",
             "--train.micro_batch=1", *model])
    return Start(data, folder / "run/checkpoints/step-000001/rank-000-of-001.safetensors", tuple(model),
                 min(SPARSE_STEP, args.steps - 1) if model else -1)


def checked(command):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")


class Job:
    """A run of `trireme train`."""

    def __init__(self, args, start, ranks, batch, threads, options, folder):
        self.args, self.tokens_per_step, self.first = args, batch * ranks * 256, None
        self.compared_step = start.compared_step
        self.metrics = folder / "run" / "metrics.jsonl"
        self.log = folder / "log"
        folder.mkdir()
        (folder / "bench.toml").write_text(config_text(args, args.steps, start.data, ranks, batch, str(folder / "run")))
        self.command = [args.trireme, "train", str(folder / "bench.toml"), "--ranks", str(ranks),
                        "--threads", str(threads), *start.model, *options]
        self.start = time.time()
        with self.log.open("w") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT)

    def is_running(self):
        if self.first is None and self.metrics.exists() and self.metrics.stat().st_size > 0:
            self.first = time.time() - self.start
        return self.process.poll() is None

    def result(self):
        if self.process.returncode == REFUSED:
            raise RunError(self.log.read_text().strip().splitlines()[-1][:160].replace("|", "/"))
        if self.process.returncode != 0 or self.first is None:
            sys.exit(f"{' '.join(self.command)} failed:\n{self.log.read_text()}")
        steps = [json.loads(line) for line in self.metrics.read_text().splitlines()]
        seconds = statistics.median(step["step_seconds"] for step in steps[self.args.warmup:])
        return {"tokens_per_second": self.tokens_per_step / seconds,
                "peak_rss_bytes": max(step["peak_rss_bytes"] for step in steps),
                "seconds_to_first_step": self.first, "last_loss": steps[self.compared_step]["loss"],
                "communication_fraction": statistics.median(step["communication_fraction"] or 0
                                                            for step in steps[self.args.warmup:])}


def run_trireme(args, start, ranks, batch, threads, options=(), copies=1):
    """Runs `copies` of the same job at once, and adds up their tokens/s."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        jobs = [Job(args, start, ranks, batch, threads, options, Path(folder) / str(copy))
                for copy in range(copies)]
        while any([job.is_running() for job in jobs]):
            time.sleep(0.002 if any(job.first is None for job in jobs) else 0.05)
        results = [job.result() for job in jobs]
    return {metric: combine(result[metric] for result in results)
            for metric, combine in zip((*METRICS, "last_loss", "communication_fraction"), (sum, max, max, max, max))}
