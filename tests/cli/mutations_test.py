"""`trireme verify` finds mistakes that tests/mutations makes, and raises no false alarm on layouts without any."""
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
# Of a group's sums, gathers and messages, of labels, of the loss, which may make copies of gradients differ, and of what is
# reported; with the steps they need.
SOME = {"final-norm-unsummed": 1, "stale-gather": 2, "pipeline-gradient-scale": 1, "labels-at-cut": 1,
        "gathered-logits": 1, "norm-omits-experts": 1}
NUM_CLEAN = 4


class MutationsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.place = mutations.Place(os.environ["TRIREME_MUTATIONS"], temporary.name)
        cls.mistakes = cls.place.mistakes()

    def find(self, mistake, steps=mutations.STEPS):
        found = mutations.try_mistake(self.place, mistake, SEED, steps, curve=False)
        self.assertGreater(found["made"], 0, found)
        self.assertEqual(found["finding"], "bug", found)
        return found

    def clean(self, number, steps):
        found = mutations.try_clean(self.place, number, SEED, steps)
        self.assertIn(found["finding"], ("same", "rounding"), found)


class Some(MutationsTest):
    def test_a_mistake_is_named_where_it_is_made(self):
        for mistake in self.mistakes:
            if mistake["name"] not in SOME:
                continue
            with self.subTest(mistake["name"]):
                found = self.find(mistake, SOME[mistake["name"]])
                self.assertTrue(found["named"], found)

    def test_layouts_without_a_mistake_raise_no_alarm(self):
        for number in range(NUM_CLEAN):
            with self.subTest(number):
                self.clean(number, steps=1)

    def test_the_table_has_a_source_and_a_place_for_each(self):
        self.assertEqual(len({m["name"] for m in self.mistakes}), 35)
        self.assertLessEqual(set(SOME), {m["name"] for m in self.mistakes})
        for mistake in self.mistakes:
            self.assertRegex(mistake["source"], r"^[\w.-]+/[\w.-]+#\d+(, \d+)?$")
            for layout in mistake["layouts"].split(";"):
                self.assertRegex(layout.strip(), r"^[248]( \w+\.\w+=[\w-]+)+$")
            self.assertRegex(mistake["expected"], r"^[a-z ]+:\S+(;[a-z ]+:\S+)*$")

    def test_an_unknown_mistake_is_refused(self):
        found = self.place.verify(2, ["mutation.name=none-such"], [], 1)
        self.assertEqual(found["finding"], "refused")
        self.assertIn("mutations table", found["refused"])


class All(MutationsTest):
    def test_every_mistake_is_found_and_most_are_named(self):
        named = []
        for mistake in self.mistakes:
            with self.subTest(mistake["name"]):
                found = self.find(mistake)
                print(json.dumps({"name": mistake["name"], **found}), flush=True)
                named.append(found["named"])
        self.assertGreaterEqual(sum(named[:25]), 22)

    def test_layouts_without_a_mistake_raise_no_alarm(self):
        for number in range(20):
            with self.subTest(number):
                self.clean(number, mutations.STEPS)


if __name__ == "__main__":
    unittest.main()
