"""Short versions of two campaigns: learners on hosts of their own that are killed, stopped and cut off, and decoupled
learners with a slow one of which some are killed. Need root, /dev/net/tun and cgroups."""
import argparse
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/recovery"))
import learner_goodput  # noqa: E402
import learner_kills  # noqa: E402
from learner_hosts import Hosts  # noqa: E402

PROGRAM = pathlib.Path(os.environ["TRIREME_PROGRAM"])
SEED, EVENTS = 3, 10


class CampaignTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class LearnerKills(CampaignTest):
    def test_all_survivors_have_the_same_bits_after_every_round(self):
        print(f"seed {SEED}", flush=True)
        with Hosts(PROGRAM, self.folder, learner_kills.PLACES) as hosts:
            system = learner_kills.Meeting(hosts, self.folder / "meet", learner_kills.LEASE)
            campaign = learner_kills.Campaign(system, SEED)
            summary = campaign.run(EVENTS)
        self.assertEqual([event for event in campaign.done if event["hung"]], [])
        self.assertEqual((summary["unequal"], summary["ended_by_themselves"]), ([], []))
        self.assertGreater(summary["compared"], EVENTS)
        self.assertGreater(summary["rounds_with_each_step_once"], EVENTS)


class SlowLearner(CampaignTest):
    def test_what_decoupled_learners_did_after_a_kill_is_repeated_by_its_log(self):
        learner_goodput.prepare_random_tokens(PROGRAM, self.folder)
        (self.folder / "learner.toml").write_text(learner_goodput.CONFIG)
        args = argparse.Namespace(trireme=PROGRAM, seed=SEED, seconds=20)
        name = f"decoupled, quorum 6, saved every {learner_goodput.SAVE} steps"
        found = learner_goodput.measure(learner_goodput.WAYS[name], args, name, self.folder / "run", interval=10)
        self.assertEqual(found["kills"], 2)
        self.assertEqual((found["replayed_steps"], found["same_bits"]), (learner_goodput.SAVE, True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
