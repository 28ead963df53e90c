"""Ranks under an agent survive the loss of others in the same process, and lose nothing."""
import glob
import random
import shutil
import signal
import time
import unittest

from fake_agent import FakeAgent, Worker
from program import TIMEOUT, ProgramTest, freeze

STEPS = 150
MEMORY = ["--checkpoint.memory_interval=3", "--checkpoint.interval=20", f"--train.steps={STEPS}"]


class Elastic(ProgramTest):
    def setUp(self):
        self.memory_before = set(glob.glob("/dev/shm/trireme-checkpoint-*"))
        super().setUp()
        self.addCleanup(self.remove_memory)

    def remove_memory(self):
        for folder in set(glob.glob("/dev/shm/trireme-checkpoint-*")) - self.memory_before:
            shutil.rmtree(folder)

    def tearDown(self):
        self.assertEqual(self.segments(), [])
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def undisturbed(self, ranks, *arguments, steps=STEPS):
        """The curve of a run that nothing happens to."""
        self.succeed("train", "tiny.toml", "--ranks", ranks, *arguments, "--output.folder=whole")
        curve = self.curve("whole")
        self.assertEqual([step for step, *_ in curve], list(range(1, steps + 1)))
        return curve

    def agent(self, *arguments, has_hosts=False):
        return FakeAgent(self, "tiny.toml", *arguments, has_hosts=has_hosts)

    def check_replaced(self, ranks, victims, *arguments, has_hosts=False):
        arguments = [*MEMORY, *arguments]
        expected = self.undisturbed(ranks, *arguments)
        agent = self.agent(*arguments, has_hosts=has_hosts)
        workers = agent.begin([None] * ranks)
        survivor = next(rank for rank in range(ranks) if rank not in victims)
        workers[survivor].wait_step(8)
        process = workers[survivor].process
        agent.replace(victims)
        self.assertIs(agent.workers[survivor].process, process)
        agent.finish()
        self.assertEqual(self.curve(), expected)
        return agent

    def wait_some_steps(self, agent, generator):
        """Counts steps, not seconds: a fast machine would come to the end of the run."""
        epoch = agent.epoch
        first = agent.workers[0].wait_for(lambda m: m["message"] == "step" and m["epoch"] == epoch)
        agent.workers[0].wait_step(first["step"] + generator.randrange(9), epoch=epoch)
        time.sleep(generator.uniform(0, 0.01))

    def check_lost_while_meeting(self, *arguments, has_hosts=False, victim=1):
        arguments = [*MEMORY, *arguments]
        expected = self.undisturbed(2, *arguments)
        agent = self.agent(*arguments, has_hosts=has_hosts)
        workers = agent.begin([None, None])
        survivor = workers[1 - victim]
        survivor.wait_step(5)
        workers[victim].kill()
        reason = f"rank {victim} was killed by signal 9"
        agent.leave([survivor], reason)
        for pause in (0.5, 0, 0.01):  # the victim never comes
            agent.next_epoch()
            survivor.send(**agent.join(1 - victim, 2, reason))
            time.sleep(pause)
            agent.leave([survivor], reason)
        agent.begin([None if rank == victim else survivor for rank in range(2)], reason)
        agent.finish()
        self.assertEqual(self.curve(), expected)

    def check_stopped(self, *arguments):
        """A peer that neither answers nor is gone holds nobody."""
        arguments = [*MEMORY, *arguments]
        expected = self.undisturbed(3, *arguments)
        agent = self.agent(*arguments)
        workers = agent.begin([None] * 3)
        workers[0].wait_step(8)
        freeze([workers[2].process.pid])
        agent.leave(workers[:2], "rank 2 hangs")
        workers[2].kill()
        agent.begin([*workers[:2], None], "rank 2 hangs")
        agent.finish()
        self.assertEqual(self.curve(), expected)


class ElasticRank(Elastic):
    def test_a_rank_is_killed_and_started_again(self):
        agent = self.check_replaced(2, [1])
        first = agent.workers[0]
        self.assertEqual(first.messages[0], {"message": "hello", "version": 1, "folder": str(self.folder / "run")})
        self.assertRegex(first.text(), r"epoch 2: 2 ranks, rank 1 was killed by signal 9; "
                                       r"goes on from step \d+ in memory")
        self.assertEqual({m["epoch"] for m in first.messages if m["message"] == "step"}, {1, 2})

    def test_rank_0_is_killed(self):
        self.check_replaced(2, [0])

    def test_two_of_three_are_killed(self):
        self.check_replaced(3, [0, 2], "--train.global_batch=12", "--train.micro_batch=2")

    def test_zero_3(self):
        self.check_replaced(2, [1], "--parallel.zero=3")

    def test_the_host_of_the_store_is_lost(self):
        self.check_replaced(3, [0], "--parallel.transport=gloo", "--train.global_batch=12",
                            "--train.micro_batch=2", has_hosts=True)

    def test_fewer_and_more_ranks(self):
        same_bits = [*MEMORY, "--train.reproducible=true", "--train.micro_batch=2"]
        expected = self.undisturbed(2, *same_bits)
        agent = self.agent(*same_bits)
        workers = agent.begin([None, None])
        workers[0].wait_step(6)
        workers[1].kill()
        agent.leave(workers[:1], "rank 1 was killed by signal 9")
        agent.begin(workers[:1], "rank 1 was killed by signal 9")
        workers[0].wait_step(13, epoch=2)
        agent.leave(workers[:1], "host b joins")
        agent.begin([workers[0], None], "host b joins")
        workers[0].wait_step(20, epoch=3)
        # Three are there, and powers of two take part.
        agent.leave(agent.workers, "another joins")
        agent.begin([*agent.workers, None], "another joins")
        spare = agent.workers[2]
        spare.wait_for(lambda m: m == {"message": "spare", "epoch": 4})
        agent.workers[0].wait_step(26, epoch=4)
        agent.workers[1].kill()
        agent.leave([agent.workers[0], spare], "rank 1 was killed by signal 9")
        agent.begin([spare, agent.workers[0]], "rank 1 was killed by signal 9")
        agent.finish()
        self.assertEqual(self.curve(), expected)

    def test_killed_again_and_again(self):
        """In steps, saves, meetings and recoveries, whatever the moment hits."""
        steps = 400
        arguments = [*MEMORY, "--checkpoint.interval=4", f"--train.steps={steps}"]
        expected = self.undisturbed(2, *arguments, steps=steps)
        generator = random.Random(5)
        agent = self.agent(*arguments)
        agent.begin([None, None])
        agent.workers[0].wait_step(3)
        for round in range(8):
            if round % 2 == 0:  # in a meeting or a recovery
                time.sleep(generator.uniform(0, 0.5))
            else:
                self.wait_some_steps(agent, generator)
            agent.replace([generator.randrange(2)])
        agent.finish()
        self.assertEqual(self.curve(), expected)

    def test_lost_while_meeting(self):
        self.check_lost_while_meeting()

    def test_a_rank_is_stopped(self):
        self.check_stopped("--train.global_batch=12", "--train.micro_batch=2")

    def test_a_rank_that_waits_ends_when_asked(self):
        agent = self.agent(*MEMORY)
        workers = agent.begin([None, None])
        workers[0].wait_step(5)
        workers[1].kill()
        agent.leave(workers[:1], "rank 1 was killed by signal 9")
        workers[0].process.send_signal(signal.SIGTERM)
        self.assertEqual(workers[0].finish(), 0)

    def test_the_agent_is_gone(self):
        agent = self.agent(*MEMORY, "--train.steps=100000")
        workers = agent.begin([None, None])
        workers[0].wait_step(5)
        for worker in workers:
            worker.link.close()
        for worker in workers:
            self.assertEqual(worker.process.wait(TIMEOUT), 3, worker.text())
            self.assertIn("the agent of this host is gone", worker.text())

    def test_a_warm_process_waits_for_its_first_epoch(self):
        agent = self.agent(*MEMORY)
        warm = Worker(self, agent.arguments, {})
        warm.wait_for(lambda m: m["message"] == "hello")
        agent.begin([warm, None], "the job begins")
        agent.finish()
        self.assertEqual(len(self.curve()), STEPS)

    def test_what_cannot_be(self):
        agent = self.agent(*MEMORY, "--parallel.tensor=3")
        agent.begin([None, None])
        for worker in agent.workers:
            self.assertEqual(worker.finish(), 2)
            self.assertRegex(worker.text(), r"\Atrireme: no number of ranks up to the 2 [^\n]*tensor[^\n]*\n\Z")
        self.fail_with(2, ["TRIREME_AGENT_FD", "\"x\""], "train", "tiny.toml", environment={"TRIREME_AGENT_FD": "x"})
        self.fail_with(2, ["TRIREME_AGENT_FD", "SOCK_SEQPACKET"], "train", "tiny.toml",
                       environment={"TRIREME_AGENT_FD": "77"})


class ElasticTransports(Elastic):
    """The same over other transports and layouts (`make test-all`)."""

    def test_tensor(self):
        self.check_replaced(2, [0], "--parallel.tensor=2")

    def test_gloo(self):
        self.check_replaced(3, [1], "--parallel.transport=gloo", "--train.global_batch=12",
                            "--train.micro_batch=2", "--parallel.zero=1")

    def test_at_a_store(self):
        self.check_replaced(3, [2], "--train.global_batch=12", "--train.micro_batch=2", has_hosts=True)

    def test_without_memory_from_the_folder(self):
        self.check_replaced(2, [1], "--checkpoint.memory_interval=0", "--checkpoint.interval=3",
                            "--checkpoint.mode=sync")

    def test_lost_while_meeting_over_gloo(self):
        self.check_lost_while_meeting("--parallel.transport=gloo")

    def test_lost_while_meeting_at_a_store(self):
        self.check_lost_while_meeting("--parallel.transport=gloo", has_hosts=True)

    def test_the_host_of_the_store_is_lost_while_meeting(self):
        self.check_lost_while_meeting(has_hosts=True, victim=0)

    def test_a_rank_is_stopped_over_gloo(self):
        self.check_stopped("--train.global_batch=12", "--train.micro_batch=2", "--parallel.transport=gloo",
                           "--parallel.zero=2")

    def test_a_rank_is_stopped_in_a_pipeline(self):
        self.check_stopped("--parallel.pipeline=3", "--model.layers=3", "--train.micro_batch=2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
