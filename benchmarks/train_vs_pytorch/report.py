"""The tables and the dated note of train_vs_pytorch, with the target next to each ratio."""

import datetime
import importlib.metadata
import os
import platform
import sys

from runners import METRICS


def shown(metric, value):
    if value is None:
        return "–"
    return {"tokens_per_second": f"{value:.0f}", "peak_rss_bytes": f"{value / 2**20:.0f} MiB",
            "seconds_to_first_step": f"{value:.2f} s"}[metric]


def shown_ratio(metric, ratio, goal):
    sign = "≥" if metric == "tokens_per_second" else "≤"
    if ratio is None:
        return "–" if goal is None else f"– ({sign} {goal:g})"
    if goal is None:
        return f"{ratio:.2f}"
    met = ratio >= goal if sign == "≥" else ratio <= goal
    return f"{ratio:.2f} ({sign} {goal:g}{'' if met else ', missed'})"


def markdown(header, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in
                     (header, ["---"] * len(header), *rows))


def peer_table(results):
    header = ["ranks", "sequences per rank", "row", "peer", "trireme's layout"]
    for name in METRICS.values():
        header += [f"{name}: peer", "trireme", "ratio"]
    lines = []
    for result in results:
        for entry in result["peers"]:
            cells = [str(result["ranks"]), str(result["sequences_per_rank"]), entry["row"], entry["peer"],
                     entry["layout"] or "–"]
            for metric in METRICS:
                value = entry[metric]
                cells += [shown(metric, value["peer"]), shown(metric, value["trireme"]),
                          shown_ratio(metric, value["ratio"], value["target"])]
            lines.append(cells)
    return markdown(header, lines)


def layout_table(results):
    header = ["ranks", "sequences per rank", "trireme's layout", "tokens/s", "relative to zero 0",
              "relative to independent",
              "peak memory", "start"]
    lines = []
    for result in results:
        for name, entry in result["trireme"].items():
            share = lambda key: f"{entry[key]:.0%}" if key in entry else ""
            lines.append([str(result["ranks"]), str(result["sequences_per_rank"]), name,
                          shown("tokens_per_second", entry["tokens_per_second"]), share("of_zero_0"),
                          share("of_independent"), shown("peak_rss_bytes", entry["peak_rss_bytes"]),
                          shown("seconds_to_first_step", entry["seconds_to_first_step"])])
    return markdown(header, lines)


def remarks(results):
    """The runs without figures and why, and the losses."""
    lines = []
    for result in results:
        case = f"- {result['ranks']} ranks, {result['sequences_per_rank']} sequences per rank, "
        lines += [f"{case}{name}, without figures: {why}" for name, why in result["failed"].items()]
        losses = result["last_loss"]
        lines.append(f"{case}last loss of all, from the same weights on the same sequences: " +
                     (f"{losses['least']:.6f} to {losses['most']:.6f}" if losses else "none"))
    return "\n".join(lines)


def tables(results):
    return f"{peer_table(results)}\n\n{remarks(results)}\n\n{layout_table(results)}"


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {memory:.0f} GiB of memory"


def note(args, results, deepspeed_version):
    cache = "was kept between runs" if args.compile_cache else "was empty at each start"
    return f"""# trireme beside PyTorch and DeepSpeed, {datetime.date.today().isoformat()}

Machine: {machine()}; torch {importlib.metadata.version("torch")}, DeepSpeed {deepspeed_version}.
Llama: {args.layers} layers, width {args.width}, {args.width // 64} heads, ffn {args.width * 5 // 2}, vocabulary 8192, T 256, {args.precision}; AdamW, gradient norm at most 1;
{f"{args.microbatch} sequences per microbatch;" if args.microbatch else "one microbatch per step;"}
{"PyTorch runs under autocast, FSDP2 and DeepSpeed in their own mixed precision; " if args.precision == "bf16" else ""}{args.cores} cores shared by the ranks. Peers use torch's fused AdamW and Gloo; all are eager but ddp-compiled, whose
compile cache {cache}. Medians of {args.rounds} rounds of {args.steps} steps (the first {args.warmup}
left out), alternating in one run. Ratio: trireme / peer, with the target where there is one; in rows of several
variants, that of trireme's fastest layout, and the target stands beside the fastest peer. The global batch is
sequences per rank times ranks in every row; under tensor, pipeline and context parallelism all ranks work on all of it.
expert: the loss of step 5 is compared; 8 experts as wide as the ffn, two a token, no auxiliary loss; transformers: its Mixtral as it comes.
pipelining-2: microbatches of 2 sequences. ring-…: how keys and values travel; on CPU with the adaptation that
context_peer.py describes.
Start: from the launcher to the end of the first step. Peak memory: resident, of the largest rank.

{peer_table(results)}

{remarks(results)}

Trireme's layouts. Of independent: tokens/s over those of as many one-rank trireme processes at once, which do
not communicate.

{layout_table(results)}

Repeat: `tools/bench.sh {" ".join(sys.argv[1:])}`.
"""
