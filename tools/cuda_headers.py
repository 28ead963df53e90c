"""cuda_headers.py FOLDER: fetches the headers of CUDA 13 and NCCL from PyPI, without the libraries: some MB of several GB.

A wheel is a zip archive. Only its directory and the headers are read, by HTTP range requests. Exits with 3 when PyPI
cannot be reached.
"""

import io
import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

# Those of PyTorch 2.11's own wheel.
PACKAGES = ["nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*", "nvidia-cuda-cccl==13.0.*", "nvidia-cublas==13.*",
            "nvidia-cusparse==12.*", "nvidia-cusolver==12.*", "nvidia-nccl-cu13==2.28.9"]


class RemoteFile(io.RawIOBase):
    """A file at a URL whose server gives ranges."""

    def __init__(self, url):
        self.url = url
        self.place = 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
            self.size = int(answer.headers["Content-Length"])

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.place

    def seek(self, offset, whence=io.SEEK_SET):
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        return self.place

    def readinto(self, buffer):
        length = min(len(buffer), self.size - self.place)
        if length <= 0:
            return 0
        span = {"Range": f"bytes={self.place}-{self.place + length - 1}"}
        with urllib.request.urlopen(urllib.request.Request(self.url, headers=span), timeout=60) as answer:
            if answer.status != 206:
                raise OSError(f"{self.url}: the server gives no ranges")
            data = answer.read()
        buffer[:len(data)] = data
        self.place += len(data)
        return len(data)


def opened(url):
    """The wheel, which an index on this machine has as a file."""
    if url.startswith("file:"):
        return open(urllib.request.url2pathname(urllib.parse.urlsplit(url).path), "rb")
    return io.BufferedReader(RemoteFile(url), 1 << 20)


def urls_of(packages):
    command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--no-deps",
               "--report", "-", *packages]
    report = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return [item["download_info"]["url"] for item in json.loads(report)["install"]]


def main(folder):
    for url in urls_of(PACKAGES):
        with opened(url) as file, zipfile.ZipFile(file) as wheel:
            headers = [name for name in wheel.namelist() if "/include/" in name and not name.endswith("/")]
            for name in headers:
                target = Path(folder) / name.split("/include/", 1)[1]
                if ".." in target.parts:
                    raise ValueError(f"{url}: {name}")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(wheel.read(name))
        print(f"cuda_headers: {len(headers)} of {url.rsplit('/', 1)[1]}")


try:
    main(sys.argv[1])
except (urllib.error.URLError, TimeoutError, subprocess.CalledProcessError) as error:
    print(f"cuda_headers: {error}", file=sys.stderr)
    sys.exit(3)
