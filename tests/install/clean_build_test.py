"""What `make build` alone builds can be installed as README says; and no program, built or installed, has its libraries
searched for in the current folder or in one that is not libtorch's, Open MPI's or Arrow's."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TRIREME_SOURCE"])
BUILD = pathlib.Path(os.environ["TRIREME_BUILD"])
PROGRAM = BUILD / "bin/trireme"


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=240, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def cache_of(build):
    return dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE))


def elf_files(root):
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.suffix in (".o", ".a", ".gch"):
            continue
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                yield path


def dynamic_entries(path):
    """What `readelf -d` says: {"NEEDED": [...], "RUNPATH": [...]}."""
    entries = {}
    for tag, value in re.findall(r"\((NEEDED|RPATH|RUNPATH)\).*\[(.*)\]", run("readelf", "-dW", path)):
        entries.setdefault(tag, []).append(value)
    return entries


def own_folders():
    """Of libtorch, Open MPI and Arrow, as the build found them."""
    cache = cache_of(BUILD)
    torch = pathlib.Path(cache["Torch_DIR"]).parents[2] / "lib"
    return {str(torch), cache.get("TRIREME_ARROW_RUN_PATH", str(torch)), *(str(pathlib.Path(value).parent) for key, value in cache.items()
                          if re.fullmatch(r"MPI_\w+_LIBRARY", key) and value.startswith("/"))}


def bad_run_paths(path):
    entries = dynamic_entries(path)
    for value in entries.get("RUNPATH", []) + entries.get("RPATH", []):
        for folder in value.split(":"):
            if folder not in own_folders() or not pathlib.Path(folder).is_dir():
                yield f"{path}: \"{folder}\" of \"{value}\""


class RunPaths(unittest.TestCase):
    def test_of_everything_that_is_built(self):
        # Not what tests beside this one build and remove.
        files = [path for folder in ("bin", "lib", "libexec", "python") for path in elf_files(BUILD / folder)]
        self.assertIn(PROGRAM, files)
        self.assertEqual([bad for path in files for bad in bad_run_paths(path)], [])

    def test_an_empty_entry_is_noticed(self):
        with tempfile.TemporaryDirectory(prefix="trireme-test-") as folder:
            program = pathlib.Path(folder) / "a"
            (pathlib.Path(folder) / "a.c").write_text("int main(void) { return 0; }\n")
            compiler = cache_of(BUILD)["CMAKE_CXX_COMPILER"]
            for paths, count in (("/lib/intel64::", 3), (".", 1), (folder, 1)):
                run(compiler, "-x", "c++", program.with_suffix(".c"), "-o", program, f"-Wl,-rpath,{paths}")
                self.assertEqual(len(list(bad_run_paths(program))), count, paths)

    def test_libraries_in_the_current_folder_are_not_loaded(self):
        with tempfile.TemporaryDirectory(prefix="trireme-test-") as folder:
            for name in re.findall(r"^\s*(\S+) =>", run("ldd", PROGRAM), re.MULTILINE):
                (pathlib.Path(folder) / name).write_text("no library\n")
            self.assertIn("trireme", run(PROGRAM, "--version", cwd=folder))


class CleanBuild(unittest.TestCase):
    def test_installs_as_readme_says(self):
        readme = (SOURCE / "README.md").read_text()
        self.assertIn("    make build\n", readme)
        self.assertIn("`cmake --install build/release`", readme)
        recipe = re.search(r"^build:.*\n\t@tools/build.sh \$\(PRESET\) (.+)$", (SOURCE / "Makefile").read_text(),
                           re.MULTILINE)
        cache = cache_of(BUILD)
        with tempfile.TemporaryDirectory(prefix="trireme-test-") as folder:
            fresh, prefix = pathlib.Path(folder) / "build", pathlib.Path(folder) / "prefix"
            keep = [f"-D{key}={cache[key]}" for key in
                    ("CMAKE_BUILD_TYPE", "CMAKE_CXX_COMPILER", "Torch_DIR", "Python3_EXECUTABLE") if cache.get(key)]
            run("cmake", "-S", SOURCE, "-B", fresh, "-G", "Ninja", *keep)
            # In place of an hour of compiling: what that build would have made, from the tree under test.
            built = run("ninja", "-C", fresh, "-t", "inputs", *recipe.group(1).split()).split("\n")
            for name in [line for line in built if re.match(r"(bin|lib|libexec)/", line)] + ["bin/trireme"]:
                if not (fresh / name).exists():
                    (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(BUILD / name, fresh / name)
            run("cmake", "--install", fresh, "--prefix", prefix)
            self.assertIn("trireme", run(prefix / "bin/trireme", "--version"))
            files = list(elf_files(prefix))
            self.assertIn(prefix / "bin/trireme", files)
            self.assertEqual([bad for path in files for bad in bad_run_paths(path)], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
