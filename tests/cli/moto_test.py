"""A run over the S3 of moto's server, another implementation than the store of the tests: the server is killed in the run
and started again, and the samples are those of a disk."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from predictions import VISION, write_images, write_shards
from program import ProgramTest

PYTHON = os.environ["TRIREME_MOTO_PYTHON"]


class Moto:
    """Serves a folder's files as the bucket `data`. moto has its objects in memory, so each start puts them there again;
    an ETag is the content's MD5, and stays the same."""

    def __init__(self, folder, port=0):
        self.folder, self.port = pathlib.Path(folder), port
        self.start()

    def start(self):
        log = open(self.folder / "moto.log", "ab")  # noqa: SIM115: the server has it
        self.process = subprocess.Popen([PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                                        stdout=log, stderr=log)
        log.close()
        self.port = self.port or self.port_in_log()
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "moto.log").read_text()
            time.sleep(0.05)

    def port_in_log(self):
        """The port that the system chose."""
        while True:
            for line in (self.folder / "moto.log").read_text().splitlines():
                if "http://127.0.0.1:" in line:
                    return int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0])
            assert self.process.poll() is None, (self.folder / "moto.log").read_text()
            time.sleep(0.05)

    def put(self, name, body=b""):
        request = urllib.request.Request(f"{self.url}/{urllib.parse.quote(name)}", data=body, method="PUT", headers={"Content-Type": "a/b"})
        urllib.request.urlopen(request, timeout=30).close()

    def answers(self):
        try:
            self.put("data")
        except (urllib.error.URLError, ConnectionError):
            return False
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.parts[len(self.folder.parts)] in ("data", "shards"):
                self.put(f"data/{path.relative_to(self.folder)}", path.read_bytes())
        return True

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def environment(self):
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1"}


class OverMoto(ProgramTest):
    def serve(self):
        server = Moto(self.folder)
        self.addCleanup(lambda: server.kill())
        return server

    def kill_and_restart(self, server, process, run):
        """While the run goes on."""
        for step in (3, 60):
            self.await_step(step, process, run)
            server.kill()
            time.sleep(1)
            self.assertIsNone(process.poll())
            server.start()
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)

    def test_texts_are_those_of_a_disk_although_the_server_is_killed(self):
        command = ("train", "tiny.toml", "--data.ahead=1", "--train.steps=200", "--train.evaluate_interval=0",
                   "--checkpoint.interval=0", "--ranks", 2)
        self.succeed(*command, "--output.folder=disk")
        server = self.serve()
        process = self.start(*command, "--output.folder=store", "--data.path=s3://data/data/tiny",
                             environment=server.environment())
        self.kill_and_restart(server, process, "store")
        self.assertEqual(self.curve("store"), self.curve("disk"))
        for path in pathlib.Path(self.folder / "store").rglob("*"):  # keys are nowhere
            self.assertFalse(path.is_file() and b"secret" in path.read_bytes(), path)

    def test_names_may_have_any_character(self):
        (self.folder / "data/d e").mkdir(parents=True)
        for i, name in enumerate(("+50% ?#@ü.jsonl", "a&b<c>'\\\"=.jsonl", "%41.jsonl")):
            (self.folder / "data/d e" / name).write_text(f'{{"text": "row {i}"}}\n')
        server = self.serve()
        for output, folder in (("disk", "data/d e"), ("store", "s3://data/data/d e/")):
            self.succeed("data", "prepare", "--format", "json-lines", "--input", folder, "--validation", 0, "--output",
                         f"out/{output}", environment=server.environment())
        self.assertEqual(*((self.folder / f"out/{name}.bin").read_bytes() for name in ("disk", "store")))

    def test_archives_of_images_and_checkpoints_go_through_it_too(self):
        write_images(self.folder / "files/train", 6)
        write_shards(self.folder / "files/train", self.folder / "shards/train")
        (self.folder / "vision.toml").write_text(VISION)
        command = ("train", "vision.toml", "--train.evaluate_interval=0", "--data.ahead=1")
        self.succeed(*command, "--output.folder=disk", "--data.path=shards")
        server = self.serve()
        process = self.start(*command, "--output.folder=store", "--data.path=s3://data/shards",
                             "--checkpoint.store=s3://data/kept/run", environment=server.environment())
        output, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("stored  s3://data/kept/run/checkpoints/step-000012", output)
        self.assertEqual(self.curve("store"), self.curve("disk"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
