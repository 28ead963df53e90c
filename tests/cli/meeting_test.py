"""Learners that are runs of their own and meet at a service: equal weights after every round, one that is killed and
comes back, one that is stopped for longer than its lease, a service that dies, and lines for what does not fit."""
import os
import signal
import unittest

from meeting_learners import ENDLESS, MeetingTest
from program import TIMEOUT, free_port

USER, PEER = 2, 3


class Meeting(MeetingTest):
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
        self.expect_rounds_without(learners, self.join)

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
                (["parallel.servers = 1"], ["--outer.method=decoupled", "--parallel.servers=1", "--ranks", 2]),
                (["outer.staleness = 2"], ["--outer.method=decoupled", "--outer.staleness=2"]),
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
