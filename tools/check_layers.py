#!/usr/bin/env python3
"""Checks that layers include only what they may, and that the library stays silent.

CMake declares the house: TRIREME_LAYERS has the layers, each after those it includes; a layer's
trireme_add_layer names in DEPS the layers that it includes, and in ROOMS its folders, each with
those that it includes ("." is the layer's own folder). An #include "trireme/..." follows them, and
none of them is named without need or in a circle; the PUBLIC headers are those that the page of headers lists, and examples, docs and
tests of the installed library include no other; no namespace is inline, which hides
its functions from editors and search; no header includes <torch/torch.h>; only trireme/cli prints or
exits; only trireme/cli, trireme/comm/rendezvous and trireme/remote/store_settings read the environment (trireme/launch and the
event commands may hand `environ` on to what they start).
"""

import re
import sys

from source_files import Report, repository_files, root_argument, without_comments

# What the parallelisms may include: they meet only in a model's plan, never each other.
GROUND = {"base", "comm", "mesh"}

# What a layer may include of another of which it may not know all: the training loop knows no model.
ONLY = {("plan", "model"): ["model/family/model_config.h", "model/family/family.h", "model/family/parts.h",
                            "model/layers/recompute.h"],
        ("watch", "train"): ["train/metrics/metric_table.h", "train/metrics/rank_series.h"],
        ("train", "model"): ["model/family/parts.h", "model/layers/batch_norm.h", "model/layers/recompute.h"]}

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


KEYWORDS = ("ROOMS", "PUBLIC", "PRIVATE", "SOURCES", "DEPS", "LINK", "PRIVATE_LINK")
HEADERS_PAGE = "docs/reference/headers.md"
# What is outside and includes only PUBLIC headers.
USERS = ("examples", "python", "docs")
INSTALLED = ("tests", "install")
LAYERS = re.compile(r"set\(TRIREME_LAYERS([^)]*)\)")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def layer_of(path_in_trireme):
    """"comm/shm/x.h" -> "comm"; "parallel/data/ddp.h" -> "parallel/data"."""
    parts = path_in_trireme.split("/")
    return "/".join(parts[:2] if parts[0] == "parallel" else parts[:1])


class House:
    """The layers, what each may include, and their rooms, as CMake declares them."""

    def __init__(self, root):
        path = root / "CMakeLists.txt"
        found = LAYERS.search(path.read_text()) if path.is_file() else None
        self.order = found.group(1).split() if found else []
        self.line = line_of(path.read_text(), found.start()) if found else 1
        self.declared, self.rooms, targets = {}, {}, {}
        for path, line, name, words in declared_layers(root):
            layer = "/".join(path.parts[1:-1])
            targets[name] = layer
            self.declared[layer] = (path, line, words.get("DEPS", []))
            rooms = [entry.split(":") for entry in words.get("ROOMS", [])]
            if rooms:
                under = {room: layer if room == "." else f"{layer}/{room}" for room, *_ in rooms}
                self.rooms[layer] = {under[room]: [under.get(name, f"{layer}/{name}") for name in " ".join(others).split()]
                                     for room, *others in rooms}
        self.deps = {layer: [targets.get(dep, dep) for dep in deps]
                     for layer, (_, _, deps) in self.declared.items()}


def check_rooms(report, house, path, code, graph):
    room = "/".join(path.parts[1:-1])
    for match in INCLUDE.finditer(code):
        target = match.group(1).rpartition("/")[0]
        if target != room:
            graph.setdefault(room, {}).setdefault(target, (path, line_of(code, match.start(1))))
    rooms = house.rooms.get(layer_of(room))
    if rooms is None and room == layer_of(room):
        return
    if rooms is None or room not in rooms:
        report.error(path, 1, f"trireme/{room}/ is not a known room of {layer_of(room)}",
                     f"move the file, or add the room to ROOMS in trireme/{layer_of(room)}/CMakeLists.txt")
        return
    for match in INCLUDE.finditer(code):
        target = match.group(1).rpartition("/")[0]
        if target in rooms and target != room and target not in rooms[room]:
            report.error(path, line_of(code, match.start(1)),
                         f"{room} may not include {target} (trireme/{match.group(1)})",
                         f"{room} may include: {' '.join(rooms[room]) or 'nothing'}")


def check_includes(report, house, path, code, used):
    layer = layer_of("/".join(path.parts[1:]))
    if layer not in house.declared:
        report.error(path, 1, f"trireme/{layer}/ is not a known layer",
                     "move the file, or give the layer a trireme_add_layer and a line in ARCHITECTURE.md")
        return
    for match in INCLUDE.finditer(code):
        target = layer_of(match.group(1))
        line = line_of(code, match.start(1))
        used.setdefault(layer, {}).setdefault(target, (path, line))
        if target != layer and target not in house.deps[layer]:
            report.error(path, line, f"{layer} may not include {target} (trireme/{match.group(1)})",
                         f"{layer} may include: {' '.join(house.deps[layer]) or 'nothing'}")
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
    if not str(path).startswith(("trireme/comm/rendezvous", "trireme/remote/store_settings")):
        starts_processes = path.parts[1] == "launch" or path.stem == "event_commands"
        rules.append((ENVIRONMENT_IN_LAUNCH if starts_processes else ENVIRONMENT,
                      "the environment is read here",
                      "read it in trireme/cli or trireme/comm/rendezvous and pass the value"))
    for pattern, what, fix in rules:
        for match in pattern.finditer(code):
            report.error(path, line_of(code, match.start()), f"{what}: {match.group().strip()}", fix)


def check_layer_list(report, house):
    """TRIREME_LAYERS, from which the build, its tests and its package are made, against DEPS."""
    for layer in sorted(set(house.declared) - set(house.order)):
        report.error("CMakeLists.txt", house.line, f"TRIREME_LAYERS has no {layer}", "add it after what it includes")
    for place, layer in enumerate(house.order):
        if layer not in house.declared:
            report.error("CMakeLists.txt", house.line, f"TRIREME_LAYERS has {layer}, which has no trireme_add_layer",
                         "add one, or remove it")
        for user in house.order[:place]:
            if layer in house.deps.get(user, []):
                report.error("CMakeLists.txt", house.line, f"TRIREME_LAYERS has {user} before {layer}, which it includes", "exchange them")


def declared_layers(root):
    """Of each trireme_add_layer: its CMakeLists.txt, its line, the target's name, and its words by keyword."""
    for path in repository_files(root, "CMakeLists.txt"):
        if path.parts[0] != "trireme":
            continue
        text = re.sub(r"#[^\n]*", lambda m: " " * len(m.group()), (root / path).read_text())
        for match in LAYER.finditer(text):
            words, keyword = {}, None
            for word in re.findall(r'"[^"]*"|\S+', match.group(2)):
                if word in KEYWORDS:
                    keyword = word
                else:
                    words.setdefault(keyword, []).append(word.strip('"'))
            yield path, line_of(text, match.start()), match.group(1), words


def check_deps(report, house, used, graph):
    """DEPS and ROOMS against what is included, and DEPS against the rule of the parallelisms."""
    for layer, (path, line, _) in house.declared.items():
        deps = set(house.deps[layer])
        beyond = sorted(deps - GROUND) if layer.startswith("parallel/") else []
        if beyond:
            report.error(path, line, f"DEPS of {layer} name {' '.join(beyond)}",
                         f"a parallelism may include: {' '.join(sorted(GROUND))}")
        for target in sorted(deps - set(used.get(layer, {}))):
            report.error(path, line, f"DEPS of {layer} name {target}, which no file includes",
                         "remove it from DEPS")
    for layer, rooms in house.rooms.items():
        path, line, _ = house.declared[layer]
        for room, others in rooms.items():
            for other in others:
                if other not in graph.get(room, {}):
                    report.error(path, line, f"ROOMS of {layer}: {room} names {other}, which no file includes",
                                 "remove it there")


NAMESPACE = re.compile(r"^(?:inline namespace|namespace trireme[\w:]*::inline)\b[^{]*", re.MULTILINE)


def headers_of(root, keyword):
    """The PUBLIC headers of every layer, or the PRIVATE ones, as repository paths."""
    return {str(path.parent / header)
            for path, _, _, words in declared_layers(root) for header in words.get(keyword, [])}


def check_namespaces(report, root):
    for path in repository_files(root, ".h", ".cc"):
        if path.parts[0] != "trireme":
            continue
        code = without_comments((root / path).read_text())
        for match in NAMESPACE.finditer(code):
            report.error(path, line_of(code, match.start()), f"inline: {match.group().strip()}",
                         "CMake says which headers are private; `internal`, not inline, is for what one header hides")


def check_public(report, root):
    """What users include is on the page of headers, and the page lists nothing else."""
    public = headers_of(root, "PUBLIC")
    page = HEADERS_PAGE
    if not (root / page).is_file():
        return
    listed = {}
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        for name in re.findall(r"\]\((?:\.\./)+(trireme/[^)]+\.h)\)", line):
            listed.setdefault(name, number)
    for name, number in listed.items():
        if name not in public:
            report.error(page, number, f"{name} is not a public header",
                         "make it PUBLIC in its CMakeLists.txt, or list another")
    for name in sorted(public - set(listed)):
        report.error(name, 1, f"a public header that {page} does not list", "make it PRIVATE, or list it there")
    for path in repository_files(root, ".h", ".cc", ".md"):
        if path.parts[0] not in USERS and path.parts[:2] != INSTALLED:
            continue
        text = (root / path).read_text()
        for match in INCLUDE.finditer(text):
            if f"trireme/{match.group(1)}" not in public:
                report.error(path, line_of(text, match.start(1)), f"includes trireme/{match.group(1)}, which is private",
                             f"include a header of {page}, or make this one PUBLIC")


def main():
    root = root_argument(__doc__)
    report, house, used, graph = Report(), House(root), {}, {}
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
            check_includes(report, house, path, code, used)
            check_rooms(report, house, path, code, graph)
            if path.parts[1] != "cli":
                check_silence(report, path, text)
    check_cycles(report, graph)
    check_public(report, root)
    check_namespaces(report, root)
    check_layer_list(report, house)
    check_deps(report, house, used, graph)
    return report.finish("layers", f"{len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
