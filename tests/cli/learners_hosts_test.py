"""Learners that are hosts, over `trireme network`: the same bits as learners on one host. Label netns: root and
/dev/net/tun."""
import json
import unittest

from program import ProgramTest

USER = 2
NETWORK = """
[network]
hosts = {hosts}
[default]
rate = 100e6
delay_ms = 5
"""
STEPS = ["--threads", 1, "--train.steps=12", "--outer.every=5", "--train.global_batch=12", "--train.micro_batch=1"]


class LearnersOfHosts(ProgramTest):
    def train(self, hosts, ranks, *options):
        """The report of the lines and what the command has printed."""
        (self.folder / "wan.toml").write_text(NETWORK.format(hosts=json.dumps(hosts)))
        result = self.run_program("network", "wan.toml", "--json", "--", "trireme", "run", "--nproc-per-node", ranks,
                                  "--log-dir", "log-{host}", "--", "trireme", "train", "tiny.toml", *STEPS,
                                  "--parallel.learners=hosts", *options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return json.loads(result.stdout), result.stderr

    def test_they_do_what_learners_of_one_host_do(self):
        for name, hosts, ranks, options in (
                ("two", ["paris", "tokyo"], 2, []),
                ("coded", ["paris", "tokyo"], 1, ["--outer.wire=int8", "--outer.delay=2", "--outer.mix=0.5"]),
                ("summed", ["paris", "lyon", "tokyo"], 1, ["--outer.delay=2", "--outer.mix=0.5"]),
                ("gossip", ["paris", "lyon", "tokyo"], 1, ["--outer.method=gossip", "--outer.graph=ring"])):
            with self.subTest(name):
                report, output = self.train(hosts, ranks, *options, f"--output.folder={name}")
                self.assertIn(f"learners {len(hosts)} (", output)
                self.succeed("train", "tiny.toml", "--ranks", len(hosts) * ranks, *STEPS, *options,
                             f"--parallel.learners={len(hosts)}", f"--output.folder={name}-here")
                self.assertEqual(self.curve(name), self.curve(f"{name}-here"))
                told, here = ([(line["step"], line["outer_bytes"], line["learner_spread"]) for line in self.metrics(run)
                               if "learner_spread" in line] for run in (name, f"{name}-here"))
                self.assertEqual(told, here)
                # What the line counts has headers, and what else hosts tell each other.
                sent = sum(line.get("outer_bytes", 0) for line in self.metrics(name))
                self.assertGreater(sum(link["bytes"] for link in report["links"] if link["from"] == hosts[0]), sent)

    def test_one_host_is_not_enough(self):
        self.fail_with(USER, ["parallel.learners is \"hosts\"", "all ranks are on one"], "train", "tiny.toml", "--ranks", 2,
                       "--parallel.learners=hosts")


if __name__ == "__main__":
    unittest.main()
