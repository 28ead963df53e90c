"""The program in other locales than the classic one: the tests of cli_test.py hold, and every file has the same bytes.

German writes 1.234,5; in Turkish the small letter of I is not i. A preloaded library sets the locale, as a program that
links Trireme may.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import cli_test
from program import ProgramTest, preloading

LOCALES = tempfile.TemporaryDirectory(prefix="trireme-locales-")
unittest.addModuleCleanup(LOCALES.cleanup)
OPTIONS = ["--ranks", 2, "--train.steps=4", "--optimizer.learning_rate=1.5e-3", "--train.evaluate_interval=2",
           "--train.evaluate_sequences=4", "--histogram.interval=2", "--average.decay=0.5", "--parallel.zero=1"]


def setUpModule():
    for language in ("de_DE", "tr_TR"):
        subprocess.run(["localedef", "-i", language, "-f", "UTF-8", f"{LOCALES.name}/{language}.UTF-8"], check=True)


def in_locale(language):
    return {"LOCPATH": LOCALES.name, "TRIREME_TEST_LOCALE": f"{language}.UTF-8",
            **preloading("TRIREME_FOREIGN_LOCALE")}


class InLocale:
    """Runs every program of the test's class in a locale."""
    language = None

    def start(self, *arguments, environment=None):
        return super().start(*arguments, environment={**in_locale(self.language), **(environment or {})})


class GermanCommands(InLocale, cli_test.Commands):
    language = "de_DE"


class GermanRun(InLocale, cli_test.TrainedRun):
    language = "de_DE"


class TurkishCommands(InLocale, cli_test.Commands):
    language = "tr_TR"


class TurkishRun(InLocale, cli_test.TrainedRun):
    language = "tr_TR"


class SameBytes(ProgramTest):
    def files(self, folder):
        """Of a run, without what differs from one run to the next: times, memory and the run's name."""
        found = {}
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            timed = name.startswith(("tensorboard/", "recorder/", "series/", "logs/")) or name in ("events.jsonl", "run.json")
            if path.is_file() and not timed and name != "run_id":
                found[name] = path.read_bytes()
        lines = [json.loads(line, parse_float=str) for line in found.pop("metrics.jsonl").splitlines()]
        measured = re.compile("second|bytes|fraction|mfu|time$")
        found["metrics"] = [{key: value for key, value in line.items() if not measured.search(key)} for line in lines]
        return found

    def outcome(self, **options):
        """Everything that is written, parsed, hashed or keyed on the way from text to a resumed and exported model."""
        run = self.folder / "case"  # the same name each time, as it is written too
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bpe", "--vocab-size", 300, "--output",
                     "case/data/bpe", **options)
        train = ["train", "tiny.toml", "--data.path=case/data/bpe", "--output.folder=case/run", *OPTIONS]
        self.succeed(*train, **options)
        self.succeed(*train, "--train.steps=6", "--parallel.zero=0", **options)
        text = self.succeed("generate", "--checkpoint", "case/run", "--prompt", "def ", "--tokens", 20, "--seed", 3,
                            "--temperature", 0.8, "--top-p", 0.95, **options)
        plan = json.loads(self.succeed("plan", "tiny.toml", "cluster.toml", "--device.memory_gib=1.5", "--json",
                                       **options), parse_float=str)
        del plan["search_seconds"]
        data = {path.name: path.read_bytes() for path in sorted((run / "data").iterdir())}
        files = {key: value for key, value in self.files(run / "run").items()}
        helps = [self.succeed(*command, "--help", **options)
                 for command in (["train"], ["run"], ["data", "prepare"], ["generate"], ["plan"])]
        return {"data": data, "text": text, "plan": plan, "help": helps, **files}

    def test_of_everything_that_is_written(self):
        from program import CLUSTER
        (self.folder / "cluster.toml").write_text(CLUSTER)
        classic = self.outcome()
        for language in ("de_DE", "tr_TR"):
            with self.subTest(language):
                foreign = self.outcome(environment=in_locale(language))
                self.assertEqual(sorted(foreign), sorted(classic))
                for name, content in classic.items():
                    self.assertEqual(foreign[name], content, name)

    def test_the_locale_is_foreign(self):
        """Without this the others would show nothing."""
        script = "import ctypes, sys; c = ctypes.CDLL(None); t = ctypes.create_string_buffer(9); " \
                 "c.snprintf(t, 9, b'%.1f', ctypes.c_double(1.5)); sys.stdout.write(t.value.decode())"
        result = subprocess.run(["python3", "-c", script], env={**os.environ, **in_locale("de_DE")}, check=True,
                                capture_output=True, text=True)
        self.assertEqual(result.stdout, "1,5")


if __name__ == "__main__":
    unittest.main()
