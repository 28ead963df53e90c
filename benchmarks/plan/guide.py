"""Writes docs/reference/planner-guide.md: which layout `trireme plan` takes for models from 125 M to 1 T parameters.

    benchmarks/plan/guide.py          # 2 minutes
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Name, layers, width, heads, kv heads, ffn width, sequence, sequences a step.
MODELS = [("125 M", 12, 768, 12, 12, 2048, 2048, 256), ("1.3 B", 24, 2048, 16, 16, 5504, 2048, 512),
          ("8 B", 32, 4096, 32, 8, 14336, 8192, 512), ("70 B", 80, 8192, 64, 8, 28672, 8192, 1024),
          ("405 B", 126, 16384, 128, 8, 53248, 8192, 2048), ("1 T", 128, 25600, 160, 160, 68352, 2048, 3072)]
CLUSTERS = [("h100-sxm", 1), ("h100-sxm", 8), ("h100-sxm", 128), ("h100-sxm", 512), ("a100-80gb", 1), ("a100-80gb", 16),
            ("a100-80gb", 128)]


def config(model):
    _, layers, width, heads, kv_heads, ffn, sequence, batch = model
    return f"""[model]
family = "llama"
layers = {layers}
width = {width}
heads = {heads}
kv_heads = {kv_heads}
ffn_width = {ffn}
sequence_length = {sequence}
vocab_size = 128256
[train]
steps = 1000
global_batch = {batch}
micro_batch = 1
precision = "bf16"
"""


def row(trireme, folder, model, device, nodes):
    path, cluster = folder / "model.toml", folder / "cluster.toml"
    path.write_text(config(model))
    cluster.write_text(f'[cluster]\ndevice = "{device}"\nnodes = {nodes}\ndevices_per_node = 8\n')
    result = subprocess.run([trireme, "plan", path, cluster, "--json", "--best", "1"], capture_output=True, text=True)
    if result.returncode != 0:
        reason = result.stderr.strip().removeprefix("trireme: ").split(";")[0]
        return f"| {model[0]} | {8 * nodes} | {reason} | | | |"
    best = json.loads(result.stdout)["plans"][0]
    return (f"| {model[0]} | {best['devices']} | {best['layout']} | {100 * best['mfu']:.0f} % | "
            f"{best['tokens_per_second'] / 1e3:,.0f} k | {best['peak_memory_bytes'] / 2**30:.0f} GiB |")


def main():
    trireme = ROOT / "build/release/bin/trireme"
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for device in dict.fromkeys(name for name, _ in CLUSTERS):
            lines += ["", f"## {device}", "", "| model | devices | layout | MFU | tokens/s | memory |", "|---|---|---|---|---|---|"]
            for model in MODELS:
                for name, nodes in CLUSTERS:
                    if name == device:
                        lines.append(row(trireme, Path(folder), model, device, nodes))
                        print(lines[-1], file=sys.stderr)
    (ROOT / "docs/reference/planner-guide.md").write_text(f"""# Which layout for a model of this size

Written by `benchmarks/plan/guide.py` from `trireme plan`: Llama-like models in bf16 on nodes of eight devices. The numbers
are predictions ([how good they are](planner-validation.md)). `trireme plan` answers for your model and cluster.

The field's rules of thumb, and what the planner makes of them:

- *Tensor parallelism stays within a node* (Narayanan et al. 2021, section 5.4): it never leaves one here.
- *Data parallelism with ZeRO first* (the practice of FSDP users): it wins up to 8 billion parameters, with context ranks for
  sequences of 8,192 tokens. When a device has fewer than a few thousand tokens per step, tensor and pipeline win.
- *Recompute only when memory needs it* (Korthikanti et al. 2022): it appears where nothing else fits.
{chr(10).join(lines)}
""")


if __name__ == "__main__":
    main()
