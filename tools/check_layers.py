#!/usr/bin/env python3
"""Checks that layers include only what they may, and that the library stays silent.

An #include "trireme/..." goes only to the layers of ALLOWED; the DEPS of the folder's
trireme_add_layer name the same layers; the folders ("rooms") of a layer include each other without
a cycle, as in ROOMS; PUBLIC headers include only PUBLIC ones, and what PRIVATE ones declare is in
`inline namespace internal`; no header includes <torch/torch.h>; only trireme/cli prints or exits; only trireme/cli and trireme/comm/rendezvous read the environment (trireme/launch and the
command queue may hand `environ` on to what they start).
"""

import re
import sys

from source_files import Report, repository_files, root_argument, without_comments

PARALLEL = [f"parallel/{name}" for name in ("data", "tensor", "pipeline", "context", "expert", "embedding", "server")]
GROUND = ["base", "comm", "mesh"]
# The architecture: what each folder of trireme/ may include besides itself.
ALLOWED = {
    "base": [],
    "comm": ["base"],
    "mesh": ["base", "comm"],
    **{name: GROUND for name in PARALLEL},
    "model": [*GROUND, *PARALLEL],
    "dataset": ["base", "mesh"],
    "checkpoint": GROUND,
    "plan": ["base", "parallel/pipeline", "model"],
    "train": [*GROUND, *PARALLEL, "model", "plan", "dataset", "checkpoint"],
    "tasks": [*GROUND, *PARALLEL, "model", "plan", "dataset", "checkpoint", "train"],
    "launch": ["base", "comm"],
    "cli": [*GROUND, *PARALLEL, "model", "plan", "dataset", "checkpoint", "train", "tasks", "launch"],
}

# What a layer may include of another of which it may not know all: the training loop knows no model.
ONLY = {("plan", "model"): ["model/family/config.h", "model/family/family.h", "model/family/parts.h",
                            "model/layers/recompute.h"],
        ("train", "model"): ["model/family/parts.h", "model/layers/batch_norm.h", "model/layers/recompute.h"]}

# The rooms of a layer that has outgrown one folder, each with those it may include besides itself. "model/*": every
# room of model that has no entry of its own; such rooms do not include each other.
ROOMS = {
    "base": [],
    "base/file": ["base"],
    "base/io": ["base", "base/file"],
    "base/machine": ["base", "base/file"],
    "base/random": ["base", "base/machine"],
    "comm": [],
    "comm/recorder": ["comm"],
    "comm/shared": ["comm", "comm/recorder"],
    "comm/message": ["comm", "comm/recorder"],
    "comm/c10d": ["comm", "comm/recorder", "comm/message"],
    "comm/hierarchical": ["comm", "comm/recorder", "comm/message"],
    "comm/store": ["comm"],
    "comm/rendezvous": ["comm", "comm/recorder", "comm/store", "comm/shared", "comm/message", "comm/c10d", "comm/hierarchical"],
    "checkpoint/chunk": [],
    "checkpoint": ["checkpoint/chunk"],
    "checkpoint/read": ["checkpoint", "checkpoint/chunk"],
    "checkpoint/transfer": ["checkpoint", "checkpoint/chunk"],
    "checkpoint/write": ["checkpoint", "checkpoint/chunk", "checkpoint/transfer"],
    "checkpoint/foreign": ["checkpoint"],
    "checkpoint/offline": ["checkpoint", "checkpoint/chunk", "checkpoint/foreign", "checkpoint/write"],
    "plan/device": [],
    "plan/cost": ["plan/device"],
    "plan/step": ["plan/cost", "plan/device"],
    "plan/tables": ["plan/device"],
    "plan/search": ["plan/cost", "plan/device", "plan/step"],
    "parallel/data": [],
    "parallel/data/compression": ["parallel/data"],
    "parallel/embedding/disk": ["parallel/embedding/rows"],
    "parallel/embedding/open": ["parallel/embedding/disk"],
    "parallel/embedding/rows": [],
    "parallel/embedding/sums": ["parallel/embedding/rows"],
    "parallel/embedding": ["parallel/embedding/disk", "parallel/embedding/open", "parallel/embedding/rows",
                           "parallel/embedding/sums"],
    "parallel/pipeline/schedule": [],
    "parallel/server/link": [],
    "parallel/server/log": [],
    "parallel/server/state": ["parallel/server/link"],
    "parallel/server": ["parallel/server/link", "parallel/server/log", "parallel/server/state"],
    "parallel/pipeline/run": ["parallel/pipeline/schedule"],
    "model/family": [],
    "model/gpu": [],
    "model/layers": ["model/family", "model/gpu"],
    "model/experts": ["model/family", "model/layers"],
    "model/*": ["model/family", "model/layers", "model/experts"],
    "model": ["model/family", "model/layers", "model/experts", "model/*"],
    "train/offload": [],
    "train/profile": [],
    "train/metrics": [],
    "train/numerics": [],
    "train/optimizer": ["train/offload", "train/numerics"],
    "train/task": [],
    "train/callbacks": ["train/metrics", "train/numerics", "train/task"],
    "train/config": ["train/callbacks", "train/metrics", "train/offload", "train/numerics", "train/optimizer", "train/task"],
    "train/parallel": ["train/config", "train/numerics", "train/optimizer", "train/profile", "train/task"],
    "train/run": ["train/config", "train/metrics", "train/numerics", "train/parallel", "train/task"],
    "train/server": ["train/config", "train/optimizer", "train/task"],
    "train/state": ["train/callbacks", "train/config", "train/metrics", "train/numerics", "train/offload", "train/optimizer",
                    "train/parallel", "train/run", "train/task"],
    "train": ["train/callbacks", "train/config", "train/metrics", "train/numerics", "train/offload", "train/optimizer", "train/parallel",
              "train/profile", "train/run", "train/server", "train/state", "train/task"],
    "tasks/language": [],
    "tasks/vision": [],
    "tasks/recommend/layers": [],
    "tasks/recommend/metrics": [],
    "tasks/recommend/tables": [],
    "tasks/recommend": ["tasks/recommend/layers", "tasks/recommend/metrics", "tasks/recommend/tables"],
    "tasks": ["tasks/language", "tasks/vision", "tasks/recommend"],
    "launch/inject": ["launch/process"],
    "launch/jobs": ["launch/process"],
    "launch/journal": [],
    "launch/link": [],
    "launch/process": [],
    "launch": ["launch/process"],
    "launch/watchdog": ["launch", "launch/process"],
    "launch/membership": ["launch/process", "launch/journal", "launch/watchdog"],
    "launch/agent": ["launch/inject", "launch/jobs", "launch/journal", "launch/link", "launch/membership", "launch/process", "launch/watchdog"],
    "cli": [],
    "cli/checkpoint": ["cli"],
    "cli/bench": ["cli", "cli/plan"],
    "cli/data": ["cli"],
    "cli/language": ["cli"],
    "cli/launch": ["cli"],
    "cli/plan": ["cli"],
    "cli/vision": ["cli"],
    "cli/train": ["cli", "cli/plan"],
    "cli/main": ["cli", "cli/bench", "cli/data", "cli/language", "cli/plan", "cli/vision"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]trireme/([^">]+)[">]', re.MULTILINE)
TORCH_H = re.compile(r'^\s*#\s*include\s+["<]torch/torch\.h[">]', re.MULTILINE)
LAYER = re.compile(r"trireme_add_layer\(\s*(\w+)([^)]*)\)")
ENVIRONMENT = re.compile(r"\b(?:secure_getenv|getenv|setenv|putenv)\s*\(|\benviron\b")
ENVIRONMENT_IN_LAUNCH = re.compile(r"\b(?:secure_getenv|getenv|setenv|putenv)\s*\(")
PRINTING = re.compile(
    r"std::(?:cout|cerr|clog)\b|(?<![\w:])(?:std::)?v?printf\s*\(|\bputs\s*\(|\bperror\s*\("
    r"|\b(?:fprintf|vfprintf|dprintf)\s*\(\s*(?:stdout|stderr|STDOUT_FILENO|STDERR_FILENO)"
    r"|\bfputs\s*\([^;]*,\s*(?:stdout|stderr)\s*\)")
EXITING = re.compile(r"(?<![\w:])(?:std)?::(?:exit|abort|terminate|quick_exit)\s*\(")


KEYWORDS = ("PUBLIC", "PRIVATE", "SOURCES", "DEPS", "LINK", "PRIVATE_LINK")
LAYERS = re.compile(r"set\(TRIREME_LAYERS([^)]*)\)")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def layer_of(path_in_trireme):
    """"comm/shm/x.h" -> "comm"; "parallel/data/ddp.h" -> "parallel/data"."""
    parts = path_in_trireme.split("/")
    return "/".join(parts[:2] if parts[0] == "parallel" else parts[:1])


def entry_of(room):
    """The entry of ROOMS for `room`; None when it has none."""
    pattern = f"{room.rpartition('/')[0]}/*"
    return room if room in ROOMS else pattern if pattern in ROOMS else None


def check_rooms(report, path, code, graph):
    room = "/".join(path.parts[1:-1])
    for match in INCLUDE.finditer(code):
        target = match.group(1).rpartition("/")[0]
        if target != room:
            graph.setdefault(room, {}).setdefault(target, (path, line_of(code, match.start(1))))
    if layer_of(room) not in {layer_of(known) for known in ROOMS}:
        return
    allowed = ROOMS.get(entry_of(room))
    if allowed is None:
        report.error(path, 1, f"trireme/{room}/ is not a known room of {layer_of(room)}",
                     "move the file, or add the room to tools/check_layers.py")
        return
    for match in INCLUDE.finditer(code):
        target = match.group(1).rpartition("/")[0]
        entry = entry_of(target) if layer_of(target) == layer_of(room) else None
        if entry and target != room and entry not in allowed:
            report.error(path, line_of(code, match.start(1)),
                         f"{room} may not include {target} (trireme/{match.group(1)})",
                         f"{room} may include: {' '.join(allowed) or 'nothing'}")


def check_includes(report, path, code, used):
    layer = layer_of("/".join(path.parts[1:]))
    if layer not in ALLOWED:
        report.error(path, 1, f"trireme/{layer}/ is not a known layer",
                     "move the file, or add the layer to ARCHITECTURE.md and tools/check_layers.py")
        return
    for match in INCLUDE.finditer(code):
        target = layer_of(match.group(1))
        line = line_of(code, match.start(1))
        used.setdefault(layer, {}).setdefault(target, (path, line))
        if target != layer and target not in ALLOWED[layer]:
            report.error(path, line, f"{layer} may not include {target} (trireme/{match.group(1)})",
                         f"{layer} may include: {' '.join(ALLOWED[layer]) or 'nothing'}")
        only = ONLY.get((layer, target))
        if only is not None and match.group(1) not in only:
            report.error(path, line, f"{layer} may not include trireme/{match.group(1)}",
                         f"of {target} it may include: {' '.join(only)}")


def find_cycle(graph):
    """Rooms that include each other in a circle, first = last; None when there are none."""
    done = set()

    def walk(room, trail):
        if room in trail:
            return [*trail[trail.index(room):], room]
        if room in done:
            return None
        done.add(room)
        for target in sorted(graph.get(room, {})):
            found = walk(target, [*trail, room])
            if found:
                return found
        return None

    for room in sorted(graph):
        found = walk(room, [])
        if found:
            return found
    return None


def check_cycles(report, graph):
    cycle = find_cycle(graph)
    if cycle:
        path, line = graph[cycle[-2]][cycle[-1]]
        report.error(path, line, f"rooms include each other in a circle: {' -> '.join(cycle)}",
                     "move what both need into a room that includes neither")


def check_silence(report, path, text):
    code = without_comments(text, strings_too=True)
    rules = [(PRINTING, "the library never prints", "throw, return the text, or print in trireme/cli"),
             (EXITING, "the library never exits or aborts", "throw one of trireme/base/error.h")]
    if not str(path).startswith("trireme/comm/rendezvous"):
        starts_processes = path.parts[1] == "launch" or path.stem == "command_queue"
        rules.append((ENVIRONMENT_IN_LAUNCH if starts_processes else ENVIRONMENT,
                      "the environment is read here",
                      "read it in trireme/cli or trireme/comm/rendezvous and pass the value"))
    for pattern, what, fix in rules:
        for match in pattern.finditer(code):
            report.error(path, line_of(code, match.start()), f"{what}: {match.group().strip()}", fix)


def check_layer_list(report, root):
    """TRIREME_LAYERS, from which the build, its tests and its package are made, against the table."""
    path = root / "CMakeLists.txt"
    found = LAYERS.search(path.read_text()) if path.is_file() else None
    if found is None:
        return
    layers, line = found.group(1).split(), line_of(path.read_text(), found.start())
    for layer in sorted(set(ALLOWED) - set(layers)):
        report.error("CMakeLists.txt", line, f"TRIREME_LAYERS has no {layer}", "add it, or remove it from tools/check_layers.py")
    for layer in layers:
        if layer not in ALLOWED:
            report.error("CMakeLists.txt", line, f"TRIREME_LAYERS has {layer}, which is not a known layer",
                         "add it to ARCHITECTURE.md and tools/check_layers.py")
        for user in layers[:layers.index(layer)]:
            if layer in ALLOWED.get(user, []):
                report.error("CMakeLists.txt", line, f"TRIREME_LAYERS has {user} before {layer}, which it includes", "exchange them")


def declared_layers(root):
    """Of each trireme_add_layer: its CMakeLists.txt, its line, the target's name, and its words by keyword."""
    for path in repository_files(root, "CMakeLists.txt"):
        if path.parts[0] != "trireme":
            continue
        text = re.sub(r"#[^\n]*", lambda m: " " * len(m.group()), (root / path).read_text())
        for match in LAYER.finditer(text):
            words, keyword = {}, None
            for word in match.group(2).split():
                if word in KEYWORDS:
                    keyword = word
                else:
                    words.setdefault(keyword, []).append(word)
            yield path, line_of(text, match.start()), match.group(1), words


def check_deps(report, root, used):
    """The DEPS in CMake against the table and against what is included."""
    declared, folders = {}, {}
    for path, line, name, words in declared_layers(root):
        layer = "/".join(path.parts[1:-1])
        folders[name] = layer
        declared[layer] = (path, line, words.get("DEPS", []))
    for layer, (path, line, deps) in declared.items():
        targets = {folders.get(dep, dep) for dep in deps}
        for target in sorted(targets - set(ALLOWED.get(layer, []))):
            report.error(path, line, f"DEPS of {layer} name {target}, which it may not include",
                         f"it may include: {' '.join(ALLOWED.get(layer, [])) or 'nothing'}")
        for target, (user, user_line) in used.get(layer, {}).items():
            if target != layer and target not in targets:
                report.error(user, user_line, f"{layer} includes {target} but DEPS do not name it",
                             f"add it to DEPS in {path}")
        for target in sorted(targets - set(used.get(layer, {}))):
            report.error(path, line, f"DEPS of {layer} name {target}, which no file includes",
                         "remove it from DEPS")


# Not one that only forward-declares.
NAMESPACE = re.compile(r"^namespace trireme\b[^{]*\{(?!(?:\s*(?:class|struct)\s+\w+;)+\s*\})", re.MULTILINE)


def headers_of(root, keyword):
    """The PUBLIC headers of every layer, which are installed, or the PRIVATE ones, as repository paths."""
    return {str(path.parent / header)
            for path, _, _, words in declared_layers(root) for header in words.get(keyword, [])}


def check_private(report, root):
    """The compiler's messages and the symbols of a program say which names may change at any time."""
    for name in sorted(headers_of(root, "PRIVATE")):
        code = without_comments((root / name).read_text()) if (root / name).is_file() else ""
        for match in NAMESPACE.finditer(code):
            if "inline internal" not in match.group():
                report.error(name, line_of(code, match.start()), f"a private header declares in {match.group()[:-1].strip()}",
                             "open `inline internal` in the layer's namespace, or make the header PUBLIC")


def check_public(report, root):
    """A user who includes an installed header must find all that it includes."""
    public = headers_of(root, "PUBLIC")
    for name in sorted(public):
        path = root / name
        if not path.is_file():
            continue
        code = without_comments(path.read_text())
        for match in INCLUDE.finditer(code):
            if f"trireme/{match.group(1)}" not in public:
                report.error(name, line_of(code, match.start(1)),
                             f"a public header includes trireme/{match.group(1)}, which is private",
                             "forward-declare what it needs, or make that header PUBLIC")
    page = root / "docs" / "headers.md"
    if page.is_file():
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for name in re.findall(r"\]\(\.\./(trireme/[^)]+\.h)\)", line):
                if name not in public:
                    report.error("docs/headers.md", number, f"{name} is not a public header",
                                 "make it PUBLIC in its CMakeLists.txt, or list another")


def main():
    root = root_argument(__doc__)
    report, used, graph = Report(), {}, {}
    files = repository_files(root, ".h", ".cc")
    for path in files:
        text = (root / path).read_text()
        code = without_comments(text)
        if path.suffix == ".h":
            for match in TORCH_H.finditer(code):
                report.error(path, line_of(code, match.start()) + match.group().count("\n"),
                             "<torch/torch.h> in a header costs each includer 20 s",
                             "include the narrow header, <ATen/core/Tensor.h> where it suffices")
        if path.parts[0] == "trireme":
            check_includes(report, path, code, used)
            check_rooms(report, path, code, graph)
            if path.parts[1] != "cli":
                check_silence(report, path, text)
    check_cycles(report, graph)
    check_public(report, root)
    check_private(report, root)
    check_layer_list(report, root)
    check_deps(report, root, used)
    return report.finish("layers", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
