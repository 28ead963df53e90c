"""`trireme train --profile`: the trace is one that Perfetto reads, and the summary says what bounds the step."""
import json
import unittest

from program import ProgramTest

USER = 2


class Profile(ProgramTest):
    def profile(self, *arguments, run="run"):
        """(what is printed, the trace)"""
        output = self.succeed("train", "tiny.toml", "--profile", *arguments)
        return output, json.loads((self.folder / run / "profile/trace.json").read_text())

    def slices(self, trace, rank, **fields):
        return [event for event in trace["traceEvents"]
                if event["ph"] == "X" and event["pid"] == rank and
                all(event[key] == value for key, value in fields.items())]

    def test_two_ranks_in_one_trace(self):
        output, trace = self.profile("--ranks", 2)
        self.assertEqual({event["pid"] for event in trace["traceEvents"]}, {0, 1})
        for rank in (0, 1):
            with self.subTest(rank=rank):
                steps = self.slices(trace, rank, cat="step")
                self.assertEqual([step["name"] for step in steps], ["step 6", "step 7", "step 8"])
                phases = [phase["name"] for phase in self.slices(trace, rank, cat="phase")]
                self.assertEqual(phases,
                                 ["data", "forward_backward", "norm", "optimizer", "exchange"] * 3)
                self.assertGreaterEqual(len(self.slices(trace, rank, name="aten::mm")), 3)
                sums = self.slices(trace, rank, name="all_reduce", cat="communication")
                self.assertGreaterEqual(len(sums), 6)  # the count and at least one bucket a step
                self.assertTrue(any(event["args"]["background"] for event in sums))
                begin = steps[0]["ts"]
                end = steps[-1]["ts"] + steps[-1]["dur"]
                for event in self.slices(trace, rank):
                    self.assertGreater(event["ts"] + event["dur"], begin - 1000, event)
                    self.assertLess(event["ts"], end + 1000, event)
                    # A call or an operator of a step lies in it, not around it.
                    self.assertLess(event["dur"], end - begin + 1000, event)
                states = sum(event["dur"] for event in self.slices(trace, rank, tid=0))
                self.assertAlmostEqual(states, sum(step["dur"] for step in steps), places=1)
        # One clock: a collective ends after the last rank has come to it.
        ends = {}
        for rank in (0, 1):
            for event in self.slices(trace, rank, name="all_reduce"):
                call = (event["args"]["group"], event["args"]["sequence"])
                ends.setdefault(call, []).append((event["ts"], event["ts"] + event["dur"]))
        for call, times in ends.items():
            self.assertEqual(len(times), 2, call)
            self.assertGreater(min(end for _, end in times) + 1, max(begin for begin, _ in times), call)

        self.assertRegex(output, r"\nprofile steps 6 to 8")
        for rank in (0, 1):
            self.assertRegex(output, rf"\n +{rank} +[\d.]+ +[\d.]+ % +[\d.]+ % +[\d.]+ %")
        self.assertRegex(output, r"\n  all_reduce of data, background +\d")
        self.assertRegex(output, r"\n  hidden behind computing: \d+ % of the communication\n")
        self.assertRegex(output, r"\n  bound by (data|communication|overhead|memory|computation): \w")
        self.assertIn("\n  trace run/profile/trace.json, open it at https://ui.perfetto.dev\n", output)
        self.assertNotIn("pipeline", output)
        self.assertFalse((self.folder / "run/profile/pipeline.svg").exists())
        self.assertEqual(len(self.metrics()), 20)  # the run went on

    def test_a_pipeline_says_what_its_stages_did(self):
        output, trace = self.profile("--ranks", 4, "--parallel.pipeline=2", "--train.steps=8")
        self.assertIn("\npipeline 1f1b, 2 microbatches per step, mean of 2 pipelines\n", output)
        for stage in (0, 1):
            self.assertRegex(output, rf"\n +{stage} +{stage} +[\d.]+ %( +[\d.]+){{4}}\n")
        self.assertRegex(output, r"\n  bubble [\d.]+ %; of the schedule with these times [\d.]+ %, "
                                 r"with even stages 33.3 %\n")
        self.assertIn("\n  step 8 drawn in run/profile/pipeline.svg\n", output)
        drawing = (self.folder / "run/profile/pipeline.svg").read_text()
        self.assertIn("1f1b, 2 stages, 2 microbatches, measured", drawing)
        pipeline = trace["otherData"]["pipeline"]
        self.assertEqual([stage["rank"] for stage in pipeline["stages"]], [0, 1])
        for rank in pipeline["ranks"]:
            self.assertGreater(rank["moving_seconds"], 0)

    def test_workers_of_parameter_servers_share_a_trace(self):
        output, trace = self.profile("--ranks", 3, "--parallel.servers=1", "--train.gradient_clip=0", "--train.steps=10")
        self.assertEqual({event["pid"] for event in trace["traceEvents"]}, {0, 1})  # the server has no steps
        for rank in (0, 1):
            steps = self.slices(trace, rank, cat="step")
            self.assertEqual([step["name"] for step in steps], ["step 6", "step 7", "step 8"])
        self.assertRegex(output, r"\n  all_gather of workers +\d")
        self.assertEqual(len(self.metrics()), 10)

    def test_a_profile_changes_no_bit(self):
        self.succeed("train", "tiny.toml", "--output.folder=plain")
        _, trace = self.profile("--profile-warmup=0", "--profile-steps", 2)
        self.assertEqual([step["name"] for step in self.slices(trace, 0, cat="step")],
                         ["step 1", "step 2"])
        self.assertEqual(self.curve(), self.curve("plain"))

    def test_after_a_resume_the_warm_up_counts_anew(self):
        self.succeed("train", "tiny.toml", "--train.steps=10")
        _, trace = self.profile("--profile-warmup=2", "--train.steps=14", "--profile-steps=9")
        self.assertEqual([step["name"] for step in self.slices(trace, 0, cat="step")],
                         ["step 13", "step 14"])  # those there are
        # Steps that a resumed run no longer has.
        self.fail_with(USER, ["2 steps are left", "--profile-warmup"], "train", "tiny.toml", "--profile",
                       "--train.steps=16", "--ranks", 2)
        self.fail_with(USER, ["0 steps are left", "--train.steps"], "train", "tiny.toml", "--profile",
                       "--train.steps=14")

    def test_what_makes_no_sense_is_one_line(self):
        train = ["train", "tiny.toml", "--ranks", 2]
        self.fail_with(USER, ["20 steps are left", "first 20 are the warm-up", "--profile-warmup"], *train,
                       "--profile", "--profile-warmup=20")
        self.fail_with(USER, ["--profile-steps: 0", "at least 1"], *train, "--profile", "--profile-steps=0")
        self.fail_with(USER, ["--profile-warmup: -1", "at least 0"], *train, "--profile", "--profile-warmup=-1")
        self.fail_with(USER, ["--profile-steps"], *train, "--profile-steps=3")
        self.assertFalse((self.folder / "run/recorder").exists())  # no rank had started


if __name__ == "__main__":
    unittest.main(verbosity=2)
