#!/usr/bin/env python3
"""Every collective of torch.distributed on backend "trireme" x dtype x size, ranks 1 to 4, against values
that one process computes in rank order. Bits must be equal."""

import itertools
import sys
import unittest

import torch
import torch.distributed as dist

import ranks

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
SIZES = [0, 1, 1023, 70001]  # elements; the last is several chunks of shared memory
WORLDS = [1, 2, 3, 4]
Op = dist.ReduceOp
BITWISE = [Op.BAND, Op.BOR, Op.BXOR]


def values(rank, count, dtype):
    """Different by rank and place; sums of floats depend on their order."""
    wave = torch.sin(torch.arange(count, dtype=torch.float64) * 12.9898 + rank * 78.233 + 1) * 3 + 0.1
    if dtype.is_complex:
        return torch.complex(wave, wave.flip(0)).to(dtype)
    if not dtype.is_floating_point:
        wave = wave.round()
    return (wave.abs() if dtype in (torch.uint8, torch.bool) else wave).to(dtype)


def reduced(inputs, op):
    """The reduction in rank order; 16-bit floats in fp32, rounded once."""
    dtype = inputs[0].dtype
    if dtype.is_complex:  # part by part, as complex division rounds otherwise
        return torch.view_as_complex(reduced([torch.view_as_real(tensor) for tensor in inputs], op))
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    result = inputs[0].to(wide)
    for tensor in inputs[1:]:
        other = tensor.to(wide)
        if op in (Op.SUM, Op.AVG):
            result = result | other if dtype == torch.bool else result + other
        elif op == Op.PRODUCT:
            result = result * other
        elif op == Op.MIN:
            result = torch.minimum(result, other)
        elif op == Op.MAX:
            result = torch.maximum(result, other)
        else:
            result = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or,
                      Op.BXOR: torch.bitwise_xor}[op](result, other)
    if op == Op.AVG:  # of integers: the sum, which may have wrapped around, divided towards zero
        whole = None if dtype.is_floating_point else "trunc"
        result = torch.div(result, len(inputs), rounding_mode=whole)
    return result.to(dtype)


def check(actual, expected, what):
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise AssertionError(f"{what}: {actual.dtype} {tuple(actual.shape)}, expected {expected.dtype} "
                             f"{tuple(expected.shape)}")
    bits = [t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (actual, expected)]
    if not torch.equal(*bits):
        raise AssertionError(f"{what}: {actual} differs from {expected}")


def finish(work):
    if work is not None:
        work.wait()


def reductions():
    for dtype in FLOATS:
        yield from ((dtype, op) for op in (Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX))
    for dtype in INTEGERS:
        yield from ((dtype, op) for op in (Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX, *BITWISE))
    for dtype in COMPLEX:
        yield from ((dtype, op) for op in (Op.SUM, Op.AVG))
    yield torch.bool, Op.SUM


def cases():
    """Each reduction with each size, alternately synchronous and not."""
    for index, ((dtype, op), count) in enumerate(itertools.product(reductions(), SIZES)):
        yield dtype, op, count, index % 2 == 1


def all_reduce(rank):
    world = dist.get_world_size()
    for dtype, op, count, is_async in cases():
        data = values(rank, count, dtype)
        finish(dist.all_reduce(data, op, async_op=is_async))
        check(data, reduced([values(r, count, dtype) for r in range(world)], op), f"all_reduce {op} {dtype} {count}")
        # Not contiguous: every other element.
        data = values(rank, 2 * count, dtype)
        finish(dist.all_reduce(data[::2], op, async_op=is_async))
        check(data[::2], reduced([values(r, 2 * count, dtype) for r in range(world)], op)[::2], "strided all_reduce")
        check(data[1::2], values(rank, 2 * count, dtype)[1::2], "elements between")


def reduce(rank):
    world = dist.get_world_size()
    for index, (dtype, op, count, is_async) in enumerate(cases()):
        root = index % world
        data = values(rank, count, dtype)
        finish(dist.reduce(data, root, op, async_op=is_async))
        if rank == root:
            check(data, reduced([values(r, count, dtype) for r in range(world)], op), f"reduce {op} {dtype} {count}")


def reduce_scatter(rank):
    world = dist.get_world_size()
    for dtype, op, count, is_async in cases():
        everyone = [values(r, count * world, dtype) for r in range(world)]
        expected = reduced(everyone, op)[rank * count:(rank + 1) * count]
        output = torch.zeros(count, dtype=dtype)
        finish(dist.reduce_scatter_tensor(output, everyone[rank], op, async_op=is_async))
        check(output, expected, f"reduce_scatter_tensor {op} {dtype} {count}")
        output = torch.zeros(count, dtype=dtype)
        finish(dist.reduce_scatter(output, list(everyone[rank].chunk(world)) if count else [output] * world, op,
                                   async_op=is_async))
        check(output, expected, f"reduce_scatter {op} {dtype} {count}")
        # Uneven: rank r's block has count + r elements.
        sizes = [count + r for r in range(world)]
        everyone = [values(r, sum(sizes), dtype) for r in range(world)]
        output = torch.zeros(sizes[rank], dtype=dtype)
        finish(dist.reduce_scatter(output, list(everyone[rank].split(sizes)), op, async_op=is_async))
        check(output, reduced(everyone, op).split(sizes)[rank], f"uneven reduce_scatter {op} {dtype} {count}")


def movers():
    for index, (dtype, count) in enumerate(itertools.product([*FLOATS, *INTEGERS, *COMPLEX, torch.bool], SIZES)):
        yield dtype, count, index % 2 == 1, index


def broadcast(rank):
    world = dist.get_world_size()
    for dtype, count, is_async, index in movers():
        data = values(rank, count, dtype)
        finish(dist.broadcast(data, index % world, async_op=is_async))
        check(data, values(index % world, count, dtype), f"broadcast {dtype} {count}")


def all_gather(rank):
    world = dist.get_world_size()
    for dtype, count, is_async, _ in movers():
        expected = [values(r, count, dtype) for r in range(world)]
        outputs = [torch.zeros(count, dtype=dtype) for _ in range(world)]
        finish(dist.all_gather(outputs, expected[rank], async_op=is_async))
        for r in range(world):
            check(outputs[r], expected[r], f"all_gather {dtype} {count}")
        output = torch.zeros(count * world, dtype=dtype)
        finish(dist.all_gather_into_tensor(output, expected[rank], async_op=is_async))
        check(output, torch.cat(expected), f"all_gather_into_tensor {dtype} {count}")
        # The input is this rank's place in the output, as FSDP2 calls it.
        output = torch.zeros(count * world, dtype=dtype)
        place = output.narrow(0, rank * count, count).copy_(expected[rank])
        finish(dist.all_gather_into_tensor(output, place, async_op=is_async))
        check(output, torch.cat(expected), f"all_gather_into_tensor in place {dtype} {count}")
        # Uneven: rank r gives count + r elements.
        expected = [values(r, count + r, dtype) for r in range(world)]
        outputs = [torch.zeros(count + r, dtype=dtype) for r in range(world)]
        finish(dist.all_gather(outputs, expected[rank], async_op=is_async))
        for r in range(world):
            check(outputs[r], expected[r], f"uneven all_gather {dtype} {count}")


def all_to_all(rank):
    world = dist.get_world_size()
    for dtype, count, is_async, _ in movers():
        # From rank r to rank s go rows(r, s) rows, in all: none, as many, or count.
        def rows(r, s, count=count):
            return (0, 1, count)[(r + 2 * s) % 3]

        def block(r, s, dtype=dtype):
            return values(10 * r + s, 2 * rows(r, s), dtype).view(-1, 2)

        inputs = [block(rank, s) for s in range(world)]
        expected = [block(r, rank) for r in range(world)]
        outputs = [torch.zeros_like(tensor) for tensor in expected]
        finish(dist.all_to_all(outputs, inputs, async_op=is_async))
        for r in range(world):
            check(outputs[r], expected[r], f"all_to_all {dtype} {count}")
        output = torch.zeros_like(torch.cat(expected))
        finish(dist.all_to_all_single(output, torch.cat(inputs), [len(t) for t in expected], [len(t) for t in inputs],
                                      async_op=is_async))
        check(output, torch.cat(expected), f"all_to_all_single {dtype} {count}")
        even = [values(10 * r + rank, count, dtype) for r in range(world)]
        output = torch.zeros(count * world, dtype=dtype)
        finish(dist.all_to_all_single(output, torch.cat([values(10 * rank + s, count, dtype) for s in range(world)]),
                                      async_op=is_async))
        check(output, torch.cat(even), f"even all_to_all_single {dtype} {count}")


def gather_and_scatter(rank):
    world = dist.get_world_size()
    for dtype, count, is_async, index in movers():
        root = index % world
        expected = [values(r, count, dtype) for r in range(world)]
        outputs = [torch.zeros(count, dtype=dtype) for _ in range(world)] if rank == root else None
        finish(dist.gather(expected[rank], outputs, root, async_op=is_async))
        for r in range(world if rank == root else 0):
            check(outputs[r], expected[r], f"gather {dtype} {count}")
        output = torch.zeros(count, dtype=dtype)
        finish(dist.scatter(output, expected if rank == root else None, root, async_op=is_async))
        check(output, expected[rank], f"scatter {dtype} {count}")


def coalesced(rank):
    world = dist.get_world_size()
    kinds = [(torch.float32, 5), (torch.float32, 0), (torch.int64, 7), (torch.float32, 70001)]
    everyone = [[values(r, count, dtype) for dtype, count in kinds] for r in range(world)]
    for is_async in (False, True):
        data = [tensor.clone() for tensor in everyone[rank]]
        with dist._coalescing_manager(async_ops=is_async) as manager:
            for tensor in data:
                dist.all_reduce(tensor)
        if is_async:
            manager.wait()
        for i, tensor in enumerate(data):
            check(tensor, reduced([tensors[i] for tensors in everyone], Op.SUM), "coalesced all_reduce")
        outputs = [torch.zeros(count * world, dtype=dtype) for dtype, count in kinds]
        with dist._coalescing_manager(async_ops=is_async) as manager:
            for output, tensor in zip(outputs, everyone[rank], strict=True):
                dist.all_gather_into_tensor(output, tensor)
        if is_async:
            manager.wait()
        for i, output in enumerate(outputs):
            check(output, torch.cat([tensors[i] for tensors in everyone]), "coalesced all_gather_into_tensor")
        back = [torch.zeros(count, dtype=dtype) for dtype, count in kinds]
        with dist._coalescing_manager(async_ops=is_async) as manager:
            for tensor, output in zip(back, outputs, strict=True):
                dist.reduce_scatter_tensor(tensor, output)
        if is_async:
            manager.wait()
        for i, tensor in enumerate(back):
            check(tensor, reduced([everyone[rank][i]] * world, Op.SUM), "coalesced reduce_scatter_tensor")


def sparse(rank):
    world = dist.get_world_size()
    for op, nonzeros, is_async in itertools.product((Op.SUM, Op.AVG), (0, 1, 5), (False, True)):
        def share(r, nonzeros=nonzeros):
            """Rank r's: r more rows than the others', some in common, some given twice."""
            rows = (torch.arange(nonzeros + r) * (r + 2)) % 7
            return torch.sparse_coo_tensor(rows[None], values(r, 3 * len(rows), torch.float64).view(-1, 3), (7, 3),
                                           check_invariants=True)

        data = share(rank)
        finish(dist.all_reduce(data, op, async_op=is_async))
        check(data.to_dense(), reduced([share(r).to_dense() for r in range(world)], op), f"sparse all_reduce {op}")


def raw_calls(rank):
    """Of the backend itself, without torch.distributed's checks: what docs/guide/python.md says of them."""
    world = dist.get_world_size()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    pair = [torch.ones(2), torch.ones(2)]
    for call in (lambda: backend.allreduce(pair), lambda: backend.broadcast(pair, dist.BroadcastOptions()),
                 lambda: backend.send(pair, (rank + 1) % world, 0)):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert "got 2 tensors; expected one, as a process is one rank" in str(error), error
        else:
            raise AssertionError("several tensors of a rank were taken")
    backend.allreduce_coalesced([]).wait()
    if world > 1:  # a small message is sent before its recv is there
        sent = dist.isend(torch.full((4,), float(rank)), (rank + 1) % world)
        sent.wait()
        data = torch.empty(4)
        dist.barrier()
        dist.recv(data, (rank - 1) % world)
        check(data, torch.full((4,), float((rank - 1) % world)), "recv")


def objects_and_groups(rank):
    world = dist.get_world_size()
    outputs = [None] * world
    dist.all_gather_object(outputs, {"rank": rank, "text": "x" * rank})
    assert outputs == [{"rank": r, "text": "x" * r} for r in range(world)], outputs
    pairs = [list(range(begin, min(begin + 2, world))) for begin in range(0, world, 2)]
    groups = [dist.new_group(members) for members in pairs]
    mine, group = pairs[rank // 2], groups[rank // 2]
    dist.barrier(group)
    works, data = [], []
    for step in range(4):  # several operations in flight in two groups
        data.append((torch.full((9,), float(rank + step)), torch.full((9,), float(rank + step))))
        works.append(dist.all_reduce(data[-1][0], group=group, async_op=True))
        works.append(dist.all_reduce(data[-1][1], async_op=True))
    for work in reversed(works):
        work.wait()
    for step, (in_group, in_world) in enumerate(data):
        check(in_group, torch.full((9,), float(sum(r + step for r in mine))), "sub-group")
        check(in_world, torch.full((9,), float(sum(r + step for r in range(world)))), "world")
    dist.destroy_process_group(group)


def refuse(rank):
    world = dist.get_world_size()

    def refused(part, call, *args, **kwargs):
        try:
            call(*args, **kwargs)
        except (RuntimeError, ValueError) as error:
            assert part in str(error), f"{error!r} does not say {part!r}"
        else:
            raise AssertionError(f"{call.__name__} did not refuse: expected {part!r}")

    refused("average is not defined on Bool", dist.all_reduce, torch.ones(3, dtype=torch.bool), Op.AVG)
    refused("bitwise and is not defined on Float", dist.all_reduce, torch.ones(3), Op.BAND)
    refused("elements", dist.all_gather_into_tensor, torch.ones(3 * world + 1), torch.ones(3))
    refused("resolve_conj", dist.broadcast, torch.ones(3, dtype=torch.complex64).conj(), 0)
    refused("sum or average", dist.all_reduce, torch.eye(3).to_sparse(), Op.MAX)
    data = torch.ones(3)
    dist.all_reduce(data)
    check(data, torch.full((3,), float(world)), "all_reduce after refusals")


class Collectives(unittest.TestCase):
    pass


def add_test(function, world):
    def test(self):
        ranks.run(world, function)

    setattr(Collectives, f"test_{function.__name__}_on_{world}_ranks", test)


for function in (all_reduce, reduce, reduce_scatter, broadcast, all_gather, all_to_all, gather_and_scatter, coalesced,
                 sparse, raw_calls, objects_and_groups, refuse):
    for world in WORLDS:
        add_test(function, world)

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
