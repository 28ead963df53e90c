"""Learners of a test that are runs of their own and meet at a service."""
import re
import subprocess
import time

from program import TIMEOUT, ProgramTest, free_port

ENDLESS = 1_000_000  # steps


class MeetingTest(ProgramTest):
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

    def expect_rounds_without(self, learners, join):
        """Learner 1 of three is killed; the others go on, and it comes back."""
        self.await_round(1, learners[1], lambda step, number: number == 3 and step >= 10)
        learners[1].kill()
        learners[1].wait()
        alone = self.await_round(0, learners[0], lambda step, number: number == 2)
        learners[1] = join(1, steps=ENDLESS)
        back = self.await_round(1, learners[1], lambda step, number: number == 3 and step > alone)
        self.await_round(0, learners[0], lambda step, number: step >= back)
        self.stop(learners)
        self.assertRegex(self.output(1), r"resume  after step \d+")
        self.assertIn("behind the other learners: takes their common weights of step", self.output(1))
        self.expect_equal_rounds(range(3))

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
