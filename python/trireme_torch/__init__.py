"""Trireme's shared-memory collectives as the "trireme" backend of torch.distributed.

    import trireme_torch
    torch.distributed.init_process_group("trireme")

Works on CPU tensors, between the ranks of one host.
"""

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


def _create_backend(options, _backend_options):
    """What torch.distributed calls for each group; every rank of the group calls it."""
    return _C.create_backend(options.store, options.group_rank, options.group_size, options.timeout,
                             options.group_id)


torch.distributed.Backend.register_backend("trireme", _create_backend, extended_api=True, devices=["cpu"])
