"""Optimizer states on disk: the bits of states in memory, nothing left behind, clear errors."""
import contextlib
import os
import resource
import subprocess
import unittest

from program import TIMEOUT, ProgramTest, children, rank_of

DONE, USER, LOST = 0, 2, 3
# Tensors larger than a buffer, so that they are cut.
SIZE = ["--model.width=128", "--model.ffn_width=256", "--optimizer.schedule=constant"]
DISK = ["--offload.optimizer=disk", "--offload.buffer_bytes=65536"]


class OffloadTest(ProgramTest):
    def train(self, run, *overrides, ranks=2, steps=6):
        self.succeed("train", "tiny.toml", "--ranks", ranks, *SIZE, f"--train.steps={steps}",
                     f"--output.folder={run}", *overrides)
        curve = self.curve(run)
        self.assertEqual([step for step, _, _ in curve], list(range(1, steps + 1)))
        return curve


class Offload(OffloadTest):
    def start_and_wait(self, run, *overrides, ranks=2):
        """A run that has made a step after its first checkpoint, and its processes."""
        process = self.start_and_await_step("train", "tiny.toml", "--ranks", ranks, *SIZE, *DISK,
                                    "--train.steps=1000000", "--checkpoint.interval=1000000",
                                    f"--output.folder={run}", *overrides)
        return process, [process.pid, *children(process.pid)]

    def test_every_stage_has_the_bits_of_states_in_memory(self):
        order = "--parallel.gradient_order=rank-first"  # what ZeRO-2 and 3 do by default
        for precision in ("fp32", "bf16"):
            expected = self.train(f"memory-{precision}", f"--train.precision={precision}", order)
            for zero in range(4):
                with self.subTest(precision=precision, zero=zero):
                    run = f"disk-{precision}-{zero}"
                    self.assertEqual(self.train(run, *DISK, f"--train.precision={precision}", order,
                                                f"--parallel.zero={zero}"), expected)
        expected = self.train("memory-1", "--train.precision=bf16", ranks=1)
        for place in ("host", "disk"):
            self.assertEqual(self.train(f"{place}-1", "--train.precision=bf16",
                                        f"--offload.optimizer={place}", ranks=1), expected)

    def test_a_run_goes_from_disk_to_memory_and_back(self):
        for options in (["--train.precision=bf16"], ["--parallel.zero=3"]):
            with self.subTest(options=options):
                name = options[0][2:]
                expected = self.train(f"straight-{name}", *options, steps=9)
                self.train(f"parts-{name}", *DISK, *options, steps=3)
                self.train(f"parts-{name}", *options, steps=6)
                self.assertEqual(self.train(f"parts-{name}", *DISK, *options, steps=9), expected)
                self.assertEqual(self.tensors(f"parts-{name}"), self.tensors(f"straight-{name}"))

    def tensors(self, run):
        folder = self.folder / run / "checkpoints/step-000009"
        return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}

    def test_a_kill_leaves_nothing_and_the_run_resumes(self):
        self.train("run", *DISK, steps=3)
        process, pids = self.start_and_wait("run")
        maps = [os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pids[1:] for fd in os.listdir(f"/proc/{pid}/fd")]
        self.assertEqual(sum("/run/offload/" in name for name in maps), 2, maps)
        process.kill()
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(list((self.folder / "run/offload").iterdir()), [])
        self.assertEqual(self.train("run", *DISK), self.train("straight"))

    def test_a_limit_on_files_is_an_error_at_the_start(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            self.fail_with(USER, ["offload.folder", "no room", "File too large"], "train",
                           "tiny.toml", *SIZE, *DISK, "--train.symmetric_memory=false")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(self):
        (self.folder / "file").write_text("")
        self.fail_with(USER, ["offload.folder", "file/states"], "train", "tiny.toml", *DISK,
                       "--offload.folder=file/states")

    def test_values_that_make_no_sense(self):
        self.fail_with(USER, ["offload.optimizer", "\"tape\"", "none, host, disk"], "train",
                       "tiny.toml", "--offload.optimizer=tape")
        self.fail_with(USER, ["offload.buffer_bytes", "65536"], "train", "tiny.toml", *DISK,
                       "--offload.buffer_bytes=100")

    def test_a_write_that_fails_in_a_step(self):
        """A limit on the size of files, set while the ranks train, stands for a full disk."""
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                run = f"full-{ranks}"
                self.train(run, *DISK, ranks=ranks, steps=3)
                process, pids = self.start_and_wait(run, ranks=ranks)
                for pid in pids:
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
                _, line = process.communicate(timeout=TIMEOUT)
                self.assertEqual(process.returncode, USER, line)
                self.assertRegex(line, r"\Atrireme: [^\n]*cannot write [^\n]*/offload/[^\n]* at byte 262144: "
                                       r"File too large; the last checkpoint is intact[^\n]*\n\Z")
                self.assertEqual(self.checkpoints(run), ["step-000003"])
                self.succeed("checkpoint", "verify", run)
                self.assertEqual(self.train(run, *DISK, ranks=ranks),
                                 self.train(f"straight-{ranks}", ranks=ranks))


class Activations(OffloadTest):
    """The inputs of recomputed blocks on a disk: the bits of a run that keeps them."""

    ACTIVATIONS = ["--train.recompute=full", "--offload.activations=disk"]

    def test_every_layout_has_the_bits_of_activations_in_memory(self):
        layers = "--model.layers=4"  # more than the store has buffers
        for i, options in enumerate((
                ["--parallel.zero=3", "--train.evaluate_interval=2"], ["--train.precision=bf16", "--parallel.zero=2"],
                ["--parallel.pipeline=2"], ["--parallel.pipeline=2", "--parallel.schedule=zero-bubble"],
                ["--parallel.tensor=2", "--parallel.sequence_parallel=true"], ["--parallel.context=2"],
                ["--offload.optimizer=disk"],
                ["--model.family=mixtral", "--model.experts=4", "--model.experts_per_token=2", "--parallel.expert=2"])):
            with self.subTest(options=options):
                expected = self.train(f"kept-{i}", layers, *options, "--train.recompute=full", steps=3)
                found = self.train(f"disk-{i}", layers, *options, *self.ACTIVATIONS, steps=3)
                self.assertEqual(found, expected)
                self.assertEqual(list((self.folder / f"disk-{i}/offload").iterdir()), [])
                blocks = ["--train.recompute_blocks=3", "--offload.activation_blocks=2"]
                self.assertEqual(self.train(f"some-{i}", layers, *options, *self.ACTIVATIONS, *blocks, steps=3), expected)
                selective = ["--train.recompute=selective", "--offload.activations=disk",
                             "--train.recompute_modules=attention_core,feed_forward"]
                self.assertEqual(self.train(f"parts-{i}", layers, *options, *selective, steps=3), expected)
        one = self.train("one", "--train.recompute=full", ranks=1)
        self.assertEqual(self.train("host", "--train.recompute=full", "--offload.activations=host", ranks=1), one)

    def test_refusals(self):
        self.fail_with(USER, ["offload.activations", "train.recompute = \"full\""], "train", "tiny.toml",
                       "--offload.activations=disk")
        self.fail_with(USER, ["offload.activation_blocks is 1", "offload.activations"], "train", "tiny.toml",
                       "--offload.activation_blocks=1")
        self.fail_with(USER, ["train.recompute_blocks is 1", "train.recompute"], "train", "tiny.toml",
                       "--train.recompute_blocks=1")
        (self.folder / "file").write_text("")
        self.fail_with(USER, ["offload.folder", "file/inputs"], "train", "tiny.toml", *self.ACTIVATIONS,
                       "--offload.folder=file/inputs", "--ranks=2")
        self.fail_with(USER, ["parallel.servers", "offload.activations"], "train", "tiny.toml", *self.ACTIVATIONS,
                       "--ranks=3", "--parallel.servers=1", "--train.gradient_clip=0")


class Parts(OffloadTest):
    """Weights and gradients on a disk: the bits of memory in every layout, with kills and resumes between."""
    PARTS = ["--offload.parameters=disk", "--offload.gradients=disk"]

    def test_every_layout_has_the_bits_of_memory(self):
        for ranks, *layout in (
                (1, "--parallel.zero=3"), (2, "--parallel.zero=3"),
                (2, "--parallel.zero=3", "--train.precision=bf16", "--offload.optimizer=disk"),
                (2, "--parallel.zero=3", "--parallel.gradient_order=microbatch-first"),
                (2, "--parallel.zero=3", "--train.reproducible=true"),
                (2, "--parallel.zero=3", "--train.overlap=false", "--train.symmetric_memory=false"),
                (2, "--parallel.zero=3", "--train.compression=bf16"),
                (3, "--parallel.zero=3", "--optimizer.name=muon", "--train.uneven_batches=true"),
                (4, "--parallel.zero=3", "--parallel.shard=2"),
                (4, "--parallel.zero=3", "--parallel.pipeline=2", "--parallel.schedule=zero-bubble"),
                (4, "--parallel.zero=3", "--parallel.tensor=2", "--train.recompute=full"),
                (4, "--parallel.zero=3", "--parallel.context=2")):
            with self.subTest(ranks=ranks, layout=layout):
                run = f"{ranks}-{'-'.join(layout).replace('/', '')}"
                expected = self.train(f"memory{run}", *layout, ranks=ranks, steps=3)
                self.assertEqual(self.train(f"disk{run}", *layout, *self.PARTS, ranks=ranks, steps=3), expected)
                if len(layout) == 1:  # the ledger counts what is in memory
                    kept, left = (self.metrics(f"{place}{run}")[-1] for place in ("memory", "disk"))
                    for kind in ("weights", "gradients"):
                        self.assertLess(left[f"memory_{kind}_bytes"], 0.1 * kept[f"memory_{kind}_bytes"], kind)

    def test_gradients_alone_with_the_second_stage(self):
        options = ["--parallel.zero=2", "--train.uneven_batches=true"]
        expected = self.train("memory", *options, ranks=3, steps=3)
        self.assertEqual(self.train("disk", *options, "--offload.gradients=disk", ranks=3, steps=3), expected)

    def test_a_run_goes_from_disk_to_memory_and_back(self):
        zero = "--parallel.zero=3"
        expected = self.train("straight", zero, steps=6)
        self.train("parts", zero, *self.PARTS, steps=2)
        self.train("parts", zero, steps=4)
        self.assertEqual(self.train("parts", zero, *self.PARTS, *DISK, steps=6), expected)

    def test_a_kill_leaves_nothing_and_the_run_resumes(self):
        options = ["--parallel.zero=3", *self.PARTS, *DISK]
        expected = self.train("straight", *options, steps=6)
        process = self.start_and_await_step("train", "tiny.toml", "--ranks", 2, *SIZE, *options, "--train.steps=6",
                                            "--checkpoint.interval=2", "--output.folder=killed")
        for pid in [*children(process.pid), process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(list((self.folder / "killed/offload").iterdir()), [])
        self.assertEqual(self.train("killed", *options, "--checkpoint.interval=2", steps=6), expected)

    def test_a_disk_that_fails_under_the_weights_is_one_line(self):
        """A file cut short stands for a disk that fails: the kernel raises the same signal."""
        options = ["--parallel.zero=3", *self.PARTS]
        for ranks, *threads in ((1,), (1, "--threads=4"), (2,)):
            with self.subTest(ranks=ranks, threads=threads):
                run = f"failed-{ranks}-{len(threads)}"
                expected = self.train(f"straight-{run}", *options, ranks=ranks, steps=6)
                self.train(run, *options, ranks=ranks, steps=3)
                process = self.start_and_await_step("train", "tiny.toml", "--ranks", ranks, *SIZE, *options,
                                                    "--train.steps=1000000", "--checkpoint.interval=1000000", *threads,
                                                    f"--output.folder={run}")
                rank = rank_of(process, 0) if ranks > 1 else process.pid
                for name in os.listdir(f"/proc/{rank}/fd"):
                    with contextlib.suppress(FileNotFoundError):  # the rank closes others meanwhile
                        if f"/{run}/offload/" in os.readlink(f"/proc/{rank}/fd/{name}"):
                            os.truncate(f"/proc/{rank}/fd/{name}", 0)
                _, line = process.communicate(timeout=TIMEOUT)
                self.assertEqual(process.returncode, LOST, line)
                self.assertRegex(line, r"\Atrireme: rank 0 was killed by signal 7 \(Bus error, a disk under a mapped file "
                                       r"failed or the file was cut short\);[^\n]* the same command resumes\n\Z")
                self.assertEqual(list((self.folder / run / "offload").iterdir()), [])
                self.assertEqual(self.train(run, *options, ranks=ranks, steps=6), expected)

    def test_refusals(self):
        self.fail_with(USER, ["offload.parameters", "parallel.zero 2", "set parallel.zero = 3"], "train", "tiny.toml",
                       "--ranks=2", "--parallel.zero=2", *self.PARTS)
        self.fail_with(USER, ["offload.gradients", "parallel.zero 1", "2 or 3"], "train", "tiny.toml", "--ranks=2",
                       "--parallel.zero=1", "--offload.gradients=disk")
        (self.folder / "file").write_text("")
        self.fail_with(USER, ["offload.folder", "file/parts"], "train", "tiny.toml", "--ranks=2", "--parallel.zero=3",
                       *self.PARTS, "--offload.folder=file/parts")


class SmallDisk(ProgramTest):
    """On a file system of 2 MiB of its own, which takes root."""

    def mount_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        return disk

    def test_activations_that_do_not_fit_end_the_first_step(self):
        disk = self.mount_disk()
        for ranks in (1, 2):
            self.fail_with(USER, ["offload.folder disk", "this rank's activations", "bytes are free"], "train",
                           "tiny.toml", "--ranks", ranks, *SIZE, "--model.layers=40", "--train.recompute=full",
                           "--offload.activations=disk", "--offload.folder=disk")
        self.assertEqual(list(disk.iterdir()), [])

    def test_parts_that_do_not_fit_are_an_error_at_the_start(self):
        disk = self.mount_disk()
        for ranks in (1, 2):
            self.fail_with(USER, ["offload.folder disk", "this rank's weights", "bytes are free"], "train",
                           "tiny.toml", "--ranks", ranks, *SIZE, "--model.layers=40", "--parallel.zero=3",
                           *Parts.PARTS, "--offload.folder=disk")
        self.assertEqual(list(disk.iterdir()), [])

    def test_a_disk_that_is_too_small_is_an_error_at_the_start(self):
        disk = self.mount_disk()
        for ranks in (1, 2):
            line = self.fail_with(USER, ["offload.folder disk", "has no room for", "bytes are free"],
                                  "train", "tiny.toml", "--ranks", ranks, *SIZE, *DISK,
                                  "--offload.folder=disk")
            self.assertNotIn("checkpoint", line)
        self.assertFalse((self.folder / "run/checkpoints").exists())
        self.assertEqual(list(disk.iterdir()), [])


def load_tests(loader, tests, pattern):
    if os.geteuid() != 0:
        print("offload_test: not root, so without the tests that mount a small disk", flush=True)
        return unittest.TestSuite(map(loader.loadTestsFromTestCase, (Offload, Activations, Parts)))
    return tests


if __name__ == "__main__":
    unittest.main(verbosity=2)
