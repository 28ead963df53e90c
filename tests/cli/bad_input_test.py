"""Bad input: one line that helps, exit code 2 or 4, nothing half-written."""
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import time
import unittest

from program import TIMEOUT, ProgramTest, checksum, children

USER, LOST, CHECKPOINT = 2, 3, 4


class BadArguments(ProgramTest):
    def test_commands_of_a_runs_own_config_need_to_be_allowed(self):
        """It may come from elsewhere, with its checkpoints."""
        self.succeed("train", "tiny.toml", "--ranks=2", "--train.steps=1", "--command.on_stop=echo >> ran")
        self.fail_with(USER, ["run/config.toml", 'command.on_stop = "echo >> ran"', "--command.allow=true"],
                       "train", "run/config.toml", "--ranks=2")
        self.succeed("train", "run/config.toml", "--ranks=2", "--train.steps=2", "--command.allow=true")
        self.succeed("train", "run/config.toml", "--ranks=2", "--train.steps=3", "--command.on_stop=")
        self.assertEqual((self.folder / "ran").read_text(), "\n\n")

    def test_command_line(self):
        self.fail_with(USER, ["nonsense", "train", "generate", "checkpoint"], "nonsense")
        self.fail_with(USER, ["nonsense", "prepare"], "data", "nonsense")
        self.fail_with(USER, ["did you mean `trireme checkpoint export`?"], "export", "run")
        self.fail_with(USER, ["did you mean `trireme train`?"], "checkpoint", "train")
        self.fail_with(USER, ["did you mean \"train\"?", "expected one of"], "trains")
        self.fail_with(USER, ["`trireme train`", "goes on from the newest checkpoint"], "resume", "run")
        self.fail_with(USER, ["`trireme --help`"], "help")
        self.fail_with(USER, ["command"])
        self.fail_with(USER, ["config"], "train")
        self.fail_with(USER, ["missing.toml", "does not exist"], "train", "missing.toml")
        self.fail_with(USER, ["--checkpoint"], "generate")
        self.fail_with(CHECKPOINT, ["nowhere"], "generate", "--checkpoint", "nowhere")
        self.fail_with(USER, ["--ranks", "0", "at least 1"], "train", "tiny.toml", "--ranks", 0)
        self.fail_with(USER, ["--ranks", "two"], "train", "tiny.toml", "--ranks", "two")
        self.fail_with(USER, ["--threads", "-1"], "train", "tiny.toml", "--threads", -1)
        self.fail_with(USER, ["stray"], "train", "tiny.toml", "stray")
        self.fail_with(USER, ["name too long"], "train", "a" * 300)
        self.fail_with(USER, ["name too long"], "generate", "--checkpoint", "a" * 300)
        launched = {"TRIREME_JOB": "x", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        self.fail_with(USER, ["--ranks is 2", "started 1 ranks"], "train", "tiny.toml", "--ranks", 2,
                       environment=launched)
        self.fail_with(USER, ["train.steps", "value"], "train", "tiny.toml", "--train.steps")
        self.assertFalse((self.folder / "run").exists())

    def test_data_prepare(self):
        prepare = ["data", "prepare", "--output", "new/tokens", "--input"]
        self.fail_with(USER, ["nowhere"], *prepare, "nowhere")
        self.fail_with(USER, ["words", "bytes", "bpe"], *prepare, "text", "--tokenizer", "words")
        self.fail_with(USER, ["2"], *prepare, "text", "--validation-fraction", 2)
        (self.folder / "empty").mkdir()
        self.fail_with(USER, ["empty"], *prepare, "empty")
        self.assertFalse((self.folder / "new").exists() and os.listdir(self.folder / "new"))


class BadConfig(ProgramTest):
    def refuse(self, expected, *arguments):
        self.fail_with(USER, expected, "train", "tiny.toml", *arguments)
        self.assertFalse((self.folder / "run").exists(), "something was written")

    def refuse_file(self, expected, old, new):
        text = (self.folder / "tiny.toml").read_text()
        self.assertIn(old, text)
        (self.folder / "tiny.toml").write_text(text.replace(old, new))
        self.refuse(expected)
        (self.folder / "tiny.toml").write_text(text)

    def test_unknown_key(self):
        self.refuse(["--model.widht", "did you mean", "model.width"], "--model.widht=3")
        self.refuse_file(["tiny.toml", "train.step", "train.steps"], "steps = 20", "step = 20")
        self.refuse_file(["tiny.toml", "trian"], "[train]", "[trian]")

    def test_no_suggestion_that_cannot_be_meant(self):
        def suggestion(*arguments):
            return "did you mean" in self.fail_with(USER, ["unknown key"], "train", "tiny.toml", *arguments)
        self.assertFalse(suggestion("--quant.path=x"))
        self.refuse(["no section [quant]", "model", "train"], "--quant.bits=8")
        self.refuse(["train.learning_rate", "did you mean \"optimizer.learning_rate\" or \"outer.learning_rate\"?"], "--train.learning_rate=1")
        self.refuse(["\"global_batch\"", "did you mean \"train.global_batch\"?"], "--global_batch=8")
        self.refuse(["unknown key \"init.quantisation\"", "[init] has", "folder"], "--init.quantisation=1")
        self.assertFalse(suggestion("--train.colour=red"))
        self.assertFalse((self.folder / "run").exists())

    def test_a_refused_start_leaves_no_folder(self):
        for ranks in (1, 2):
            for arguments in (["--init=nowhere"], ["--profile", "--profile-warmup=1000"]):
                result = self.run_program("train", "tiny.toml", "--ranks", ranks, "--output.folder=new/deep/run",
                                          *arguments)
                self.assertIn(result.returncode, (USER, CHECKPOINT), result.stderr)
                self.assertFalse((self.folder / "new").exists(), arguments)
        self.succeed("train", "tiny.toml", "--train.steps=1", "--output.folder=new/deep/run")

    def test_wrong_type(self):
        self.refuse(["model.layers", "many", "whole number"], "--model.layers=many")
        self.refuse_file(["tiny.toml:3", "model.layers", "two", "whole number"], "layers = 2",
                         'layers = "two"')
        self.refuse_file(["data.path", "3", "a string"], '"data/tiny"', "3")

    def test_no_toml(self):
        self.refuse_file(["tiny.toml:3"], "layers = 2", "layers = = 2")

    def test_unknown_value(self):
        self.refuse(["model.family", "mamba", "llama, mixtral, gpt2"], "--model.family=mamba")
        self.refuse(["train.precision", "fp8", "fp32"], "--train.precision=fp8")
        self.refuse(["optimizer.schedule", "cosin", "constant, linear, cosine"],
                    "--optimizer.schedule=cosin")

    def test_out_of_range(self):
        self.refuse(["model.width", "0", "at least 1"], "--model.width=0")
        self.refuse(["optimizer.learning_rate", "nan"], "--optimizer.learning_rate=nan")

    def test_heads_do_not_divide_the_width(self):
        self.refuse(["heads", "5", "32"], "--model.heads=5")
        self.refuse(["kv_heads", "3", "4"], "--model.kv_heads=3")

    def test_ranks_do_not_divide_the_batch(self):
        self.refuse(["train.global_batch", "16", "12", "24"], "--ranks", 3)
        self.refuse(["train.global_batch", "10", "8"], "--ranks", 2, "--train.global_batch=10")

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a GPU")
    def test_no_gpu(self):
        self.refuse(["train.device", "cuda", "cpu"], "--train.device=cuda")

    def test_axes_are_not_the_number_of_ranks(self):
        self.refuse(["parallel", "4", "2 ranks"], "--ranks", 2, "--parallel.data=4")
        self.refuse(["parallel", "2", "1 ranks"], "--parallel.data=2")

    def test_heap_that_is_too_small_for_the_gradients(self):
        self.refuse(["parallel.heap_bytes", "-1", "at least 0"], "--parallel.heap_bytes=-1")
        self.fail_with(USER, ["symmetric memory is full", "2097152", "raise parallel.heap_bytes"],
                       "train", "tiny.toml", "--ranks", 2, "--parallel.heap_bytes=1", "--model.width=256",
                       "--model.ffn_width=1024")

    def test_output_folder_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        for ranks in (1, 2):
            self.refuse(["output.folder", "file/run", "--output.folder"],
                        "--output.folder=file/run", "--ranks", ranks)
        self.refuse(["output.folder", "/proc/run"], "--output.folder=/proc/run")


class BadData(ProgramTest):
    def refuse(self, *expected):
        for ranks in (1, 2):
            self.fail_with(USER, expected, "train", "tiny.toml", "--ranks", ranks)
        self.assertFalse((self.folder / "run").exists(), "something was written")

    def test_missing(self):
        (self.folder / "data/tiny.bin").unlink()
        self.refuse("data/tiny.bin")
        (self.folder / "data/tiny.idx").unlink()
        self.refuse("data/tiny")
        shutil.rmtree(self.folder / "data")
        self.refuse("data/tiny", "trireme data prepare")

    def test_empty(self):
        (self.folder / "data/tiny.bin").write_bytes(b"")
        self.refuse("data/tiny.bin", "0 bytes")
        (self.folder / "data/tiny.idx").write_bytes(b"")
        self.refuse("data/tiny.idx")

    def test_truncated(self):
        for name in ("data/tiny.bin", "data/tiny.idx"):
            path = self.folder / name
            whole = path.read_bytes()
            path.write_bytes(whole[:-5])
            self.refuse(name)
            path.write_bytes(whole)

    def test_shorter_than_a_sequence(self):
        self.fail_with(USER, ["100001", "sequence_length"], "train", "tiny.toml", "--model.sequence_length=100000")
        self.assertFalse((self.folder / "run").exists())

    def test_token_beyond_the_vocabulary(self):
        path = self.folder / "data/tiny.bin"
        tokens = bytearray(path.read_bytes())
        tokens[200:202] = (300).to_bytes(2, "little")
        path.write_bytes(tokens)
        # A whole epoch, so that every layout meets it.
        for ranks in (1, 2):
            self.fail_with(USER, ["300", "257", "data/tiny"], "train", "tiny.toml", "--ranks",
                           ranks, "--train.steps=40")


class BadCheckpoint(ProgramTest):
    def setUp(self):
        super().setUp()
        # One alone: a run goes on from an earlier one.
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=10", "--checkpoint.keep=1")
        self.newest = self.folder / "run/checkpoints/step-000010"

    def refuse(self, *expected):
        """train (one rank and two), generate and verify; what is there stays as it is."""
        before = self.snapshot()
        for ranks in (1, 2):
            self.fail_with(CHECKPOINT, expected, "train", "tiny.toml", "--ranks", ranks)
        self.fail_with(CHECKPOINT, expected, "generate", "--checkpoint", "run")
        self.fail_with(CHECKPOINT, expected, "checkpoint", "verify", "run")
        self.assertEqual(self.snapshot(), before)

    def snapshot(self):
        # All but the flight recorder, which records refused runs too.
        return {p: p.read_bytes() for p in (self.folder / "run").rglob("*")
                if p.is_file() and p.parent.name != "recorder"}

    def test_truncated(self):
        # The larger shard: every reader needs it.
        path = max(self.newest.glob("*.safetensors"), key=lambda p: p.stat().st_size)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        self.refuse(path.name, str(len(whole)), str(len(whole) - 1))
        path.write_bytes(whole)
        self.succeed("checkpoint", "verify", "run")
        path.unlink()
        self.refuse(path.name)

    def test_truncated_manifest(self):
        path = self.newest / "manifest.json"
        path.write_bytes(path.read_bytes()[:-10])
        self.refuse("manifest.json")

    def test_one_flipped_bit(self):
        # In a weight that generate reads too, in a header, and in the manifest.
        for name, offset in self.places():
            path = self.newest / name
            whole = path.read_bytes()
            flipped = bytearray(whole)
            flipped[offset] ^= 1
            path.write_bytes(flipped)
            with self.subTest(file=name, offset=offset):
                self.refuse(name)
            path.write_bytes(whole)

    def places(self):
        weights = self.newest / "rank-000-of-002.safetensors"
        content = weights.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + size])
        name = next(n for n in header if not n.startswith(("optimizer.", "__")))
        begin = 8 + size + header[name]["data_offsets"][0]
        return [(weights.name, begin), (weights.name, 20), ("manifest.json", 200)]

    def test_newer_format(self):
        path = self.newest / "manifest.json"
        body = path.read_bytes()[33:]
        self.assertIn(b'"format_version": 2', body)
        body = body.replace(b'"format_version": 2', b'"format_version": 4')
        path.write_bytes(b'{"checksum": "' + checksum(body).encode() + b'",\n' + body)
        self.refuse("manifest.json", "format 4", "up to 3")

    def test_hostile_structure_with_the_right_checksum(self):
        path = self.newest / "manifest.json"
        whole = path.read_bytes()[33:]
        for body, word in ((b'"x": ' + b"[" * 100000, "deep"),
                           (b'"step": 10,\n' + whole, "twice"),
                           (whole.replace(b'"step": 10', b'"step": -1'), "step is -1"),
                           (whole.replace(b'"world_size": 2', b'"world_size": 0'), "world_size is 0")):
            with self.subTest(word=word):
                self.assertNotEqual(body, whole)
                path.write_bytes(b'{"checksum": "' + checksum(body).encode() + b'",\n' + body)
                self.refuse("manifest.json", word)

    def test_renamed_folder(self):
        self.newest.rename(self.newest.parent / "step-000050")
        self.refuse("step-000050", "rename it to step-000010")

    def test_another_model(self):
        for ranks in (1, 2):
            self.fail_with(USER, ["model.width 32 -> 64"], "train", "tiny.toml", "--ranks", ranks, "--model.width=64")
            self.fail_with(USER, ["step-000010", "model.layers"], "train", "tiny.toml", "--ranks", ranks,
                           "--model.layers=3", "--train.steps=20")
            self.fail_with(CHECKPOINT, ["64", "32"], "train", "tiny.toml", "--ranks", ranks, "--model.width=64",
                           "--resume.allow=model.width")
        self.fail_with(USER, ["step-000010", "model.family"], "train", "tiny.toml", "--model.family=gpt2",
                       "--model.kv_heads=4")

    def test_no_checkpoint(self):
        self.fail_with(CHECKPOINT, ["nowhere"], "generate", "--checkpoint", "nowhere")
        self.fail_with(CHECKPOINT, ["nowhere"], "checkpoint", "inspect", "nowhere")

    def test_full_disk(self):
        """A limit on the size of files, set while the ranks train, stands for a full disk."""
        size = ["--output.folder=full", "--model.width=128", "--model.ffn_width=256"]
        self.succeed("train", "tiny.toml", "--ranks", 2, *size, "--train.steps=5")
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                process = self.start_and_await_step("train", "tiny.toml", "--ranks", ranks, *size,
                                            "--train.steps=1000000", "--checkpoint.interval=0")
                for pid in [process.pid, *children(process.pid)]:
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
                process.send_signal(signal.SIGTERM)
                _, line = process.communicate(timeout=TIMEOUT)
                self.assertEqual(process.returncode, USER, line)
                self.assertRegex(line, r"\Atrireme: [^\n]*safetensors: File too large: the checkpoint needs \d+ bytes in "
                                       r"full/checkpoints, which has \d+ free; make room there[^\n]*\n\Z")
                self.assertEqual(self.checkpoints("full"), ["step-000005"])
        self.succeed("checkpoint", "verify", "full")
        self.succeed("train", "tiny.toml", "--ranks", 2, *size)
        self.assertEqual([step for step, _, _ in self.curve("full")], list(range(1, 21)))


class Pods(ProgramTest):
    def test_a_world_size_that_counts_pods_is_not_one_of_ranks(self):
        pod = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "pod-0", "MASTER_PORT": "29500"}
        self.fail_with(USER, ["--ranks is 4", "WORLD_SIZE", "counts pods", "trireme run --nnodes \"$WORLD_SIZE\"",
                              "--nproc-per-node 4"], "train", "tiny.toml", "--ranks", 4, environment=pod)


class Store(ProgramTest):
    """Where ranks of another launcher are told to meet: what is wrong there is one line, and no library's log."""

    def refuse(self, code, expected, **variables):
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", **variables}
        self.fail_with(code, expected, "train", "tiny.toml", "--parallel.timeout_seconds=1", environment=ranks)
        self.assertFalse((self.folder / "run").exists(), "something was written")

    def test_address(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = str(held.getsockname()[1])
            for launcher in ({}, {"TORCHELASTIC_USE_AGENT_STORE": "True"}):
                self.refuse(USER, ["nohost.invalid", "does not resolve"], MASTER_ADDR="nohost.invalid",
                            MASTER_PORT=port, **launcher)
                self.refuse(LOST, ["no store at 127.0.0.1:" + port, "within 1 s", "Connection refused"],
                            MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **launcher, RANK="1", LOCAL_RANK="1")
            self.refuse(USER, ["65536", "from 1 to 65535"], MASTER_ADDR="127.0.0.1", MASTER_PORT="65536")
            self.refuse(USER, ["198.51.100.7", "no token", "TRIREME_TOKEN_FILE"], MASTER_ADDR="198.51.100.7",
                        MASTER_PORT=port)
            self.refuse(USER, ["198.51.100.7", "not an address of this host"], MASTER_ADDR="198.51.100.7",
                        MASTER_PORT=port, TRIREME_TOKEN="three banks of oars")
            held.listen()
            self.refuse(USER, ["port " + port, "in use", "MASTER_PORT"], MASTER_ADDR="127.0.0.1", MASTER_PORT=port)

    def test_token(self):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        self.refuse(USER, ["TRIREME_TOKEN holds 5 characters", "16"], TRIREME_TOKEN="short", **address)
        (self.folder / "token").write_text("three banks of oars")
        (self.folder / "token").chmod(0o644)
        self.refuse(USER, ["token", "0644", "chmod 600"], TRIREME_TOKEN_FILE="token", **address)
        self.refuse(USER, ["missing", "No such file"], TRIREME_TOKEN_FILE="missing", **address)

    def test_file(self):
        os.mkfifo(self.folder / "fifo")
        self.refuse(USER, ["file:text", "Is a directory"], TRIREME_STORE="file:text")
        self.refuse(USER, ["file:fifo", "not a regular file"], TRIREME_STORE="file:fifo")
        self.refuse(USER, ["nowhere", "No such file"], TRIREME_STORE="file:nowhere/store")

    def test_strangers_are_told(self):
        """Rank 0 says who was refused; its ranks meet all the same."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        start = lambda rank, **more: self.start("train", "tiny.toml", "--train.steps=1", environment={
            **ranks, "RANK": rank, "LOCAL_RANK": rank, **more})
        zero = start("0")
        stranger = None
        while stranger is None:
            self.assertIsNone(zero.poll())
            try:
                stranger = socket.create_connection(("127.0.0.1", port))
            except ConnectionRefusedError:
                time.sleep(0.01)
        with stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stranger.recv(4096):
                pass
        wrong = start("1", TRIREME_TOKEN="three banks of oars")
        _, line = wrong.communicate(timeout=TIMEOUT)
        self.assertEqual(wrong.returncode, USER, line)
        self.assertIn("its token is a different one", line)
        one = start("1")
        for rank in (zero, one):
            _, errors = rank.communicate(timeout=TIMEOUT)
            self.assertEqual(rank.returncode, 0, errors)
            told = ["is not a Trireme rank", "wrong token"] if rank is zero else []
            self.assertEqual(errors, "".join(f"trireme: the store refused a connection from 127.0.0.1: {reason}\n"
                                             for reason in told))


class NameInUse(ProgramTest):
    def test_segment(self):
        job = f"test-{os.getpid()}"
        path = f"/dev/shm/trireme-{job}"
        with open(path, "xb") as other:
            self.addCleanup(os.unlink, path)
            other.truncate(4096)
            fcntl.lockf(other, fcntl.LOCK_EX, 1, 0)  # rank 0 of another run, alive
            ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                     "TRIREME_JOB": job}
            self.fail_with(USER, [job, "in use"], "train", "tiny.toml", environment=ranks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
