"""Each check of tools/ passes on a clean tree and names file, line and remedy on a bad one."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


class Tree(unittest.TestCase):
    """A small repository in a temporary folder, whose name has a space."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="trireme checks ")
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.write("CMakeLists.txt", "set(TRIREME_LAYERS base comm)\n")
        self.write("trireme/base/error.h", "#pragma once\n")
        self.write("trireme/base/CMakeLists.txt", "trireme_add_layer(base PUBLIC error.h)\n")
        self.write("trireme/comm/group.h", '#pragma once\n#include "trireme/base/error.h"\n')
        self.write("trireme/comm/CMakeLists.txt",
                   "trireme_add_layer(comm PUBLIC group.h DEPS base)\n")
        for layer, unit in (("base", "error"), ("comm", "group")):
            self.write(f"tests/{layer}/{unit}_test.cc", "")
            self.write(f"tests/{layer}/CMakeLists.txt",
                       f"trireme_add_test({layer} SOURCES {unit}_test.cc)\n")
        self.write("README.md", "[tests](tests/base)\n")

    def declare(self, layer, *rooms, deps=""):
        """A layer of CMake, with rooms such as "agent: link"."""
        self.write(f"trireme/{layer}/CMakeLists.txt", f"trireme_add_layer({layer.replace('/', '_')}"
                   + ("\n  ROOMS " if rooms else "") + " ".join(f'"{room}"' for room in rooms) + f"\n  SOURCES x.cc DEPS {deps})\n")
        layers = self.root.joinpath("CMakeLists.txt").read_text().replace(")", f" {layer})")
        self.write("CMakeLists.txt", layers)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, name):
        return subprocess.run([sys.executable, "-B", str(TOOLS / f"check_{name}.py"),
                               "--root", str(self.root)], capture_output=True, text=True)

    def assert_passes(self, name):
        result = self.run_check(name)
        self.assertEqual(result.returncode, 0, result.stderr)

    def assert_fails(self, name, *expected):
        result = self.run_check(name)
        self.assertEqual(result.returncode, 1, result.stdout)
        for text in expected:
            self.assertIn(text, result.stderr)


class CleanTree(Tree):
    def test_passes_every_check(self):
        for name in ("layers", "mirror", "length", "locale", "docs", "commits"):
            self.assert_passes(name)


class Locale(Tree):
    def test_what_follows_the_programs_locale(self):
        self.write("trireme/comm/group.cc", "\n".join((
            "std::ostringstream out;", "x = std::stod(text);", "y = std::tolower(c);", 'std::snprintf(t, 9,',
            '              "%5.1f s",', "              x);", "z = strtof(text, &end);")))
        self.assert_fails("locale", "group.cc:1: std::ostringstream follows", "use TextWriter",
                          "group.cc:2: std::stod reads", "group.cc:3: std::tolower takes",
                          "group.cc:4: std::snprintf prints", "use format()", "group.cc:7: strtof reads")

    def test_not_whole_numbers_nor_comments_nor_the_programs_own_thread(self):
        self.write("trireme/comm/group.cc", '// std::ostringstream\nstd::snprintf(t, 9, "%d %% f %s", n, "std::stod(");\n'
                                            'return format("%.1f", x);\n')
        self.write("trireme/cli/say.cc", 'std::printf("%.2f", x);\n')
        self.assert_passes("locale")


class Layers(Tree):
    def test_include_against_the_order(self):
        self.write("trireme/base/error.h", '#pragma once\n#include "trireme/comm/group.h"\n')
        self.assert_fails("layers", "trireme/base/error.h:2: base may not include comm",
                          "base may include: nothing")

    def test_parallelisms_do_not_include_each_other(self):
        self.declare("parallel/tensor")
        self.declare("parallel/data", deps="base parallel_tensor")
        self.assert_fails("layers", "trireme/parallel/data/CMakeLists.txt:1: DEPS of parallel/data name parallel/tensor",
                          "a parallelism may include: base comm mesh")
        self.declare("parallel/data", deps="base")
        self.write("trireme/parallel/data/ddp.h", '#include "trireme/parallel/tensor/linear.h"\n')
        self.assert_fails("layers", "ddp.h:1: parallel/data may not include parallel/tensor")

    def test_the_training_loop_knows_no_model_and_no_task(self):
        self.declare("model", "family", ".: family")
        self.declare("train", "run", deps="model")
        self.write("trireme/train/run/x.cc", '#include "trireme/model/model.h"\n'
                   '#include "trireme/model/family/parts.h"\n#include "trireme/tasks/tasks.h"\n')
        self.assert_fails("layers", "x.cc:1: train may not include trireme/model/model.h",
                          "of model it may include: model/family/parts.h",
                          "x.cc:3: train may not include tasks")

    def test_rooms_of_a_layer_have_an_order_too(self):
        self.declare("launch", ".", "link", "agent: link .", deps="base")
        self.write("trireme/launch/local.h", '#include "trireme/base/error.h"\n#include "trireme/launch/link/a.h"\n')
        self.write("trireme/launch/agent/a.h", '#include "trireme/launch/link/a.h"\n')
        self.write("trireme/launch/attic/heap.h", "")
        self.assert_fails("layers", "trireme/launch/local.h:2: launch may not include launch/link",
                          "trireme/launch/attic/ is not a known room of launch",
                          "ROOMS of launch: launch/agent names launch, which no file includes")

    def test_rooms_that_include_each_other(self):
        self.declare("train", "a: b", "b: c", "c")
        self.write("trireme/train/a/a.h", '#include "trireme/train/b/b.h"\n')
        self.write("trireme/train/b/b.h", '#include "trireme/train/c/c.h"\n')
        self.assert_passes("layers")
        self.write("trireme/train/c/c.h", '#include "trireme/train/a/a.h"\n')
        self.assert_fails("layers", "circle: train/a -> train/b -> train/c -> train/a",
                          "train/c may not include train/a")

    def test_include_in_a_comment_or_a_string_is_none(self):
        self.write("trireme/base/error.h", '/*\n#include "trireme/comm/group.h"\n*/\n'
                   '// #include "trireme/comm/group.h"\nconst char* s = R"(std::cout)"; // getenv(\n'
                   "constexpr int n = 1'000; // printf(\n")
        self.assert_passes("layers")

    def test_deps_that_nothing_includes(self):
        self.write("trireme/comm/group.h", "#pragma once\n")
        self.assert_fails("layers", "trireme/comm/CMakeLists.txt:1: DEPS of comm name base, which no file includes")

    def test_layers_that_the_build_does_not_know_or_has_in_another_order(self):
        self.write("CMakeLists.txt", "project(x)\nset(TRIREME_LAYERS comm base attic)\n")
        self.write("trireme/mesh/CMakeLists.txt", "trireme_add_layer(mesh SOURCES x.cc)\n")
        self.assert_fails("layers", "CMakeLists.txt:2: TRIREME_LAYERS has no mesh",
                          "TRIREME_LAYERS has attic, which has no trireme_add_layer",
                          "TRIREME_LAYERS has comm before base, which it includes")

    def test_the_page_lists_the_public_headers(self):
        self.write("trireme/base/CMakeLists.txt", "trireme_add_layer(base PUBLIC error.h clock.h PRIVATE text.h)\n")
        self.write("trireme/base/clock.h", "")
        self.write("trireme/base/text.h", "")
        self.write("docs/reference/headers.md", "[a](../../trireme/base/error.h)\n[b](../../trireme/base/text.h)\n"
                   "[c](../../trireme/comm/group.h)\n")
        self.assert_fails("layers", "docs/reference/headers.md:2: trireme/base/text.h is not a public header",
                          "trireme/base/clock.h:1: a public header that docs/reference/headers.md does not list")

    def test_users_include_public_headers_only(self):
        self.write("trireme/base/CMakeLists.txt", "trireme_add_layer(base PUBLIC error.h PRIVATE clock.h)\n")
        self.write("trireme/base/clock.h", "")
        self.write("docs/reference/headers.md", "[a](../../trireme/base/error.h)\n[c](../../trireme/comm/group.h)\n")
        include = '#include "trireme/base/clock.h"\n'
        self.write("examples/one.cc", include)
        self.write("docs/guide/use.md", "```cpp\n" + include + "```\n")
        self.assert_fails("layers", "examples/one.cc:1: includes trireme/base/clock.h, which is private",
                          "docs/guide/use.md:2: includes trireme/base/clock.h, which is private")

    def test_inline_namespaces(self):
        self.write("trireme/base/error.h", "\nnamespace trireme::inline internal {\n}\n")
        self.assert_fails("layers", "trireme/base/error.h:2: inline: namespace trireme::inline internal")
        self.write("trireme/base/error.h", "\nnamespace trireme {\ninline namespace internal {\n}\n}\n")
        self.assert_fails("layers", "trireme/base/error.h:3: inline: inline namespace internal")

    def test_torch_h_in_a_header(self):
        self.write("tests/harness/a.h", "\n#include <torch/torch.h>\n")
        self.assert_fails("layers", "tests/harness/a.h:2: <torch/torch.h>")

    def test_printing_environment_and_exit_outside_the_cli(self):
        self.declare("cli")
        bad = {"std::cout << 1;": "prints", 'std::fprintf(stderr, "x");': "prints",
               'printf("x");': "prints", 'getenv("HOME");': "environment",
               "std::abort();": "exits", "::exit(1);": "exits"}
        for code, what in bad.items():
            self.write("trireme/base/error.h", f"\n{code}\n")
            self.assert_fails("layers", f"trireme/base/error.h:2: the {'library never ' if what != 'environment' else ''}{what}")
            self.write("trireme/base/error.h", "")
            self.write("trireme/cli/main.cc", code)
            self.assert_passes("layers")

    def test_abort_and_snprintf_of_our_own_are_fine(self):
        self.write("trireme/base/error.h", "void abort(); work->abort(); Work::abort(); snprintf(a);"
                   ' fprintf(file, "x");')
        self.assert_passes("layers")

    def test_environment_in_the_rendezvous_and_unknown_folders(self):
        self.write("trireme/comm/CMakeLists.txt",
                   'trireme_add_layer(comm ROOMS "." "rendezvous" PUBLIC group.h DEPS base)\n')
        self.write("trireme/comm/rendezvous/rendezvous.cc", 'getenv("RANK");')
        self.assert_passes("layers")
        self.write("trireme/utils/x.h", "")
        self.assert_fails("layers", "trireme/utils/ is not a known layer")


class Mirror(Tree):
    def test_header_without_a_test(self):
        self.write("trireme/comm/ring.h", "")
        self.write("trireme/comm/CMakeLists.txt", "trireme_add_layer(comm PUBLIC group.h ring.h)\n")
        self.assert_fails("mirror", "trireme/comm/ring.h:1: is PUBLIC and no test includes it; write tests/comm/ring_test.cc")
        self.write("trireme/comm/group.h", '#include "trireme/comm/ring.h"\n')
        self.write("tests/comm/group_test.cc", '#include "trireme/comm/group.h"\n')
        self.assert_passes("mirror")
        self.write("trireme/comm/ring.cc", "")
        self.write("trireme/comm/CMakeLists.txt", "trireme_add_layer(comm PUBLIC group.h ring.h SOURCES ring.cc)\n")
        self.assert_fails("mirror", "trireme/comm/ring.h:1: is PUBLIC and no test includes it")

    def test_files_that_no_cmakelists_names(self):
        self.write("tests/comm/ring_test.cc", "")
        self.write("trireme/comm/ring.cc", "")
        self.write("trireme/comm/CMakeLists.txt",
                   "trireme_add_layer(comm PUBLIC group.h SOURCES string.cc) # ring.cc\n")
        self.assert_fails("mirror", "tests/comm/ring_test.cc:1: is not listed",
                          "trireme/comm/ring.cc:1: is not listed")


class Length(Tree):
    def test_fails_at_five_hundred_lines_and_warns_above_the_aim(self):
        self.write("trireme/base/error.h", "\n" * 121)
        self.assertIn("warning: 121 lines; aim for 120", self.run_check("length").stdout)
        self.write("tools/long.py", "\n" * 499)
        self.assert_passes("length")
        self.write("tools/long.py", "\n" * 500)
        self.assert_fails("length", "tools/long.py:500: has 500 lines")

    def test_a_library_source_above_four_hundred_lines_says_why(self):
        self.write("trireme/base/error.cc", "\n" * 400)
        self.assert_passes("length")
        self.write("trireme/base/error.cc", "\n" * 401)
        self.assert_fails("length", "trireme/base/error.cc:1: has 401 lines, more than 400; split it")
        self.write("trireme/base/error.cc", "// Length: one table.\n" + "\n" * 400)
        self.assert_passes("length")

    def test_a_folder_of_more_than_fifteen_units(self):
        for number in range(14):
            self.write(f"trireme/base/unit{number}.h", "")
            self.write(f"trireme/base/unit{number}.cc", "")
        self.assert_passes("length")
        self.write("trireme/base/unit14.cc", "")
        self.assert_fails("length", "trireme/base:1: has 16 units, more than 15; make rooms of them")

    def test_a_comment_wider_than_a_hundred_columns(self):
        self.write("trireme/base/error.h", "// " + "a" * 46 + " " + "b" * 50 + "\n// " + "x" * 120 + "\n")
        self.assert_passes("length")
        self.write("trireme/base/error.h", "int x;\n// " + "a" * 46 + " " + "b" * 51 + "\n")
        self.assert_fails("length", "trireme/base/error.h:2: a comment of 101 columns; break it at 100")


class Docs(Tree):
    def test_link_that_leads_nowhere(self):
        self.write("docs/a.md", "x\n[a](missing.md)\n[b](../README.md)\n[c](https://x.y/z#top)\n"
                   "`[d](none)`\n[e](../tests#here)\n```\n[f](none)\n```\n[g]: gone.md\n")
        self.assert_fails("docs", "docs/a.md:2: link to missing.md", "docs/a.md:10: link to gone.md")
        self.assertEqual(self.run_check("docs").stderr.count("leads nowhere"), 2)

    def test_link_to_a_heading_that_is_not_there(self):
        self.write("docs/b.md", "# Speed of `dd` (2 disks)\n\n## [Same](a.md)\n\n## Same\n\n```\n# comment\n```\n")
        self.write("docs/a.md", "# Top\n[a](#top)\n[b](b.md#speed-of-dd-2-disks)\n[c](b.md#same)\n[d](b.md#same-1)\n")
        self.assert_passes("docs")
        self.write("docs/a.md", "# Top\n[a](#bottom)\n[b](b.md#comment)\n[d](b.md#same-2)\n")
        self.assert_fails("docs", "docs/a.md:2: link to #bottom: no such heading", "docs/a.md:3: link to b.md#comment",
                          "docs/a.md:4: link to b.md#same-2")

    def test_page_that_a_source_names_and_that_is_not_there(self):
        self.write("docs/guide/run.md", "")
        self.write("trireme/base/error.h", "\n// See docs/guide/run.md, https://x.y/docs/none.md and docs/gone.md.\n")
        self.write("tests/base/CMakeLists.txt", 'D="${PROJECT_SOURCE_DIR}/docs/guide/walk.md"\n')
        self.assert_fails("docs", "trireme/base/error.h:2: names docs/gone.md, which is not there",
                          "tests/base/CMakeLists.txt:1: names docs/guide/walk.md")
        self.assertEqual(self.run_check("docs").stderr.count("not there"), 2)

    def test_command_that_runs_what_was_not_built(self):
        run = "    build/release/bin/{} --help\n"
        self.write("docs/a.md", "x\n\n" + run.format("trireme") + run.format("mine_benchmark"))
        self.assert_fails("docs", "docs/a.md:4: runs mine_benchmark, which is not built")
        self.write("docs/a.md", "x\n\n    cmake --build build/release --target mine_benchmark\n"
                   + run.format("mine_benchmark") + "\nand `build/release/bin/other_test`\n")
        self.assert_passes("docs")


if __name__ == "__main__":
    unittest.main()
