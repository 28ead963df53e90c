#!/usr/bin/env bash
# setup_bench.sh: installs DeepSpeed, a peer of benchmarks/train_vs_pytorch, into build/bench-venv.
# That environment sees the torch of build/python through a .pth file; pip is never asked for torch.
# PyPI has DeepSpeed's sources only; its one operator for CPU ranks is compiled here, not in a benchmark.
# Prints one line per step; prints nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly deepspeed_version=0.19.8
readonly venv=$PWD/build/bench-venv
readonly python=$venv/bin/python
# What DeepSpeed imports besides torch, numpy and packaging, and what builds its wheel. None needs torch.
readonly packages=(
  einops hjson msgpack ninja psutil py-cpuinfo tqdm
  pydantic pydantic-core annotated-types typing-extensions typing-inspection
  'setuptools<81' wheel
)
export DS_ACCELERATOR=cpu DS_BUILD_OPS=0 TORCH_EXTENSIONS_DIR=$venv/ops

source tools/steps.sh
site_of() { "$1" -c "import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec('$2').origin)))"; }
is_done() { # for this DeepSpeed, this torch and this folder
  "$python" -c '' 2>/dev/null && [[ -f $venv/done && $(<"$venv/done") == "$state" ]]
}
install() { "$python" -m pip install --disable-pip-version-check --no-deps "$@"; }

[[ -f build/python ]] || tools/setup.sh
base=$(<build/python)
site_of_torch=$(site_of "$base" torch) || die "$base has no torch: run tools/setup.sh"
state="deepspeed $deepspeed_version, torch $("$base" -c 'import importlib.metadata as m; print(m.version("torch"))') of $site_of_torch, in $venv"
is_done && exit 0

step "python -m venv build/bench-venv" "$base" -m venv --clear "$venv"
echo "$site_of_torch" >"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch_of_python.pth"
step "pip install what DeepSpeed imports" install "${packages[@]}"
step "pip install deepspeed==$deepspeed_version" install --no-build-isolation "deepspeed==$deepspeed_version"
step "compile DeepSpeed's operator for CPU ranks" "$python" -c \
  'from deepspeed.accelerator import get_accelerator; get_accelerator().create_op_builder("ShareMemCommBuilder").load()'
echo "$state" >"$venv/done"
