#!/usr/bin/env python3
"""send, recv, isend, irecv, any source, tags and batches of torch.distributed on backend "trireme"."""

import sys
import unittest

import torch
import torch.distributed as dist

import ranks


def message(source, target, tag, count=5, dtype=torch.float32):
    return (torch.arange(count) + 100 * source + 10 * target + tag).to(dtype)


def all_pairs_at_once(rank):
    """Every rank sends to and receives from every other, all in flight before anyone waits."""
    world = dist.get_world_size()
    for count in (0, 1, 1000, 300_001):
        received = {peer: torch.zeros(count) for peer in range(world) if peer != rank}
        works = [dist.irecv(tensor, peer) for peer, tensor in received.items()]
        works += [dist.isend(message(rank, peer, 0, count), peer) for peer in received]
        for work in reversed(works):
            work.wait()
        for peer, tensor in received.items():
            assert torch.equal(tensor, message(peer, rank, 0, count)), (peer, tensor)


def tags_in_another_order(rank):
    tags = [3, 1, 2]
    if rank == 0:
        works = [dist.isend(message(0, 1, tag), 1, tag=tag) for tag in tags]
        for work in works:
            work.wait()
    elif rank == 1:
        for tag in sorted(tags):
            tensor = torch.zeros(5)
            dist.recv(tensor, 0, tag=tag)
            assert torch.equal(tensor, message(0, 1, tag)), (tag, tensor)


def any_source(rank):
    world = dist.get_world_size()
    if rank != 0:
        dist.send(message(rank, 0, 7, dtype=torch.int64), 0, tag=7)
        return
    seen = set()
    for _ in range(world - 1):
        tensor = torch.zeros(5, dtype=torch.int64)
        source = dist.recv(tensor, tag=7)
        assert torch.equal(tensor, message(source, 0, 7, dtype=torch.int64)), (source, tensor)
        seen.add(source)
    assert seen == set(range(1, world)), seen


def batch_around_a_ring(rank):
    world = dist.get_world_size()
    following, previous = (rank + 1) % world, (rank - 1) % world
    received = torch.zeros(5)
    batch = [dist.P2POp(dist.isend, message(rank, following, 0), following),
             dist.P2POp(dist.irecv, received, previous)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert torch.equal(received, message(previous, rank, 0)), received


def collectives_beside_messages(rank):
    """A recv that waits for its message holds no collective up."""
    received = torch.zeros(5)
    if rank == 1:
        pending = dist.irecv(received, 0)
    data = torch.full((3,), float(rank))
    dist.all_reduce(data)
    work = dist.all_reduce(data, async_op=True)
    work.wait()
    if rank == 0:
        dist.send(message(0, 1, 0), 1)
    if rank == 1:
        pending.wait()
        assert torch.equal(received, message(0, 1, 0)), received


def objects(rank):
    if rank == 0:
        dist.send_object_list([{"a": 1}, "text"], 1)
    elif rank == 1:
        received = [None, None]
        dist.recv_object_list(received, 0)
        assert received == [{"a": 1}, "text"], received


class PointToPoint(unittest.TestCase):
    pass


def add_test(function, world):
    def test(self):
        ranks.run(world, function)

    setattr(PointToPoint, f"test_{function.__name__}_on_{world}_ranks", test)


for function in (all_pairs_at_once, tags_in_another_order, any_source, batch_around_a_ring,
                 collectives_beside_messages, objects):
    for world in (2, 3, 4):
        add_test(function, world)

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
