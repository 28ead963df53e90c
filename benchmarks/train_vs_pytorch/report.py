"""Tables and the dated note of train_vs_pytorch, with the target beside each ratio."""

import datetime
import importlib.metadata
import os
import platform

from runners import METRICS

# What the ratio ours / theirs shall be on several ranks, by peer and sequences a rank.
SPEED_TARGETS = {("ddp", 8): 1.2, ("ddp-compiled", 8): 1.1, ("fsdp2", 8): 1.35, ("deepspeed", 8): 1.5,
                 ("ddp", 1): 1.35, ("fsdp2", 1): 2.0, ("deepspeed", 1): 1.5}
MEMORY_TARGET = 0.7


def target(metric, peer, ranks, batch):
    """None where no target is set."""
    if ranks == 1:
        return None
    if metric == "peak_rss_bytes":
        return MEMORY_TARGET
    system = peer.removesuffix("-zero2").removesuffix("-zero3")
    return SPEED_TARGETS.get((system, batch)) if metric == "tokens_per_second" else None


def shown(metric, value):
    return {"tokens_per_second": f"{value:.0f}", "peak_rss_bytes": f"{value / 2**20:.0f} MiB",
            "seconds_to_first_step": f"{value:.2f} s"}[metric]


def shown_ratio(metric, ratio, goal):
    if goal is None:
        return f"{ratio:.2f}"
    sign = "≥" if metric == "tokens_per_second" else "≤"
    met = ratio >= goal if sign == "≥" else ratio <= goal
    return f"{ratio:.2f} ({sign} {goal:g}{'' if met else ', missed'})"


def markdown(header, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in
                     (header, ["---"] * len(header), *rows))


def peer_table(rows):
    header = ["ranks", "sequences a rank", "peer", "trireme's zero"]
    for name in METRICS.values():
        header += [f"{name}: peer", "trireme", "ratio"]
    lines = []
    for row in rows:
        for peer, entry in row["peers"].items():
            cells = [str(row["ranks"]), str(row["sequences_per_rank"]), peer, str(entry["zero"])]
            if "failed" in entry:
                cells += [f"did not run: {entry['failed']}"] + [""] * (3 * len(METRICS) - 1)
            else:
                for metric in METRICS:
                    value = entry[metric]
                    cells += [shown(metric, value["peer"]), shown(metric, value["trireme"]),
                              shown_ratio(metric, value["ratio"], value["target"])]
            lines.append(cells)
    return markdown(header, lines)


def stage_table(rows):
    header = ["ranks", "sequences a rank", "trireme's zero", "tokens/s", "of zero 0", "of independent",
              "peak memory", "start"]
    lines = []
    for row in rows:
        for zero, entry in row["trireme"].items():
            share = lambda key: f"{entry[key]:.0%}" if key in entry else ""
            lines.append([str(row["ranks"]), str(row["sequences_per_rank"]), str(zero),
                          shown("tokens_per_second", entry["tokens_per_second"]), share("of_zero_0"),
                          share("of_independent"), shown("peak_rss_bytes", entry["peak_rss_bytes"]),
                          shown("seconds_to_first_step", entry["seconds_to_first_step"])])
    return markdown(header, lines)


def tables(rows):
    return f"{peer_table(rows)}\n\n{stage_table(rows)}"


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {memory:.0f} GiB of memory"


def note(args, rows, deepspeed_version):
    cache = "was kept between runs" if args.compile_cache else "was empty at each start"
    return f"""# trireme beside PyTorch and DeepSpeed, {datetime.date.today().isoformat()}

Machine: {machine()}; torch {importlib.metadata.version("torch")}, DeepSpeed {deepspeed_version}.
Llama: 6 layers, width 256, 4 heads, ffn 640, vocabulary 8192, T 256, fp32; AdamW, gradient norm at most 1;
{args.cores} cores shared by the ranks. Peers use torch's fused AdamW and Gloo; all are eager but ddp-compiled, whose
compile cache {cache}. Medians of {args.rounds} rounds of {args.steps} steps (the first {args.warmup}
left out), alternating in one run. Ratio: trireme / peer, with the target where there is one.
Start: from the launcher to the end of the first step. Peak memory: resident, of the largest rank.

{peer_table(rows)}

Trireme's stages. Of independent: tokens/s over those of as many one-rank trireme processes at once, which do
not communicate.

{stage_table(rows)}

Repeat: `make bench`.
"""
