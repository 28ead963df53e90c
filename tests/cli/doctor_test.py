"""`trireme doctor` on real runs: finished, going on, with a stopped rank, with a killed one."""
import json
import os
import pathlib
import signal
import socket
import unittest

from bad_input_test import checksum
from doctor_checks import DONE, LOST, USER, DoctorTest
from program import TIMEOUT, children

CHECKPOINT = 4


class Doctor(DoctorTest):
    def start_training(self, ranks=2, *overrides):
        """A run that goes on, and its ranks' process ids by rank."""
        process = self.start_and_await_step("train", "tiny.toml", "--ranks", ranks, "--train.steps=1000000", *overrides)
        _, report = self.doctor()
        pids = {rank["rank"]: rank["process_id"] for rank in report["ranks"]}
        self.assertEqual(sorted(pids.values()), sorted(children(process.pid)))
        return process, pids

    def test_a_finished_run_is_healthy(self):
        for ranks in (2, 1):  # the second resumes, and finds nothing more to do
            with self.subTest(ranks=ranks):
                self.succeed("train", "tiny.toml", "--ranks", ranks)
                code, report = self.doctor()
                self.assertEqual((code, report["healthy"]), (DONE, True))
                self.assertEqual([finding["kind"] for finding in report["findings"]], ["finished"])
                self.assertEqual(report["findings"][0]["ranks"], list(range(ranks)))
                self.assertEqual([rank["process"] for rank in report["ranks"]], ["ended"] * ranks)
                self.assertRegex(self.text(), r"\Afinished: rank[^\n]+ none of which failed\n\Z")

    def test_a_stopped_rank_is_named_while_the_run_lives(self):
        for transport in ("auto", "gloo"):
            process, pids = self.start_training(2, f"--parallel.transport={transport}")
            for rank in (1, 0):
                with self.subTest(transport=transport, rank=rank):
                    self.check_stopped_rank(pids, rank)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT)

    def test_a_rank_that_comes_too_late_ends_the_run_and_is_named(self):
        process, pids = self.start_training(2, "--parallel.timeout_seconds=2")
        os.kill(pids[1], signal.SIGSTOP)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, LOST, errors)
        self.assertRegex(errors, r"of group \S+ \(2 ranks\), after 2[.\d]* s: [^\n]*rank 1")
        self.assertEqual(self.segments(), [])

    def test_a_killed_rank_is_named_after_the_run(self):
        for transport, victim in (("auto", 1), ("auto", 0), ("gloo", 1), ("gloo", 0)):
            with self.subTest(transport=transport, victim=victim):
                process, pids = self.start_training(2, f"--parallel.transport={transport}")
                self.check_killed_rank([process], pids, victim)

    def test_every_transport_of_one_host_records_the_same_calls(self):
        def calls(transport):
            self.succeed("train", "tiny.toml", "--ranks", 2, f"--parallel.transport={transport}", "--train.steps=3",
                         # Behind the training, the number of calls depends on the disk's pace.
                         "--checkpoint.mode=sync", f"--output.folder={transport}")
            result = self.run_program("doctor", transport, "--json", "--calls", 4096)
            # Without their sizes: the state that a checkpoint gathers names transport and folder. By group: calls of
            # two groups may come from two threads.
            return [sorted((call["group"], call["sequence"], call["operation"], call["background"])
                           for call in rank["calls"]) for rank in json.loads(result.stdout)["ranks"]]
        shared = calls("shm")
        self.assertGreater(len(shared[0]), 20)
        self.assertEqual(calls("gloo"), shared)

    def test_a_killed_launcher_takes_all_ranks(self):
        process, pids = self.start_training()
        process.kill()
        process.communicate(timeout=TIMEOUT)
        code, report = self.doctor_until(
            lambda report: [rank["process"] for rank in report["ranks"]] == ["gone"] * 2)
        self.assertEqual(code, LOST)
        died = [finding["ranks"] for finding in report["findings"] if finding["kind"] == "died"]
        self.assertEqual(sorted(died), [[0], [1]])

    def test_the_last_calls_are_listed(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        lines = self.text("--calls", 3).splitlines()
        self.assertEqual(len(lines), 1 + 2 * 4)
        self.assertRegex(lines[1], r"\Arank 0, process \d+ on .+ \(ended\):\Z")
        for line in lines[2:5]:
            self.assertRegex(line, r"\A +\d+\.\d{3} s ago  done     \w+ #\d+  \w+\(.*\)")
        _, report = self.doctor("--calls", 4)
        self.assertEqual([len(rank["calls"]) for rank in report["ranks"]], [4, 4])

    def test_a_missing_ring_is_named(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        (self.folder / "run/recorder/rank-00001.ring").unlink()
        code, report = self.doctor()
        self.assertEqual((code, report["healthy"]), (LOST, False))
        self.assertEqual([(f["kind"], f["ranks"]) for f in report["findings"]], [("missing", [1])])
        self.assertRegex(self.text(), r"\Arank 1 has no ring: [^\n]+\n\Z")

    def test_a_run_that_has_recorded_nothing_is_not_called_healthy(self):
        self.succeed("train", "tiny.toml")
        path = self.folder / "run/recorder/rank-00000.ring"
        content = path.read_bytes()
        records = 4096 * 128
        path.write_bytes(content[:-records] + bytes(records))
        code, report = self.doctor()
        self.assertEqual((code, report["healthy"]), (USER, False))
        self.assertEqual([f["kind"] for f in report["findings"]], ["unrecorded"])
        self.assertRegex(self.text(), r"\Anothing is recorded: rank 0 [^\n]+\n\Z")

    def test_what_cannot_be_read_is_one_line(self):
        self.fail_with(USER, ["nowhere", "no recorder folder"], "doctor", "nowhere")
        self.fail_with(USER, ["text", "no recorder folder"], "doctor", "text")
        self.fail_with(USER, ["--late-after", "-1"], "doctor", "run", "--late-after=-1")
        folder = self.folder / "run/recorder"
        folder.mkdir(parents=True)
        self.fail_with(USER, ["run/recorder", "no ring"], "doctor", "run")
        self.succeed("train", "tiny.toml")
        path = folder / "rank-00000.ring"
        whole = path.read_bytes()
        for content, words in ((whole[:-1], ["corrupt"]), (b"text", ["not a recorder's ring"]),
                               (whole[:8] + b"\2" + whole[9:], ["format 2", "up to 1"]),
                               (whole[:33] + b"\2" + whole[34:], ["corrupt", "checksum"])):
            path.write_bytes(content)
            self.fail_with(USER, ["rank-00000.ring", *words], "doctor", "run")
        path.write_bytes(whole)
        self.assertEqual(self.doctor()[0], DONE)

    def test_nothing_of_a_ring_reaches_the_terminal_or_breaks_json(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        for path in (self.folder / "run/recorder").iterdir():
            content = path.read_bytes()
            path.write_bytes(content.replace(b"world\0\0", b"\x1b[2J\xff\0\0"))
        _, report = self.doctor("--calls", 4096)
        groups = {call["group"] for rank in report["ranks"] for call in rank["calls"]}
        self.assertIn("\x1b[2J\ufffd", groups)
        shown = self.text("--calls", 4096)
        self.assertIn("\\x1b[2J\\xff #", shown)
        self.assertNotIn("\x1b", shown)
        self.fail_with(USER, ["\\x1b[2J", "no recorder folder"], "doctor", "\x1b[2J")


class RefusedRun(DoctorTest):
    """A second run in a live run's folder touches nothing of it, however it is started."""

    def files(self):
        """What stands for each file: its identity and permissions, and its content where it does not grow."""
        grows = ("metrics.jsonl", "events.jsonl", "events.out", ".ring", ".log")
        paths = []
        for folder, folders, names in os.walk(self.folder / "run"):
            folders[:] = [name for name in folders if name != "checkpoints"]  # which come and go
            paths += [pathlib.Path(folder) / name for name in (*folders, *names) if "ranks.trs" not in name]  # anew
        return {str(path): (path.stat().st_ino, path.stat().st_mode,
                            path.read_bytes() if path.is_file() and not any(g in path.name for g in grows) else b"")
                for path in paths}

    def test_it_leaves_the_live_runs_files(self):
        live = self.start_and_await_step("train", "tiny.toml", "--ranks", 2, "--train.steps=1000000")
        _, before = self.doctor()
        pids = [rank["process_id"] for rank in before["ranks"]]
        files = self.files()
        self.assertEqual({oct(mode & 0o777) for path, (_, mode, _) in files.items() if path.endswith(".ring")},
                         {"0o600"})
        options = ["--data.seed=9", "--offload.optimizer=disk", "--checkpoint.interval=1"]

        def ranks_by_hand(name):
            """As a launcher does that starts ranks without looking: (exit code, what it says) of each."""
            environment = [{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                            "TRIREME_STORE": f"file:{self.folder}/{name}"} for rank in range(2)]
            ranks = [self.start("train", "tiny.toml", *options, environment=each) for each in environment]
            return [(rank.communicate(timeout=TIMEOUT)[1], rank.returncode) for rank in ranks]

        refusal = "run is being written by another program"
        self.fail_with(USER, [refusal], "train", "tiny.toml", *options)
        self.fail_with(USER, [refusal], "train", "tiny.toml", "--ranks", 2, *options)
        (first, code), (second, second_code) = ranks_by_hand("store")
        self.assertEqual((code, second_code), (USER, USER), first + second)
        self.assertIn(refusal, first)
        self.assertIn(refusal, second)
        self.assertEqual(self.files(), files)
        code, report = self.doctor()
        self.assertEqual((code, report["findings"][0]["kind"]), (DONE, "progress"))
        self.assertEqual([rank["process_id"] for rank in report["ranks"]], pids)
        self.assertIsNone(live.poll())

    def test_a_start_that_is_killed_leaves_nothing_for_long(self):
        live = self.start_and_await_step("train", "tiny.toml", "--train.steps=1000000")
        waiting = self.start("train", "tiny.toml", environment={
            "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
            "TRIREME_STORE": f"file:{self.folder}/store"})
        recorder = self.folder / "run/recorder"
        while not any(path.read_bytes()[320:336].strip(b"\0") for path in recorder.glob("*.new")):  # its header is there
            self.assertIsNone(waiting.poll())
        waiting.kill()
        waiting.wait()
        self.assertEqual(self.doctor()[1]["ranks"][0]["process"], "running")
        live.kill()
        live.wait()
        self.succeed("train", "tiny.toml")
        self.assertEqual([path.name for path in recorder.iterdir()], ["rank-00000.ring"])


    def test_a_start_that_waits_for_a_rank_is_seen(self):
        waiting = self.start("train", "tiny.toml", environment={
            "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
            "TRIREME_STORE": f"file:{self.folder}/store"})
        while "rank 0 has no ring" not in self.run_program("doctor", "run").stdout:
            self.assertIsNone(waiting.poll())
        code, report = self.doctor()
        self.assertNotEqual((code, report["healthy"]), (DONE, True))
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [1])


class NoRegularFile(DoctorTest):
    """A pipe, a device or a huge file where a regular one is expected: one line at once, no wait."""

    def setUp(self):
        super().setUp()
        self.succeed("train", "tiny.toml", "--train.steps=5")

    def replaced_by_a_pipe(self, name):
        path = self.folder / name
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)

        def restore():
            path.unlink()
            path.write_bytes(content)
        return restore

    def test_pipes(self):
        newest = "run/checkpoints/step-000005"
        shard = next((self.folder / newest).glob("*.safetensors")).name
        for name, code, command in (
                ("run/recorder/rank-00000.ring", USER, ["doctor", "run"]),
                (f"{newest}/manifest.json", CHECKPOINT, ["checkpoint", "verify", newest]),
                (f"{newest}/manifest.json", CHECKPOINT, ["checkpoint", "inspect", newest]),
                (f"{newest}/{shard}", CHECKPOINT, ["checkpoint", "verify", newest]),
                ("run/metrics.jsonl", USER, ["train", "tiny.toml", "--train.steps=6"]),
                ("data/tiny.tokenizer.json", USER, ["train", "tiny.toml"]),
                ("data/tiny.bin", USER, ["train", "tiny.toml"]),
                ("tiny.toml", USER, ["train", "tiny.toml"])):
            with self.subTest(name=name, command=command):
                restore = self.replaced_by_a_pipe(name)
                self.fail_with(code, [pathlib.Path(name).name.split(".")[0]], *command)
                restore()

    def test_files_that_are_large_in_name_only(self):
        for name, code, command in (
                ("run/recorder/rank-00000.ring", USER, ["doctor", "run"]),
                ("run/checkpoints/step-000005/manifest.json", CHECKPOINT, ["checkpoint", "verify", "run"]),
                ("tiny.toml", USER, ["train", "tiny.toml"])):
            with self.subTest(name=name):
                content = (self.folder / name).read_bytes()
                os.truncate(self.folder / name, 1 << 40)
                self.fail_with(code, [str(1 << 40)], *command)
                (self.folder / name).write_bytes(content)

    def test_devices_sockets_and_failing_reads(self):
        ring = self.folder / "run/recorder/rank-00000.ring"
        ring.unlink()
        ring.symlink_to("/dev/zero")
        self.fail_with(USER, ["a device"], "doctor", "run")
        ring.unlink()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(ring))
            self.fail_with(USER, ["rank-00000.ring"], "doctor", "run")
        self.fail_with(USER, ["/proc/self/mem", "Input/output error"], "train", "/proc/self/mem")
        self.fail_with(USER, ["config run"], "train", "run")


class ForeignText(DoctorTest):
    def test_no_name_in_a_manifest_reaches_the_terminal(self):
        self.succeed("train", "tiny.toml", "--train.steps=5")
        manifest = self.folder / "run/checkpoints/step-000005/manifest.json"
        content = manifest.read_bytes()
        body = content[33:].replace(b"model.norm.weight", b"model.\\u001b]0;x\\u0007")
        self.assertNotEqual(body, content[33:])
        manifest.write_bytes(b'{"checksum": "%s",\n' % checksum(body).encode() + body)
        for command in (["inspect"], ["inspect", "--json"], ["verify"]):
            shown = self.run_program("checkpoint", command[0], "run", *command[1:])
            self.assertEqual(shown.returncode, CHECKPOINT)
            self.assertNotIn("\x1b", shown.stdout + shown.stderr)

    def test_a_folder_whose_name_commands_the_terminal(self):
        name = "r\x1b[31m\u00e9"
        self.succeed("train", "tiny.toml", "--train.steps=5", f"--output.folder={name}")
        for command in (["doctor"], ["checkpoint", "inspect"], ["checkpoint", "verify"]):
            self.assertNotIn("\x1b", self.succeed(*command, name))
            self.assertIsInstance(json.loads(self.succeed(*command, name, "--json")), dict)

    def test_generated_text_commands_no_terminal(self):
        self.succeed("train", "tiny.toml", "--train.steps=5")
        command = ["generate", "--checkpoint", "run", "--prompt", "a\x1b[31mb\n", "--tokens", "60", "--temperature", "3"]
        piped = self.start(*command)
        raw = piped.stdout.buffer.read()
        self.assertTrue(raw.startswith(b"a\x1b[31mb\n"), "a file gets every byte")
        shown = self.on_terminal(command)
        self.assertTrue(shown.startswith(b"a\\x1b[31mb\r\n"), shown)
        self.assertFalse(set(shown) & (set(range(32)) - set(b"\r\n\t")), shown)

    def on_terminal(self, command):
        """What the program writes to a terminal."""
        import pty
        import subprocess
        from program import PROGRAM
        leader, follower = pty.openpty()
        with subprocess.Popen([PROGRAM, *command], cwd=self.folder, env=self.environment, stdout=follower) as process:
            os.close(follower)
            shown = b""
            try:
                while chunk := os.read(leader, 4096):
                    shown += chunk
            except OSError:  # the other end is closed
                pass
            self.assertEqual(process.wait(TIMEOUT), 0)
        os.close(leader)
        return shown


if __name__ == "__main__":
    unittest.main(verbosity=2)
