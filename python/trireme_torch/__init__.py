"""Trireme's shared-memory collectives as the "trireme" backend of torch.distributed.

    import trireme_torch
    torch.distributed.init_process_group("trireme")

Works on CPU tensors: through shared memory within a host, over torch's Gloo between hosts. record() writes one step of a
model for `trireme verify --reference`.
"""

import os
import uuid

import torch
import torch.distributed

from trireme_torch import _build

SUPPORTED = ((2, 11), (2, 14))  # first and last (major, minor) of torch


def _minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def _text(minor):
    return ".".join(str(part) for part in minor)


def check_torch(running, built):
    """Raises ImportError unless a torch of version `running` can load an extension built against `built`."""
    first, last = SUPPORTED
    if not first <= _minor(running) <= last:
        raise ImportError(f"trireme_torch works with torch {_text(first)} to {_text(last)} and found torch "
                          f"{running}: install one of those and then trireme_torch again")
    if _minor(running) != _minor(built):
        raise ImportError(f"trireme_torch was built against torch {built} and found torch {running}, whose C++ "
                          "interface differs: build it again with pip install --force-reinstall --no-deps ./python")


check_torch(torch.__version__, _build.TORCH_VERSION)

from trireme_torch import _C  # noqa: E402  (loads only where the versions fit)
from trireme_torch.recorder import exact, record  # noqa: E402,F401


def _make_gloo(store, rank, size, timeout, address):
    """torch's own Gloo between the ranks of several hosts, which reach this one at `address`."""
    if not torch.distributed.is_gloo_available():
        raise RuntimeError("the ranks are on several hosts, and this torch has no Gloo to join them")
    gloo = torch.distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=address)]
    options._threads = 1  # it carries messages; no collective of its own runs
    options._timeout = timeout
    return gloo(store, rank, size, options)


_recorder = None  # of this rank, from the world's group on


def _recorder_of(options):
    """What records this group's calls for `trireme doctor`; None without TRIREME_RECORDER."""
    global _recorder
    run = os.environ.get("TRIREME_RECORDER", "")
    if run and _recorder is None and not options.global_ranks_in_group:
        if options.group_rank == 0:
            options.store.set("trireme/run", uuid.uuid4().hex)
        _recorder = _C.Recorder(os.path.join(run, "recorder"), options.group_rank, options.group_size,
                                options.store.get("trireme/run").decode())
    return _recorder


def _create_backend(options, _backend_options):
    """What torch.distributed calls for each group; every rank of the group calls it."""
    return _C.create_backend(options.store, options.group_rank, options.group_size, options.timeout,
                             options.group_id, list(options.global_ranks_in_group or []), _recorder_of(options),
                             os.environ.get("GLOO_SOCKET_IFNAME", ""), _make_gloo)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which refuses every backend that is not called "gloo", on any group.

    Raises on rank 0 with the ranks that did not come within `timeout` (a timedelta; by default the group's): the
    first, or all of them with `wait_all_ranks`. The group is dead then.
    """
    if group is None:
        group = torch.distributed.group.WORLD
    if torch.distributed.get_rank(group) < 0:  # as torch.distributed does where this rank is no member
        return
    limit = {} if timeout is None else {"timeout": timeout}
    group.monitored_barrier(**limit, wait_all_ranks=wait_all_ranks)


torch.distributed.Backend.register_backend("trireme", _create_backend, extended_api=True, devices=["cpu"])
