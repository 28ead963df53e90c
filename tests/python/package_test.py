#!/usr/bin/env python3
"""What trireme_torch says on import and when it cannot work."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

import ranks


def die_in_a_collective(rank):
    """Rank 1 is killed; the others hear of it in their call."""
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), 9)
    try:
        dist.all_reduce(torch.ones(3))
    except dist.DistBackendError as error:
        assert "rank 1 died" in str(error) and "\n" not in str(error).strip(), error
    else:
        raise AssertionError("all_reduce returned though rank 1 is dead")
    return "heard"


def leave_one_waiting(rank):
    """Rank 1 is killed while rank 0 waits for it in the second all-reduce of a sub-group."""
    pair = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3), group=pair)
    if rank == 1:
        os.kill(os.getpid(), 9)
    try:
        dist.all_reduce(torch.ones(5), group=pair)
    except dist.DistBackendError:
        return "heard"


def differ_in_shape(rank):
    try:
        dist.all_reduce(torch.ones(3 + rank))
    except dist.DistBackendError as error:
        assert "rank 0 all_reduce(Float, 3 elements" in str(error), error
        assert "rank 1 all_reduce(Float, 4 elements" in str(error), error
    else:
        raise AssertionError("all_reduce of different shapes returned")


def time_out(rank):
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        try:
            work.wait(timeout=ranks.datetime.timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            assert "is not done after 0.05 s" in str(error), error
        else:
            raise AssertionError("wait returned though rank 1 has not come")
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(torch.ones(3))


def initialise_again(rank):
    """A group after the first was destroyed, through a store of its own and of the same name."""
    world, store = dist.get_world_size(), dist.distributed_c10d._get_default_store()
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("trireme", store=store, rank=rank, world_size=world)
        data = torch.ones(3)
        dist.all_reduce(data)
        assert torch.equal(data, torch.full((3,), float(world))), data


class Package(unittest.TestCase):
    def test_import_registers_the_backend_for_cpu(self):
        import trireme_torch  # noqa: F401
        self.assertTrue(dist.is_backend_available("trireme"))
        self.assertIn("cpu", dist.Backend.backend_capability["trireme"])

    def test_another_release_of_torch_is_named_in_one_line(self):
        import trireme_torch
        for running in ("2.10.1", "2.15.0+cpu", "3.0.0a0+git1234"):
            with self.assertRaisesRegex(ImportError, "^trireme_torch works with torch 2.11 to 2.14 and found torch "
                                        + running.replace("+", r"\+") + ": [^\n]*$"):
                trireme_torch.check_torch(running, "2.13.0")
        with self.assertRaisesRegex(ImportError, "^trireme_torch was built against torch 2.13.0 and found torch 2.12.1, "
                                    "[^\n]*$"):
            trireme_torch.check_torch("2.12.1", "2.13.0")
        for running in ("2.11.0", "2.14.2+cu130"):
            trireme_torch.check_torch(running, running)
        trireme_torch.check_torch("2.13.1", "2.13.0+cpu")

    def test_import_fails_on_another_release_of_torch(self):
        result = subprocess.run([sys.executable, "-c", "import torch; torch.__version__ = '2.15.0'; import trireme_torch"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("ImportError: trireme_torch works with torch 2.11 to 2.14 and found torch 2.15.0",
                      result.stderr.strip().splitlines()[-1])

    def test_a_killed_rank_is_named(self):
        self.assertEqual(ranks.run(2, die_in_a_collective, killed=[1]), ["heard", None])
        self.assertEqual(ranks.run(3, die_in_a_collective, killed=[1]), ["heard", None, "heard"])

    def test_the_recorder_tells_the_doctor_who_died(self):
        with tempfile.TemporaryDirectory(prefix="trireme-run-") as run:
            os.environ["TRIREME_RECORDER"] = run
            try:
                self.assertEqual(ranks.run(2, leave_one_waiting, killed=[1]), ["heard", None])
            finally:
                del os.environ["TRIREME_RECORDER"]
            doctor = subprocess.run([os.path.join(os.environ["TRIREME_BUILD"], "bin", "trireme"), "doctor", run],
                                    capture_output=True, text=True)
            self.assertRegex(doctor.stdout + doctor.stderr, "rank 1.*(died|dead|killed)")

    def test_calls_that_differ_are_named(self):
        ranks.run(2, differ_in_shape)

    def test_wait_takes_a_limit(self):
        ranks.run(2, time_out)

    def test_a_job_can_make_its_group_again(self):
        for world in (1, 2, 3):
            ranks.run(world, initialise_again)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
