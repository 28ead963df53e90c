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
        for name in ("layers", "mirror", "length", "docs"):
            self.assert_passes(name)


class Layers(Tree):
    def test_include_against_the_order(self):
        self.write("trireme/base/error.h", '#pragma once\n#include "trireme/comm/group.h"\n')
        self.assert_fails("layers", "trireme/base/error.h:2: base may not include comm",
                          "base may include: nothing")

    def test_parallelisms_do_not_include_each_other(self):
        self.write("trireme/parallel/data/ddp.h", '#include "trireme/parallel/tensor/linear.h"\n')
        self.assert_fails("layers", "ddp.h:1: parallel/data may not include parallel/tensor")

    def test_the_training_loop_knows_no_model_and_no_task(self):
        self.write("trireme/train/run/x.cc", '#include "trireme/model/model.h"\n'
                   '#include "trireme/model/family/parts.h"\n#include "trireme/tasks/tasks.h"\n')
        self.assert_fails("layers", "x.cc:1: train may not include trireme/model/model.h",
                          "of model it may include: model/family/parts.h",
                          "x.cc:3: train may not include tasks")

    def test_rooms_of_a_layer_have_an_order_too(self):
        self.write("trireme/comm/group.h", '#include "trireme/base/error.h"\n'
                   '#include "trireme/comm/shared/heap.h"\n')
        self.write("trireme/comm/attic/heap.h", "")
        self.assert_fails("layers", "trireme/comm/group.h:2: comm may not include comm/shared",
                          "trireme/comm/attic/ is not a known room of comm")

    def test_rooms_without_an_entry_of_their_own_do_not_include_each_other(self):
        self.write("trireme/model/model.h", '#include "trireme/model/bert/bert.h"\n')
        self.write("trireme/model/bert/bert.h", '#include "trireme/model/family/config.h"\n')
        self.write("trireme/model/family/config.h", "")
        self.assert_passes("layers")
        self.write("trireme/model/bert/bert.h", '#include "trireme/model/t5/t5.h"\n')
        self.write("trireme/model/family/config.h", '#include "trireme/model/bert/bert.h"\n')
        self.assert_fails("layers", "model/bert may not include model/t5",
                          "model/family may not include model/bert")

    def test_rooms_that_include_each_other(self):
        self.write("trireme/train/config/a.h", '#include "trireme/train/optimizer/b.h"\n')
        self.write("trireme/train/optimizer/b.h", '#include "trireme/train/numerics/c.h"\n')
        self.assert_passes("layers")
        self.write("trireme/train/numerics/c.h", '#include "trireme/train/config/a.h"\n')
        self.assert_fails("layers", "circle: train/config -> train/optimizer -> train/numerics -> train/config",
                          "train/numerics may not include train/config")

    def test_include_in_a_comment_or_a_string_is_none(self):
        self.write("trireme/base/error.h", '/*\n#include "trireme/comm/group.h"\n*/\n'
                   '// #include "trireme/comm/group.h"\nconst char* s = R"(std::cout)"; // getenv(\n'
                   "constexpr int n = 1'000; // printf(\n")
        self.assert_passes("layers")

    def test_include_that_deps_do_not_name(self):
        self.write("trireme/comm/CMakeLists.txt", "trireme_add_layer(comm PUBLIC group.h)\n")
        self.assert_fails("layers", "trireme/comm/group.h:2: comm includes base but DEPS do not")

    def test_deps_that_nothing_includes_or_that_are_not_allowed(self):
        self.write("trireme/comm/group.h", "#pragma once\n")
        self.assert_fails("layers", "DEPS of comm name base, which no file includes")
        self.write("trireme/base/CMakeLists.txt",
                   "# layers\ntrireme_add_layer(base PUBLIC error.h DEPS comm LINK x)\n")
        self.assert_fails("layers", "base/CMakeLists.txt:2: DEPS of base name comm, which it may not")

    def test_layers_that_the_build_does_not_know_or_has_in_another_order(self):
        self.write("CMakeLists.txt", "project(x)\nset(TRIREME_LAYERS comm base attic)\n")
        self.assert_fails("layers", "CMakeLists.txt:2: TRIREME_LAYERS has no mesh",
                          "TRIREME_LAYERS has attic, which is not a known layer",
                          "TRIREME_LAYERS has comm before base, which it includes")

    def test_public_headers_include_only_public_ones(self):
        self.write("trireme/base/CMakeLists.txt", "trireme_add_layer(base PUBLIC error.h PRIVATE clock.h)\n")
        self.write("trireme/base/clock.h", "")
        self.write("trireme/comm/group.h", '#include "trireme/base/error.h"\n#include "trireme/base/clock.h"\n')
        self.write("docs/headers.md", "[a](../trireme/base/error.h)\n[b](../trireme/base/clock.h)\n")
        self.assert_fails("layers", "trireme/comm/group.h:2: a public header includes trireme/base/clock.h",
                          "docs/headers.md:2: trireme/base/clock.h is not a public header")

    def test_private_headers_declare_in_internal(self):
        self.write("trireme/base/CMakeLists.txt", "trireme_add_layer(base PUBLIC error.h PRIVATE clock.h)\n")
        self.write("trireme/base/clock.h", "\nnamespace trireme {\n}\n")
        self.assert_fails("layers", "trireme/base/clock.h:2: a private header declares in namespace trireme")
        self.write("trireme/base/clock.h", "\nnamespace trireme {\nclass Error;\n}\nnamespace trireme::inline internal {\n}\n")
        self.assert_passes("layers")

    def test_torch_h_in_a_header(self):
        self.write("tests/harness/a.h", "\n#include <torch/torch.h>\n")
        self.assert_fails("layers", "tests/harness/a.h:2: <torch/torch.h>")

    def test_printing_environment_and_exit_outside_the_cli(self):
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
        self.write("trireme/comm/rendezvous/rendezvous.cc", 'getenv("RANK");')
        self.assert_passes("layers")
        self.write("trireme/utils/x.h", "")
        self.assert_fails("layers", "trireme/utils/ is not a known layer")


class Mirror(Tree):
    def test_header_without_a_test(self):
        self.write("trireme/comm/ring.h", "")
        self.write("trireme/comm/CMakeLists.txt", "trireme_add_layer(comm PUBLIC group.h ring.h)\n")
        self.assert_fails("mirror", "trireme/comm/ring.h:1: has no test; write tests/comm/ring_test.cc")

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
        self.write("docs/a.md", "x\n[a](missing.md)\n[b](../README.md#top)\n[c](https://x.y/z)\n"
                   "`[d](none)`\n[e](#here)\n```\n[f](none)\n```\n[g]: gone.md\n")
        self.assert_fails("docs", "docs/a.md:2: link to missing.md", "docs/a.md:10: link to gone.md")
        self.assertEqual(self.run_check("docs").stderr.count("leads nowhere"), 2)


if __name__ == "__main__":
    unittest.main()
