"""An agent for tests of workers: starts `trireme train` as ranks with a link, and speaks to them."""
import contextlib
import json
import os
import select
import socket
import subprocess
import time

from program import TIMEOUT, end


class Worker:
    """A process with its end of the link. `messages` has all that it has said."""

    def __init__(self, test, arguments, environment):
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.messages = []
        self.is_gone = False
        with theirs:
            self.output = open(test.folder / f"worker-{time.monotonic_ns()}.log", "w+")
            self.process = subprocess.Popen(
                [test.program, "train", *map(str, arguments)], cwd=test.folder, stdout=self.output,
                stderr=subprocess.STDOUT, pass_fds=[theirs.fileno()],
                env={**test.environment, **environment, "TRIREME_AGENT_FD": str(theirs.fileno())})
        test.addCleanup(self.close)

    def close(self):
        end(self.process)
        self.link.close()
        self.output.close()

    def text(self):
        self.output.flush()
        with open(self.output.name) as output:
            return output.read()

    def send(self, **message):
        self.link.send(json.dumps(message).encode())

    def read(self, seconds=0.05):
        """Takes what has come within that time. Returns whether there may be more."""
        if self.is_gone:
            return False
        if select.select([self.link], [], [], seconds)[0]:
            packet = b""
            with contextlib.suppress(ConnectionResetError):
                packet = self.link.recv(1 << 16)
            self.is_gone = not packet
            if packet:
                self.messages.append(json.loads(packet))
        return not self.is_gone

    def wait_for(self, wanted, seconds=TIMEOUT):
        """The first message, of those seen and those to come, for which wanted() is true."""
        limit = time.monotonic() + seconds
        seen = 0
        while True:
            for message in self.messages[seen:]:
                if wanted(message):
                    return message
            seen = len(self.messages)
            if not self.read() and len(self.messages) == seen:
                raise AssertionError(f"the worker has ended with {self.process.wait()}: {self.text()}")
            assert time.monotonic() < limit, f"nothing from the worker: {self.messages[-3:]} {self.text()}"

    def wait_step(self, step, epoch=None):
        return self.wait_for(lambda m: m["message"] == "step" and m["step"] >= step and
                             epoch in (None, m["epoch"]))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self):
        """The exit code; reads to the end, so that nothing is dropped."""
        limit = time.monotonic() + TIMEOUT
        while self.read():
            assert time.monotonic() < limit, self.text()
        return self.process.wait(TIMEOUT)


class FakeAgent:
    """The workers in rank order: of one host, or each as if on a host of its own."""

    def __init__(self, test, *arguments, has_hosts=False):
        self.test = test
        self.arguments = arguments
        self.job = f"{os.getpid()}-{time.monotonic_ns():x}"
        self.epoch = 0
        self.has_hosts = has_hosts
        self.workers = []
        test.launchers.append(os.getpid())

    def join(self, rank, size, reason=""):
        """The message to a rank of this epoch."""
        return {"message": "join", "epoch": self.epoch, "rank": rank, "size": size,
                "local_rank": 0 if self.has_hosts else rank, "local_size": 1 if self.has_hosts else size,
                "job": f"{self.job}-{self.epoch}", "reason": reason,
                "store": f"tcp://127.0.0.1:{self.port}" if self.has_hosts else ""}

    def environment(self, rank, size):
        """The same for a new process."""
        join = self.join(rank, size)
        variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": join["local_rank"],
                     "LOCAL_WORLD_SIZE": join["local_size"], "TRIREME_JOB": join["job"],
                     "TRIREME_LAUNCH": join["job"], "TRIREME_EPOCH": self.epoch}
        if self.has_hosts:
            variables.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=self.port)
        return {name: str(value) for name, value in variables.items()}

    def next_epoch(self):
        self.epoch += 1
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def begin(self, members, reason=""):
        """The next epoch, of these workers in order; None: a new one."""
        self.next_epoch()
        self.workers = list(members)
        for rank, worker in enumerate(members):
            if worker is None:
                environment = self.environment(rank, len(members))
                self.workers[rank] = Worker(self.test, self.arguments, environment)
            else:
                worker.send(**self.join(rank, len(members), reason))
        return self.workers

    def leave(self, workers, reason):
        """Tells these to leave, and waits until they have. Returns how long the last one took."""
        begin = time.monotonic()
        for worker in workers:
            worker.send(message="leave", epoch=self.epoch, reason=reason)
        for worker in workers:
            left = worker.wait_for(lambda m: m["message"] == "left" and m["epoch"] == self.epoch)
            self.test.assertIsNone(worker.process.poll())
            self.test.assertGreaterEqual(left["step"], 0)
        return time.monotonic() - begin

    def replace(self, ranks):
        """Kills these workers, and begins an epoch with new ones in their places."""
        for rank in ranks:
            self.workers[rank].kill()
        reason = f"rank {ranks[0]} was killed by signal 9"
        rest = [None if rank in ranks else worker for rank, worker in enumerate(self.workers)]
        self.leave([worker for worker in rest if worker], reason)
        return self.begin(rest, reason)

    def finish(self):
        for worker in self.workers:
            self.test.assertEqual(worker.finish(), 0, worker.text())
