#!/usr/bin/env python3
"""`pip install ./python` into an environment of its own, then two ranks of the README's program.

Reads TRIREME_SOURCE and TRIREME_BUILD, the project's root and build. Builds without isolation, so that
nothing is downloaded, and beside the project's build, so that ccache knows the paths.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import torch

PROGRAM = """
import os, sys
import torch
import trireme_torch
rank = int(sys.argv[1])
torch.distributed.init_process_group("trireme", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
data = torch.full((4,), float(rank + 1))
torch.distributed.all_reduce(data)
torch.distributed.destroy_process_group()
print("sum", data.tolist(), os.path.dirname(trireme_torch.__file__))
"""


def run(command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def main():
    source = pathlib.Path(os.environ["TRIREME_SOURCE"])
    # The same path each time: ccache compares the path of the precompiled header.
    build = pathlib.Path(os.environ["TRIREME_BUILD"]).parent / "install-test"
    shutil.rmtree(build, ignore_errors=True)
    with (tempfile.TemporaryDirectory(prefix="trireme-install-") as folder, contextlib.ExitStack() as at_end):
        at_end.callback(shutil.rmtree, build, ignore_errors=True)
        folder = pathlib.Path(folder)
        run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"])
        python = folder / "venv/bin/python"
        site = pathlib.Path(run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]).strip())
        # This environment's packages, torch's among them, after the new one's own.
        torch_site = pathlib.Path(torch.__file__).parent.parent
        (site / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{torch_site}\n")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        # No network: --no-index finds only what is there.
        print(run([python, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps",
                   f"--config-settings=build-dir={build}", source / "python"], env=environment))
        commands = [[python, "-c", PROGRAM, str(rank), folder / "store"] for rank in range(2)]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
                     for command in commands]
        texts = [process.communicate(timeout=120)[0] for process in processes]
        for text, process in zip(texts, processes, strict=True):
            if process.returncode != 0 or not text.startswith("sum [3.0, 3.0, 3.0, 3.0] " + str(site)):
                sys.exit(f"the installed package gave {process.returncode}: {text!r}")
        files = run([python, "-m", "pip", "show", "--files", "trireme_torch"], env=environment)
        strangers = [line for line in files.split("Files:")[1].split() if not line.startswith("trireme_torch")]
        if strangers:
            sys.exit(f"the package installs more than itself: {strangers}")


if __name__ == "__main__":
    main()
