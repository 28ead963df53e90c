#!/usr/bin/env python3
"""What a program that was written for gloo finds on "trireme": gloo's words in errors, its events, its monitored barrier."""

import json
import os
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import ranks

SHORT = timedelta(milliseconds=50)


def error_of(function):
    try:
        function()
    except RuntimeError as error:  # what gloo raises; ours is a kind of it
        assert isinstance(error, dist.DistBackendError), repr(error)
        return str(error)
    raise AssertionError("it did not fail")


def when_all_have(step):
    """Over the job's store, which lives when the group is dead."""
    store = dist.distributed_c10d._get_default_store()
    store.add(step, 1)
    while store.add(step, 0) < dist.get_world_size():
        time.sleep(0.001)


def peer_leaves(rank):
    if rank == 1:
        dist.destroy_process_group()
        dist.destroy_process_group = lambda: None  # which the test would call
        return None
    return error_of(lambda: dist.all_reduce(torch.ones(3)))


def peer_is_late(rank):
    """The barrier's own timeout, then the same on a rank that hears of it."""
    if rank == 1:
        when_all_have("late")
        return error_of(lambda: dist.barrier())
    began = time.monotonic()
    text = error_of(lambda: dist.barrier(timeout=SHORT))
    assert time.monotonic() - began < ranks.TIMEOUT.total_seconds(), "it took the group's timeout"
    when_all_have("late")
    return text


def message_is_late(rank):
    group = dist.new_group([0, 1], timeout=SHORT)
    text = error_of(lambda: dist.recv(torch.ones(3), 1, group=group)) if rank == 0 else None
    when_all_have("late")
    return text


def wait_is_short(rank):
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        text = error_of(lambda: work.wait(SHORT))
        when_all_have("short")
        work.wait()
        return text
    when_all_have("short")
    dist.all_reduce(torch.ones(3))


def peer_never_comes(rank):
    """A group that rank 1 does not make."""
    text = error_of(lambda: dist.new_group([0, 1], timeout=SHORT)) if rank == 0 else None
    when_all_have("alone")
    return text


def calls_differ(rank):
    return error_of(lambda: dist.all_reduce(torch.ones(3 + rank)))


def monitored(rank, wait_all_ranks):
    """Ranks 1 and 3 of 4 do not come."""
    import trireme_torch
    trireme_torch.monitored_barrier()
    dist.group.WORLD.monitored_barrier(timedelta(seconds=60), wait_all_ranks=wait_all_ranks)
    pair = dist.new_group([0, 1])
    if rank < 2:
        trireme_torch.monitored_barrier(pair, timedelta(seconds=60))
    text = None
    if rank in (0, 2):
        limit = SHORT if rank == 0 else timedelta(seconds=60)
        text = error_of(lambda: trireme_torch.monitored_barrier(timeout=limit, wait_all_ranks=wait_all_ranks))
    when_all_have("monitored")
    return text


def fork_and_die(rank, lifeline):
    """Rank 1 is killed; a process that it has forked, as DataLoader does, lives on."""
    dist.barrier()
    if rank == 1:
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(lifeline[1])
            os.write(writer, b"x")
            os.read(lifeline[0], 1)  # until the test is over
            os._exit(0)
        os.read(reader, 1)
        os.kill(os.getpid(), 9)
    began = time.monotonic()
    text = error_of(lambda: dist.all_reduce(torch.ones(3)))
    assert time.monotonic() - began < ranks.TIMEOUT.total_seconds(), "it waited for the timeout"
    return text


def messages_beside_a_collective(rank):
    """Rank 0's second thread sends while the first waits in a collective for who waits for the message."""
    data, message = torch.ones(3), torch.full((2,), 7.0)
    if rank == 0:
        collective = threading.Thread(target=lambda: dist.all_reduce(data))
        collective.start()
        time.sleep(0.05)
        dist.send(message, 1)
        collective.join()
    else:
        message.zero_()
        dist.recv(message, 0)
        dist.all_reduce(data)
    return data.tolist() + message.tolist()


COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter",
               "barrier", "sparse_all_reduce", "send", "recv")


def profiled(rank):
    """{event: (count, shapes)} of each of COLLECTIVES once, and the categories of a trace's events."""
    a, b = torch.ones(4), torch.zeros(8)
    both = [torch.zeros(4), torch.zeros(4)] if rank == 0 else None
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(a)
        dist.broadcast(a, 0)
        dist.reduce(a, 0)
        dist.all_gather([torch.zeros(4), torch.zeros(4)], a)
        dist.reduce_scatter(a, [a.clone(), a.clone()])
        dist.all_to_all_single(b, b.clone())
        dist.gather(a, both)
        dist.scatter(a, both)
        dist.barrier()
        dist.all_reduce(torch.ones(3).to_sparse())
        dist.send(a, 1) if rank == 0 else dist.recv(a, 0)
    events = {}
    for event in profiler.events():
        if event.name.startswith(("gloo:", "trireme:")) and "::" not in event.name:
            assert event.is_async, event.name
            count, _ = events.get(event.name, (0, None))
            events[event.name] = (count + 1, event.input_shapes)
    with tempfile.TemporaryDirectory(prefix="trireme-trace-") as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as trace:
            categories = {event["name"]: event["cat"] for event in json.load(trace)["traceEvents"]
                          if event.get("name", "").startswith(("gloo:", "trireme:"))}
    return events, categories


def ddp_log(rank):
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    for _ in range(12):  # DDP takes times of the first ten steps, and writes them in the next
        model(torch.ones(8, 64)).sum().backward()
    log = model._get_ddp_logging_data()
    return {key: log.get(key) for key in ("backend_name", "world_size", "rank", "avg_backward_comm_time",
                                          "backward_comm_time_start", "backward_comm_time_end", "comm_hook")}


class GlooWords(unittest.TestCase):
    def test_a_peer_that_leaves_has_closed_the_connection(self):
        for text in ranks.run(3, peer_leaves)[::2]:
            self.assertRegex(text, r"^\[trireme\] Connection closed by peer: all_reduce #.*: rank 1 has left the group$")

    def test_a_barrier_takes_its_own_timeout_and_says_it_in_milliseconds(self):
        for text in ranks.run(2, peer_is_late):
            self.assertRegex(text, r"^\[trireme\] Timed out waiting 50ms: barrier #.* timed out after 0.05 s waiting "
                                   "for rank 1$")

    def test_a_message_that_does_not_come_has_timed_out(self):
        self.assertRegex(ranks.run(2, message_is_late)[0], "^.trireme. Timed out waiting 50ms: recv of group .*rank 1")

    def test_a_wait_with_a_limit_has_gloos_words(self):
        self.assertRegex(ranks.run(2, wait_is_short)[0], "^.trireme. Operation timed out! ALLREDUCE #")

    def test_a_group_that_does_not_come_together_has_the_stores_words(self):
        self.assertRegex(ranks.run(2, peer_never_comes)[0],
                         "^.trireme. wait timeout after 50ms: rank 0 of 2: these ranks did not come within 0.05 s: 1$")

    def test_calls_that_differ_have_the_debug_modes_words(self):
        for text in ranks.run(2, calls_differ):
            self.assertRegex(text, "^.trireme. Detected mismatch between collectives on ranks: .*rank 0 all_reduce")

    def test_a_monitored_barrier_names_who_is_late(self):
        for wait_all_ranks, late in ((False, "Rank 1"), (True, "Ranks 1, 3")):
            monitor, _, other, _ = ranks.run(4, monitored, wait_all_ranks)
            self.assertRegex(monitor, rf"^\[Rank 0\]: {late} failed to pass monitoredBarrier in 50 ms: ")
            self.assertRegex(other, "^Rank 2 successfully reached monitoredBarrier, but received errors while waiting "
                                    "for send/recv from rank 0. Please check rank 0 logs for faulty rank: .*rank 1")

    def test_a_forked_child_does_not_hide_its_parents_death(self):
        lifeline = os.pipe()
        try:
            texts = ranks.run(2, fork_and_die, lifeline, killed=[1])
        finally:
            os.close(lifeline[1])  # which ends the child
            os.close(lifeline[0])
        self.assertRegex(texts[0], "^.trireme. Connection closed by peer: all_reduce #.*: rank 1 died$")

    def test_threads_send_while_another_waits_in_a_collective(self):
        self.assertEqual(ranks.run(2, messages_beside_a_collective), [[2, 2, 2, 7, 7]] * 2)

    def test_a_profiler_sees_gloos_events_with_their_shapes(self):
        for rank, (events, categories) in enumerate(ranks.run(2, profiled)):
            for name in COLLECTIVES:
                if name == ("recv" if rank == 0 else "send"):
                    continue
                for prefix in ("gloo:", "trireme:"):
                    self.assertEqual(events[prefix + name][0], 1, (rank, prefix + name))
                    self.assertEqual(categories[prefix + name], "user_annotation")
                self.assertEqual(events["gloo:" + name], events["trireme:" + name])
            self.assertEqual(events["gloo:all_reduce"][1], [[4]])
            self.assertEqual(events["gloo:reduce_scatter"][1], [[4], [4]])
            self.assertEqual(events["gloo:sparse_all_reduce"][1], [[3]])

    def test_ddp_logs_the_times_of_its_communication(self):
        for rank, log in enumerate(ranks.run(2, ddp_log)):
            self.assertEqual((log["backend_name"], log["world_size"], log["rank"]), ("custom", 2, rank))
            self.assertGreater(log["avg_backward_comm_time"], 0)
            self.assertGreater(log["backward_comm_time_end"], log["backward_comm_time_start"])

    def test_another_backends_monitored_barrier_is_torchs(self):
        self.assertRegex(ranks.run(2, monitored_on_gloo, backend="gloo")[0], "Rank 1 failed to pass monitoredBarrier")


def monitored_on_gloo(rank):
    import trireme_torch
    trireme_torch.monitored_barrier()
    if rank == 0:
        try:
            trireme_torch.monitored_barrier(timeout=SHORT)
        except RuntimeError as error:
            when_all_have("late")
            return str(error)
    when_all_have("late")


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
