"""Learners that are runs of their own and meet at a service: equal weights after every round, one that is killed and
comes back, one that is stopped for longer than its lease, a service that dies, and lines for what does not fit."""
import os
import re
import signal
import socket
import subprocess
import time
import unittest

from program import TIMEOUT, ProgramTest

USER, PEER = 2, 3
ENDLESS = 1_000_000  # steps


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Meeting(ProgramTest):
    def setUp(self):
        super().setUp()
        self.address = f"127.0.0.1:{free_port()}"

    def serve(self, lease=60, learners=3):
        return self.start("meet", "--listen", self.address, "--learners", learners, "--lease", lease)

    def command(self, place, *options, steps=20, learners=3):
        return ["train", "tiny.toml", "--threads", 1, f"--output.folder=run-{place}", f"--parallel.learners={learners}",
                f"--outer.meeting={self.address}", f"--outer.place={place}", "--outer.every=5",
                "--train.global_batch=12", "--train.micro_batch=2", f"--train.steps={steps}", *options]

    def join(self, place, *options, **others):
        """A learner whose output nobody has to read while it runs."""
        command = [self.program, *map(str, self.command(place, *options, **others))]
        output = (self.folder / f"output-{place}").open("a")
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=output, stderr=output)
        output.close()
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def output(self, place):
        return (self.folder / f"output-{place}").read_text()

    def await_output(self, place, words):
        end = time.monotonic() + TIMEOUT
        while words not in self.output(place):
            self.assertLess(time.monotonic(), end, self.output(place))
            time.sleep(0.02)

    def rounds(self, place):
        """{step: (loss of all learners, their number)}, the numbers as they are printed."""
        path = self.folder / f"run-{place}" / "metrics.jsonl"
        found = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            loss = re.search(r'"learner_loss": ?([^,}]+)', line)
            if loss and line.endswith("}"):
                step, learners = (int(re.search(rf'"{key}": ?(\d+)', line)[1]) for key in ("step", "learners"))
                found[step] = (loss[1], learners)
        return found

    def await_round(self, place, process, is_it):
        """The step of a round for whose step and number of learners that holds."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            for step, (_, learners) in self.rounds(place).items():
                if is_it(step, learners):
                    return step
            self.assertIsNone(process.poll(), self.output(place))
            time.sleep(0.02)
        self.fail("no such round: " + self.output(place))

    def expect_equal_rounds(self, places):
        """All that took part in a round have seen the same losses in it."""
        compared = 0
        all_rounds = [self.rounds(place) for place in places]
        for step in set().union(*all_rounds):
            seen = [rounds[step] for rounds in all_rounds if step in rounds]
            compared += len(seen) - 1
            self.assertEqual(len(set(seen)), 1, f"step {step}: {seen}")
        self.assertGreater(compared, 3)

    def weights(self, place):
        self.succeed("checkpoint", "export", f"run-{place}", "--output", f"exported-{place}")
        return (self.folder / f"exported-{place}" / "model.safetensors").read_bytes()

    def finish(self, learners):
        for place, learner in learners.items():
            self.assertEqual(learner.wait(TIMEOUT), 0, self.output(place))

    def stop(self, learners):
        for learner in learners.values():
            learner.terminate()
        self.finish(learners)

    def test_all_have_the_same_weights(self):
        for name, options in (("diloco", []), ("average", ["--outer.method=average"]), ("coded", ["--outer.wire=int8"])):
            with self.subTest(name):
                self.address = f"127.0.0.1:{free_port()}"
                service = self.serve()
                learners = {place: self.join(place, *options) for place in range(3)}
                self.finish(learners)
                output, errors = service.communicate(timeout=TIMEOUT)
                self.assertEqual((service.returncode, errors), (0, ""))
                for step in (5, 10, 15, 20):
                    self.assertIn(f"round of step {step}: learners 0, 1, 2\n", output)
                self.assertEqual(sorted(self.rounds(0)), [5, 10, 15, 20])
                self.expect_equal_rounds(range(3))
                self.assertEqual(len({self.weights(place) for place in range(3)}), 1)
                for place in range(3):
                    for made in (f"run-{place}", f"exported-{place}", f"output-{place}"):
                        (self.folder / made).rename(self.folder / f"{name}-{made}")

    def test_they_do_what_ranks_of_one_run_do(self):
        service = self.serve()
        self.finish({place: self.join(place) for place in range(3)})
        service.communicate(timeout=TIMEOUT)
        self.succeed("train", "tiny.toml", "--ranks", 3, "--threads", 1, "--output.folder=run-one", "--outer.every=5",
                     "--parallel.learners=3", "--train.global_batch=12", "--train.micro_batch=2", "--train.steps=20")
        self.assertEqual(self.rounds("one"), self.rounds(0))
        self.assertEqual(self.curve("run-one"), self.curve("run-0"))
        self.assertEqual(self.weights("one"), self.weights(0))

    def test_the_others_go_on_without_a_killed_learner_which_comes_back(self):
        self.serve(lease=2)
        learners = {place: self.join(place, steps=ENDLESS) for place in range(3)}
        self.await_round(1, learners[1], lambda step, number: number == 3 and step >= 10)
        learners[1].kill()
        learners[1].wait()
        alone = self.await_round(0, learners[0], lambda step, number: number == 2)
        learners[1] = self.join(1, steps=ENDLESS)
        back = self.await_round(1, learners[1], lambda step, number: number == 3 and step > alone)
        self.await_round(0, learners[0], lambda step, number: step >= back)
        self.stop(learners)
        self.assertRegex(self.output(1), r"resume  after step \d+")
        self.assertIn("behind the other learners: takes their common weights of step", self.output(1))
        self.expect_equal_rounds(range(3))

    def test_a_new_learner_takes_the_weights_of_the_others(self):
        self.serve(lease=2)
        learners = {place: self.join(place, steps=ENDLESS) for place in range(2)}
        self.await_round(0, learners[0], lambda step, number: step >= 10)
        learners[2] = self.join(2, steps=ENDLESS)
        joined = self.await_round(2, learners[2], lambda step, number: number == 3)
        self.await_round(0, learners[0], lambda step, number: step > joined)
        self.stop(learners)
        steps = [line["step"] for line in self.metrics("run-2")]
        self.assertGreater(steps[0], 10)
        self.assertEqual(steps, sorted(set(steps)))
        self.expect_equal_rounds(range(3))

    def test_one_that_is_stopped_for_longer_than_its_lease_catches_up(self):
        self.serve(lease=2)
        learners = {place: self.join(place, steps=ENDLESS) for place in range(3)}
        self.await_round(2, learners[2], lambda step, number: number == 3 and step >= 10)
        os.kill(learners[2].pid, signal.SIGSTOP)
        alone = self.await_round(0, learners[0], lambda step, number: number == 2)
        os.kill(learners[2].pid, signal.SIGCONT)
        self.await_round(2, learners[2], lambda step, number: number == 3 and step > alone)
        self.stop(learners)
        self.assertIn("behind the other learners", self.output(2))
        self.expect_equal_rounds(range(3))

    def test_learners_wait_for_a_service_that_dies(self):
        service = self.serve(lease=2)
        learners = {place: self.join(place, steps=ENDLESS) for place in range(3)}
        before = self.await_round(0, learners[0], lambda step, number: number == 3 and step >= 10)
        service.kill()
        service.wait()
        again = self.serve(lease=2)
        self.await_round(0, learners[0], lambda step, number: number == 3 and step > before + 20)
        self.stop(learners)
        again.terminate()
        output, errors = again.communicate(timeout=TIMEOUT)
        self.assertEqual((again.returncode, errors), (0, ""))
        self.assertIn("learners go on from the weights of step", output)
        self.expect_equal_rounds(range(3))

    def test_a_learner_that_waits_to_begin_hears_a_signal(self):
        # For a service that is not there, and for learners that are not.
        learner = self.join(0)
        self.await_output(0, "waits until it is one of them")
        self.stop({0: learner})
        service = self.serve(lease=600)
        learner = self.join(0)
        while "learner 0 is here" not in (line := service.stdout.readline()):
            self.assertNotEqual(line, "", "the service has ended")
        self.stop({0: learner})
        service.terminate()
        _, errors = service.communicate(timeout=TIMEOUT)
        self.assertEqual((service.returncode, errors), (0, ""))
        self.assertEqual(self.rounds(0), {})

    def test_without_a_service_a_learner_ends(self):
        self.fail_with(PEER, ["no answer of the learners' service", "trireme meet"],
                       *self.command(0, "--parallel.timeout_seconds=1"))

    def test_what_does_not_fit_is_one_line(self):
        for words, options in (
                (["outer.place is 3", "expected 0 to 2"], ["--outer.place=3"]),
                (["outer.method = \"gossip\""], ["--outer.method=gossip"]),
                (["outer.method = \"decoupled\""], ["--outer.method=decoupled", "--parallel.servers=1", "--ranks", 2]),
                (["outer.fragments = 5"], ["--outer.fragments=5"]),
                (["outer.delay = 2"], ["--outer.delay=2"]),
                (["outer.begin = 4"], ["--outer.begin=4"]),
                (["outer.states"], ["--outer.states=average"]),
                (["outer.place is 1 without outer.meeting"], ["--outer.place=1", "--outer.meeting=", "--ranks", 3]),
                (["parallel.learners"], ["--parallel.learners=1"])):
            with self.subTest(words):
                self.fail_with(USER, words, *self.command(0, *options))
        service = self.serve()
        self.join(0)
        while "learner 0 is here" not in service.stdout.readline():
            self.assertIsNone(service.poll())
        self.fail_with(USER, ["train.seed = 7", "the other's train.seed = 42"], *self.command(1, "--train.seed=7"))
        self.fail_with(USER, ["parallel.learners = 4", "has 3"], *self.command(1, "--train.global_batch=16", learners=4))


if __name__ == "__main__":
    unittest.main()
