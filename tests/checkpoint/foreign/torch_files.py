"""Files of PyTorch for the tests of trireme/checkpoint/foreign, and the check of those that it wrote.

    torch_files.py state_dicts FOLDER      writes files of torch.save
    torch_files.py dcp FOLDER              writes a distributed checkpoint from two ranks
    torch_files.py load_dcp FOLDER EXPECTED  loads one with one rank and with two, and compares

`NAME.expected` beside each file has the same tensors as a safetensors file: the bytes of each, and
in its metadata "torch.float32 [3, 4]".
"""

import argparse
import collections
import json
import os
import pickle
import sys
import tempfile
import zipfile

import safetensors
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../harness"))
from torch_ranks import run_in_ranks  # noqa: E402

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]
OTHER_DTYPES = [torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
                torch.uint16, torch.uint32, torch.uint64]


def raw(tensor):
    """The tensor's bytes in logical order."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).clone()


def words(tensor):
    return f"{tensor.dtype} {list(tensor.shape)}"


def random_bits(shape, dtype):
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    size = torch.empty((), dtype=dtype).element_size()
    return torch.randint(0, 256, (count * size,), dtype=torch.uint8).view(dtype).reshape(shape)


def expect(path, tensors):
    safetensors.torch.save_file({name: raw(tensor) for name, tensor in tensors.items()},
                                path + ".expected",
                                metadata={name: words(tensor) for name, tensor in tensors.items()})


def of_all_dtypes(dtypes):
    tensors = {}
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        tensors[name] = random_bits([5, 3], dtype)
        tensors[name + ".scalar"] = random_bits([1], dtype)[0].clone()
        tensors[name + ".empty"] = torch.empty([0, 4], dtype=dtype)
    return tensors


def write_state_dicts(folder):
    plain = of_all_dtypes(DTYPES + OTHER_DTYPES)
    shared = random_bits([6, 8], torch.float32)
    plain |= {"transposed": shared.t(), "column": shared[:, 3], "rows": shared[1:5:2],
              "repeated": torch.arange(3.).expand(4, 3), "ünicode": torch.ones(1),
              "parameter": torch.nn.Parameter(shared[2:3])}
    path = f"{folder}/plain.pt"
    torch.save(plain, path)
    expect(path, plain)

    module = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(4, 5)).sum().backward()
    optimizer.step()
    path = f"{folder}/trainer.pt"
    namespace = argparse.Namespace(lr=0.1, layers=[1, 2])
    torch.save({"state_dict": module.state_dict(), "optimizer": optimizer.state_dict(),
                "epoch": 3, "big": 2**70, "negative": -2**40, "args": namespace, "rate": 0.5,
                "none": None, "list": [torch.arange(2), "text", (torch.arange(3),)],
                "size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
                "bytes": b"abc"}, path)
    tensors = {f"state_dict.{name}": value for name, value in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.state.{index}.{name}": value for name, value in state.items()}
    expect(path, tensors | {"list.0": torch.arange(2), "list.2.0": torch.arange(3)})

    for protocol in (3, 4, 5):
        torch.save(plain, f"{folder}/protocol{protocol}.pt", pickle_protocol=protocol)
    torch.save(plain, f"{folder}/legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.ones(2), f"{folder}/tensor.pt")
    torch.save({"a": collections.Counter()}, f"{folder}/counter.pt")
    with zipfile.ZipFile(path) as archive, \
         zipfile.ZipFile(f"{folder}/deflated.pt", "w", zipfile.ZIP_DEFLATED) as deflated:
        for name in archive.namelist():
            deflated.writestr(name, archive.read(name))

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {folder}/executed",)
    torch.save({"a": Evil()}, f"{folder}/evil.pt")

    os.mkdir(f"{folder}/sharded")
    half = len(plain) // 2
    parts = [dict(list(plain.items())[:half]), dict(list(plain.items())[half:])]
    index = {}
    for number, part in enumerate(parts, 1):
        name = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save(part, f"{folder}/sharded/{name}")
        index |= dict.fromkeys(part, name)
    with open(f"{folder}/sharded/pytorch_model.bin.index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)


def part_of(tensor, dim, rank):
    """The part of a rank, possibly without elements, of a tensor that all ranks have whole."""
    parts = tensor.chunk(2, dim)
    return parts[rank] if rank < len(parts) else tensor.narrow(dim, tensor.shape[dim], 0)


def sharded(tensor, dim, mesh, rank):
    return DTensor.from_local(part_of(tensor, dim, rank).contiguous(), mesh, [Shard(dim)],
                              run_check=False, shape=tensor.shape, stride=tensor.stride())


def write_dcp(rank, folder):
    mesh = init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(torch.nn.Embedding(7, 5), torch.nn.Linear(5, 3),
                                torch.nn.Linear(3, 1)).to(torch.bfloat16)
    fully_shard(model, mesh=mesh)
    tensors = {"model." + name: value for name, value in model.state_dict().items()}
    whole = {name: value.full_tensor() for name, value in tensors.items()}
    for name, tensor in of_all_dtypes(DTYPES).items():
        tensors["whole." + name] = whole["whole." + name] = tensor
        if tensor.dim() == 2 and tensor.numel() > 0:
            tensors["rows." + name] = sharded(tensor, 0, mesh, rank)
            tensors["columns." + name] = sharded(tensor, 1, mesh, rank)
            tensors["replicated." + name] = DTensor.from_local(tensor, mesh, [Replicate()],
                                                               run_check=False)
            for kind in ("rows.", "columns.", "replicated."):
                whole[kind + name] = tensor
    for name, tensor in {"one_row": torch.randn(1, 4), "no_row": torch.randn(0, 4)}.items():
        tensors[name] = sharded(tensor, 0, mesh, rank)
        whole[name] = tensor
    tensors["transposed"] = whole["transposed"] = random_bits([6, 8], torch.float32).t()
    nested = {"step": 3, "text": "x", "nested": {"list": [1, torch.arange(3)]}}
    dcp.save(tensors | nested, checkpoint_id=f"{folder}/checkpoint")
    if rank == 0:
        expect(f"{folder}/checkpoint", whole | {"nested.list.1": torch.arange(3)})


def compare(loaded, expected, of):
    with safetensors.safe_open(expected, framework="pt") as file:
        if set(file.keys()) != set(loaded):
            sys.exit(f"{of}: names differ: {set(file.keys()) ^ set(loaded)}")
        for name, tensor in loaded.items():
            if words(tensor) != file.metadata()[name]:
                sys.exit(f"{of}: {name} is {words(tensor)}, expected {file.metadata()[name]}")
            if not torch.equal(raw(tensor), file.get_tensor(name)):
                sys.exit(f"{of}: {name} has other bits")


def empty_like_expected(expected):
    tensors = {}
    with safetensors.safe_open(expected, framework="pt") as file:
        for name, text in file.metadata().items():
            dtype, shape = text.split(" ", 1)
            dtype = getattr(torch, dtype.removeprefix("torch."))
            tensors[name] = torch.zeros(eval(shape), dtype=torch.uint8).to(dtype)
    return tensors


def load_in_ranks(rank, folder, expected):
    mesh = init_device_mesh("cpu", (2,))
    tensors = {name: sharded(tensor, 0, mesh, rank) if tensor.dim() > 0 else tensor
               for name, tensor in empty_like_expected(expected).items()}
    dcp.load(tensors, checkpoint_id=folder)
    with safetensors.safe_open(expected, framework="pt") as file:
        for name, tensor in tensors.items():
            whole = file.get_tensor(name).view(tensor.dtype).reshape(tensor.shape)
            part = part_of(whole, 0, rank) if tensor.dim() > 0 else whole
            local = tensor.to_local() if tensor.dim() > 0 else tensor
            if not torch.equal(raw(local), raw(part)):
                sys.exit(f"rank {rank}: {name} has other bits")


def load_dcp(folder, expected):
    tensors = empty_like_expected(expected)
    dcp.load(tensors, checkpoint_id=folder, no_dist=True)
    compare(tensors, expected, "one rank")
    run_in_ranks(2, load_in_ranks, folder, expected)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    with tempfile.TemporaryDirectory() as temporary:
        dcp_to_torch_save(folder, f"{temporary}/all.pt")
        compare(torch.load(f"{temporary}/all.pt", weights_only=True), expected, "dcp_to_torch_save")
    with open(f"{folder}/__0_0.distcp", "rb") as file:
        content = file.read()
    with open(f"{folder}/.metadata", "rb") as file:
        places = pickle.load(file).storage_data
    for index, place in places.items():
        with tempfile.TemporaryFile() as part:
            part.write(content[place.offset:place.offset + place.length])
            if (bad := zipfile.ZipFile(part).testzip()) is not None:
                sys.exit(f"{index.fqn}: entry {bad} has a wrong checksum")


if __name__ == "__main__":
    torch.manual_seed(7)
    command, *arguments = sys.argv[1:]
    if command == "state_dicts":
        write_state_dicts(*arguments)
    elif command == "dcp":
        run_in_ranks(2, write_dcp, *arguments)
    elif command == "load_dcp":
        load_dcp(*arguments)
    else:
        sys.exit(__doc__)
