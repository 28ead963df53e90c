"""Hosts of `trireme network` on which learners train that are killed, stopped and cut off, and what the learners write."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

NETWORK = """
[network]
hosts = {names}
[default]
rate = {rate}
delay_ms = {delay}
"""
# A small model that trains until it is ended.
CONFIG = """
[model]
family = "llama"
layers = 2
width = 64
heads = 4
kv_heads = 2
ffn_width = 192
sequence_length = 64
[train]
global_batch = {global_batch}
micro_batch = {micro_batch}
steps = 1000000
[optimizer]
warmup_steps = 2
schedule = "constant"
[checkpoint]
interval = {interval}
keep = {keep}
"""
# Keeps a host alive, and says by which process it is entered.
ANCHOR = "echo $$ > '{folder}/.host-{{index}}' && exec sleep 1000000"


class Hosts:
    """The first is of the service at which learners meet, the others have a learner each."""

    def __init__(self, program, folder, learners, rate=50e6, delay=10):
        self.program, self.folder, self.count = program, Path(folder).resolve(), learners + 1
        self.rate, self.delay = rate, delay

    def __enter__(self):
        names = ["service", *(f"host{place}" for place in range(self.count - 1))]
        file = self.folder / "wan.toml"
        file.write_text(NETWORK.format(names=json.dumps(names), rate=self.rate, delay=self.delay))
        anchors = [self.folder / f".host-{index}" for index in range(self.count)]
        for anchor in anchors:
            anchor.unlink(missing_ok=True)
        log = open(self.folder / "network.out", "a")
        self.network = subprocess.Popen([self.program, "network", file, "--", "sh", "-c", ANCHOR.format(folder=self.folder)],
                                        stdout=log, stderr=log)
        log.close()
        try:
            while not all(anchor.exists() and anchor.read_text().strip() for anchor in anchors):
                if self.network.poll() is not None:
                    raise RuntimeError(f"trireme network has ended, see {self.folder}/network.out")
                time.sleep(0.01)
        except BaseException:  # a signal too
            self.__exit__()
            raise
        self.anchors = [anchor.read_text().strip() for anchor in anchors]
        return self

    def __exit__(self, *_):
        self.network.terminate()
        self.network.wait()
        for index in range(self.count):
            (self.folder / f".host-{index}").unlink(missing_ok=True)

    @staticmethod
    def address(index):
        return f"10.231.80.{index + 1}"

    def command(self, index, words):
        return ["nsenter", "--net", "--mount", "--uts", f"--wd={self.folder}", "--target", self.anchors[index], "--",
                *map(str, words)]

    def set_link(self, index, state):
        subprocess.run(self.command(index, ["ip", "link", "set", "trireme0", state]), check=True)


class Lines:
    """The lines of a file of JSON objects that have a `time`, each once, though the file may be written anew."""

    def __init__(self, path):
        self.path, self.offset, self.inode, self.newest, self.all = Path(path), 0, None, (0.0, 0), []

    def read(self):
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self.inode or status.st_size < self.offset:
                self.inode, self.offset = status.st_ino, 0
            file.seek(self.offset)
            content = file.read()
            content = content[:content.rfind(b"\n") + 1]
            self.offset += len(content)
            for text in content.splitlines():
                line = json.loads(text)
                if (line["time"], line["step"]) > self.newest:  # it was not read before the file was written anew
                    self.newest = line["time"], line["step"]
                    self.all.append(line)


class Learners:
    """A learner on each host but the first, of a system that says how to start one and which of its lines end a round."""
    lines_name = ""  # of the file within a learner's folder

    def __init__(self, hosts, folder, lease):
        self.hosts, self.folder, self.lease = hosts, Path(folder).resolve(), lease
        self.places = range(hosts.count - 1)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes, self.ended = {}, []
        self.lines = {place: Lines(self.folder / f"run-{place}" / self.lines_name) for place in self.places}
        for lines in self.lines.values():
            lines.read()  # of an earlier campaign
        self.begins = {place: [] for place in self.places}
        self.service = None

    def learner_command(self, place):
        raise NotImplementedError

    def service_command(self):
        raise NotImplementedError

    def environment(self, place):
        return {}

    def is_round(self, line):
        raise NotImplementedError

    def start_process(self, index, words, output, environment):
        log = open(self.folder / output, "a")
        process = subprocess.Popen(self.hosts.command(index, words), stdout=log, stderr=log, start_new_session=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", "TRIREME_TOKEN": "three banks of oars",
                                        **environment})
        log.close()
        return process

    def start_service(self):
        self.service = self.start_process(0, self.service_command(), "service.out", {})

    def start(self, place):
        self.lines[place].read()
        self.begins[place].append(time.time())
        self.processes[place] = self.start_process(place + 1, self.learner_command(place), f"learner-{place}.out",
                                                   self.environment(place))

    def signal(self, place, number):
        os.killpg(self.processes[place].pid, number)

    def kill(self, place):
        self.signal(place, signal.SIGKILL)
        self.processes[place].wait()

    def poll(self):
        """Reads what is new. One that has ended without being killed is remembered, and started again."""
        for place in self.places:
            self.lines[place].read()
            if self.processes[place].poll() not in (None, -signal.SIGKILL):
                self.ended.append((place, self.processes[place].returncode))
                self.start(place)

    def first(self, place, begin, end_of_round=False):
        """When this learner ended its first step, or round, after that time; None if it has not."""
        found = None
        for line in reversed(self.lines[place].all):
            if line["time"] <= begin:
                break
            if not end_of_round or self.is_round(line):
                found = line["time"]
        return found

    def longest_pause(self, place, begin, end):
        times = [begin, *(line["time"] for line in self.lines[place].all if begin < line["time"] <= end)]
        return max((after - before for before, after in zip(times, times[1:])), default=0.0)

    def end(self):
        for place, process in self.processes.items():
            if process.poll() is None:
                self.kill(place)
        if self.service and self.service.poll() is None:
            os.killpg(self.service.pid, signal.SIGKILL)
            self.service.wait()
