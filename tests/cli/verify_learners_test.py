"""`trireme verify` on layouts with learners: no false alarm, mistakes within a learner, and what is refused."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import verify_mutations as mutations  # noqa: E402

SEED = 1
LEARNERS = 2
# Of a message and a gather within each learner, with the steps they need.
SOME = {"pipeline-gradient-scale": 1, "stale-gather": 2}
NUM_CLEAN = 1
KINDS = {"activation", "activation gradient", "loss", "gradient", "gradient norm", "optimizer state", "weight"}


class VerifyLearners(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.place = mutations.Place(os.environ["TRIREME_MUTATIONS"], temporary.name)

    def verify(self, keys, common=(), ranks=4, ranks_a=2, steps=2):
        return self.place.verify(ranks, keys, ["parallel.learners=2", "outer.every=2", *common], steps, ranks_a=ranks_a)

    def test_each_learner_is_compared_with_its_like(self):
        found = self.verify(["parallel.tensor=2"], ["outer.method=diloco"])
        self.assertIn(found["finding"], ("same", "rounding"))
        probes = found["probes"] + found["same"]
        for learner in range(LEARNERS):
            self.assertEqual({probe["kind"] for probe in probes if probe.get("learner") == learner}, KINDS)
        common = {probe["name"] for probe in probes if "learner" not in probe}
        self.assertIn("learners.common.model.norm.weight", common)
        self.assertIn("learners.momentum.model.norm.weight", common)
        self.assertEqual((found["steps"], found["left_out"]), (2, []))

    def test_drawn_layouts_raise_no_alarm(self):
        for number in range(NUM_CLEAN):
            with self.subTest(number):
                found = mutations.try_clean(self.place, number, SEED, steps=1, drawn=mutations.drawn_learners)
                self.assertIn(found["finding"], ("same", "rounding"), found)

    def test_a_mistake_within_a_learner_is_named(self):
        for mistake in self.place.mistakes():
            if mistake["name"] not in SOME:
                continue
            with self.subTest(mistake["name"]):
                found = mutations.try_mistake(self.place, mistake, SEED, SOME[mistake["name"]], curve=False, learners=LEARNERS)
                self.assertGreater(found["made"], 0, found)
                self.assertEqual((found["finding"], found["named"]), ("bug", True), found)
                self.assertIn("learner 0", found["first"])

    def test_a_run_goes_on_from_the_middle_of_a_round(self):
        learners = ["--parallel.learners=2", "--outer.every=4", "--outer.method=diloco"]
        result = self.place.run("train", "tiny.toml", "--ranks", 2, "--train.steps=6", "--checkpoint.interval=3",
                                "--output.folder=run", *learners)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.place.run("verify", "run", "--json", "--layout", "tensor=2", "--ranks-b", 4, "--from-step", 3,
                                "--steps", 2, "--output", "from-run")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        found = json.loads(result.stdout)
        self.assertIn(found["finding"], ("same", "rounding"))
        self.assertEqual({probe["step"] for probe in found["probes"] + found["same"]}, {4, 5})

    def test_what_cannot_be_compared_is_one_line(self):
        for words, keys, common, ranks in (
                ("as many in both", ["parallel.learners=4"], [], 4),
                ("outer.method", ["outer.method=average"], [], 2),
                ("which learners are in time", ["parallel.servers=1"], ["outer.method=decoupled"], 3),
                ("outer.meeting", [], ["outer.meeting=127.0.0.1:1"], 2),
                ("what messages lose", [], ["outer.wire=int8"], 2)):
            with self.subTest(words):
                found = self.verify(keys, common, ranks)
                self.assertEqual(found["finding"], "refused")
                self.assertIn(words, found["refused"])


if __name__ == "__main__":
    unittest.main()
