"""`trireme simulate` and `trireme plan`: predictions of a step, sweeps, and layouts that train."""
import csv
import io
import json
import re
import tomllib
import unittest
import xml.dom.minidom

from program import ProgramTest

MODEL = """
[model]
family = "llama"
layers = 8
width = 2048
heads = 16
kv_heads = 8
ffn_width = 5632
sequence_length = 2048
vocab_size = 32000
[train]
steps = 1000
global_batch = 64
micro_batch = 1
precision = "bf16"
"""
CLUSTER = """
[cluster]
device = "a100-80gb"
nodes = 2
devices_per_node = 8
[failures]
device_mtbf_hours = 20000
[price]
device_hour = 2
"""
KEYS = {"step_seconds", "tokens_per_second", "tflops_per_device", "hardware_tflops_per_device", "mfu", "hfu",
        "bubble_fraction", "exposed_communication_fraction", "peak_memory_bytes", "fits"}


class Plan(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "model.toml").write_text(MODEL)
        (self.folder / "cluster.toml").write_text(CLUSTER)
        (self.folder / "small.toml").write_text('[cluster]\ndevice = "cpu"\n[device]\nmemory_gib = 1e-6\n')

    def simulate(self, *arguments):
        return json.loads(self.succeed("simulate", "model.toml", "cluster.toml", "--json", *arguments))

    def test_a_step(self):
        step = self.simulate("--parallel.tensor=8")
        self.assertLessEqual(KEYS, set(step))
        self.assertTrue(step["fits"])
        self.assertAlmostEqual(step["tokens_per_second"] * step["step_seconds"], 64 * 2048, delta=1)
        self.assertAlmostEqual(step["mfu"], step["tflops_per_device"] / 312, places=9)
        self.assertAlmostEqual(sum(step["seconds"].values()), step["step_seconds"], places=9)
        memory = step["memory_bytes"]
        self.assertAlmostEqual(sum(memory[use] for use in ("states", "activations", "temporary", "reserved")),
                               step["peak_memory_bytes"], delta=1)
        again = self.simulate("--parallel.tensor=8", "--train.recompute=full")
        self.assertGreater(again["hardware_tflops_per_device"] * again["step_seconds"],
                           step["hardware_tflops_per_device"] * step["step_seconds"])
        self.assertLess(again["peak_memory_bytes"], step["peak_memory_bytes"])
        self.assertGreater(step["run"]["failures"], 0)
        self.assertGreater(step["run"]["cost"], 0)

    def test_for_people(self):
        text = self.succeed("simulate", "model.toml", "cluster.toml", "--parallel.pipeline=4", "--timeline")
        for word in ("llama", "2 nodes of 8 x a100-80gb", "pipeline 4", "tokens/s", "pipeline bubble", "activations",
                     "device-hours", "checkpoint interval", "rank 3"):
            self.assertIn(word, text)

    def test_a_timeline_as_a_trace(self):
        self.succeed("simulate", "model.toml", "cluster.toml", "--parallel.pipeline=4", "--trace", "trace.json",
                     "--svg", "step.svg")
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        forwards = [event for event in events if event["name"].startswith("forward")]
        self.assertEqual(len(forwards), 4 * 16)
        self.assertEqual({event["tid"] for event in forwards}, {0, 1, 2, 3})
        xml.dom.minidom.parse(str(self.folder / "step.svg"))

    def test_sweeps(self):
        self.succeed("simulate", "model.toml", "cluster.toml", "--sweep", "nodes=1,2,4", "--csv", "s.csv",
                     "--svg", "s.svg")
        rows = list(csv.DictReader(io.StringIO((self.folder / "s.csv").read_text())))
        self.assertEqual([row["devices"] for row in rows], ["8", "16", "32"])
        rates = [float(row["tokens_per_second"]) for row in rows]
        self.assertEqual(rates, sorted(rates))
        xml.dom.minidom.parse(str(self.folder / "s.svg"))
        weak = self.simulate("--sweep", "weak=1,2,4")
        seconds = [point["step_seconds"] for point in weak]
        self.assertLess(max(seconds), 1.3 * min(seconds))
        tensor = self.simulate("--sweep", "parallel.tensor=1,3,8")
        self.assertIn("does not divide", tensor[1]["error"])
        self.assertGreater(tensor[0]["peak_memory_bytes"], tensor[2]["peak_memory_bytes"])

    def test_learners(self):
        outer = ["--parallel.learners=2", "--outer.every=50"]
        near, far = self.simulate(), self.simulate(*outer, "--network.site_nodes=1", "--network.site_gb_per_second=0.001",
                                                   "--network.site_microseconds=50000")
        self.assertNotIn("outer", near)
        found = far["outer"]
        self.assertEqual((found["learners"], found["round_steps"], far["devices"]), (2, 50, 16))
        self.assertAlmostEqual(sum(far["seconds"].values()), far["step_seconds"], places=9)
        self.assertAlmostEqual(far["seconds"]["outer"], found["exposed_seconds_per_round"] / 50, places=9)
        self.assertAlmostEqual(far["step_seconds"], found["inner_step_seconds"] + far["seconds"]["outer"], places=9)
        self.assertAlmostEqual(far["tokens_per_second"] * far["step_seconds"], 64 * 2048, delta=1)
        # Each of eight ranks sends its part in fp32 at 1 MB/s, in one round trip.
        self.assertAlmostEqual(found["exchange_seconds_per_round"], found["bytes_per_round"] / 8 / 1e6 + 0.1, delta=1e-3)
        self.assertGreater(found["memory_bytes"], 0)
        coded = self.simulate(*outer, "--outer.wire=int4", "--outer.fragments=5", "--outer.delay=5")["outer"]
        self.assertLess(7 * coded["bytes_per_round"], found["bytes_per_round"])
        self.assertEqual(coded["exposed_seconds_per_round"], 0)
        text = self.succeed("simulate", "model.toml", "cluster.toml", *outer)
        self.assertRegex(text, r"learners 2 with steps of .*; each sends .* in a round of 50 steps")
        best = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--best", 1, *outer, "--output",
                                       "best.toml"))["plans"][0]
        self.assertEqual(best["devices"], 16)
        self.assertIn("learners 2 x data", best["layout"])
        again = json.loads(self.succeed("simulate", "best.toml", "cluster.toml", "--json"))
        for key in ("step_seconds", "peak_memory_bytes"):
            self.assertAlmostEqual(again[key] / best[key], 1, places=9)
        self.fail_with(2, ["parallel.learners is 3", "on 2 nodes of 8 devices"], "plan", "model.toml", "cluster.toml",
                       "--parallel.learners=3", "--train.global_batch=48")
        self.fail_with(2, ["network.site_nodes is 1", "both"], "simulate", "model.toml", "cluster.toml",
                       "--network.site_nodes=1")
        self.fail_with(2, ["--gpus-at-most is 1", "a device for each learner"], "plan", "model.toml", "cluster.toml", *outer,
                       "--gpus-at-most", 1)

    def test_the_plan_is_the_fastest_of_what_fits(self):
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--output", "best.toml"))
        best = found["plans"][0]
        self.assertTrue(best["fits"])
        self.assertGreater(found["candidates"], 100)
        # The config that it writes predicts the same.
        again = json.loads(self.succeed("simulate", "best.toml", "cluster.toml", "--json"))
        self.assertAlmostEqual(again["step_seconds"], best["step_seconds"], places=9)
        steps = [self.simulate(f"--parallel.tensor={tensor}") for tensor in (1, 2, 4, 8)]
        fitting = [step["step_seconds"] for step in steps if step["fits"]]
        self.assertTrue(fitting)
        self.assertLessEqual(best["step_seconds"], min(fitting))

    def test_a_plan_says_what_the_run_takes(self):
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json"))
        for plan in found["plans"]:
            hours = 16 * 1000 * plan["step_seconds"] / plan["run"]["goodput"] / 3600
            self.assertAlmostEqual(plan["run"]["device_hours"] / hours, 1, places=6)
            self.assertAlmostEqual(plan["run"]["cost"] / (2 * hours), 1, places=6)
        text = self.succeed("plan", "model.toml", "cluster.toml")
        self.assertEqual(len(re.findall(r"(?m)^   1\.0 k steps: .* device-hours, .* kWh, cost \d", text)), 5)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_rows_are_different_layouts(self):
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--best", 12))
        rows = [tuple(value for key, value in plan["settings"].items()
                      if key not in ("parallel.schedule", "parallel.stages_per_rank")) for plan in found["plans"]]
        self.assertEqual(len(set(rows)), len(rows))

    def test_what_is_written_can_be_swept(self):
        self.succeed("plan", "model.toml", "cluster.toml", "--fix", "tensor=2", "--output", "best.toml")
        self.assertIn("\ndata = 0\n", (self.folder / "best.toml").read_text())
        points = json.loads(self.succeed("simulate", "best.toml", "cluster.toml", "--json", "--train.global_batch=128",
                                         "--sweep", "nodes=1,2,4"))
        self.assertEqual([point.get("error", "") for point in points], ["", "", ""])
        self.assertEqual([point["devices"] for point in points], [8, 16, 32])

    def test_a_drawn_sweep_begins_at_zero_and_marks_what_does_not_fit(self):
        self.succeed("simulate", "model.toml", "cluster.toml", "--sweep", "parallel.tensor=1,3,8", "--svg", "s.svg",
                     "--device.memory_gib=12")
        drawing = xml.dom.minidom.parse(str(self.folder / "s.svg"))
        points = [circle.getAttribute("class") for circle in drawing.getElementsByTagName("circle")]
        self.assertEqual(points, ["too-large", "fits"])
        texts = [text.firstChild.data for text in drawing.getElementsByTagName("text")]
        ticks = [text for text in drawing.getElementsByTagName("text") if text.getAttribute("class") == "tick"]
        self.assertEqual(ticks[0].firstChild.data, "0")
        self.assertGreaterEqual(len(ticks), 4)
        self.assertIn("cannot run", texts)
        self.assertIn("o does not fit the memory", texts)

    def test_states_on_the_host_leave_a_gpu(self):
        here, there = self.simulate(), self.simulate("--offload.optimizer=host")
        moved = here["memory_bytes"]["states"] - there["memory_bytes"]["states"]
        self.assertGreater(moved, 0.7 * here["memory_bytes"]["states"])  # 12 of 16 bytes a parameter
        self.assertGreater(there["seconds"]["optimizer"], 2 * moved / 21e9)
        plan = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--best", 1, "--fix", "zero=0",
                                       "--fix", "tensor=1", "--fix", "pipeline=1", "--offload.optimizer=host",
                                       "--output", "best.toml"))["plans"][0]
        again = json.loads(self.succeed("simulate", "best.toml", "cluster.toml", "--json"))
        self.assertAlmostEqual(again["peak_memory_bytes"], plan["peak_memory_bytes"], delta=1)
        cpu = ["--cluster.device=cpu", "--train.precision=fp32"]
        self.assertEqual(self.simulate(*cpu)["memory_bytes"], self.simulate(*cpu, "--offload.optimizer=host")["memory_bytes"])

    def best(self, *options):
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", *options))["plans"]
        return [(plan["settings"], plan["peak_memory_bytes"]) for plan in found]

    def test_inputs_of_blocks_and_smaller_states_leave_memory(self):
        fixed = ("--fix", "tensor=1", "--fix", "pipeline=1", "--fix", "zero=1", "--fix", "micro_batch=1")
        for place in ("host", "disk"):
            kinds = {settings["train.recompute"] for settings, _ in self.best(
                *fixed, f"--offload.activations={place}", "--train.recompute=full", "--best=20")}
            self.assertEqual(kinds, {"full", "selective"})
        self.fail_with(2, ["recompute=none", "offload.activations"], "plan", "model.toml", "cluster.toml",
                       "--offload.activations=disk", "--fix", "recompute=none")
        sizes = {dtype: self.simulate(f"--optimizer.state_dtype={dtype}", "--parallel.zero=1")["memory_bytes"]["states"]
                 for dtype in ("fp32", "bf16", "int8")}
        self.assertGreater(sizes["fp32"], sizes["bf16"])
        self.assertGreater(sizes["bf16"], sizes["int8"])

    def test_only_what_can_run_is_offered(self):
        # Rows of 5632 numbers: a sixteenth of them is no whole number of int8's blocks.
        states = ("--optimizer.state_dtype=int8", "--model.heads=32", "--model.kv_heads=32")
        self.fail_with(2, ["optimizer.state_dtype", "cut at element 352"], "plan", "model.toml", "cluster.toml", *states,
                       "--cluster.devices_per_node=16", "--cluster.nodes=1", "--fix", "tensor=16")
        for settings, _ in self.best("--train.batch_ramp_start=8", "--train.batch_ramp_steps=10", "--best", 20):
            data = int(settings["parallel.data"])
            self.assertEqual(8 % (data * int(settings["train.micro_batch"])), 0, settings)

    def test_no_allowed_number_makes_it_endless(self):
        large = ["--cluster.nodes=16384", "--model.layers=1000", "--train.global_batch=16384"]
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--best", 1, *large))
        self.assertEqual(found["plans"][0]["devices"], 131072)
        step = self.simulate("--model.layers=16", "--parallel.pipeline=16", "--train.global_batch=1048576", "--train.micro_batch=64")
        self.assertGreater(step["bubble_fraction"], 0)
        self.fail_with(2, ["devices", "1048576", "--gpus-at-most"], "plan", "model.toml", "cluster.toml",
                       "--cluster.nodes=32768", "--cluster.devices_per_node=64")

    def test_keys_that_are_not_searched_stay(self):
        keys = ["--parallel.gathered_units=1", "--train.overlap=false", "--train.reproducible=true"]
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--output", "best.toml",
                                        "--fix", "zero=3", *keys))
        best = found["plans"][0]
        again = json.loads(self.succeed("simulate", "best.toml", "cluster.toml", "--json"))
        for key in ("step_seconds", "peak_memory_bytes"):
            self.assertAlmostEqual(again[key] / best[key], 1, places=9)

    def test_keys_can_be_fixed(self):
        found = json.loads(self.succeed("plan", "model.toml", "cluster.toml", "--json", "--fix", "tensor=4",
                                        "--fix", "zero=1", "--gpus-at-most", 8, "--best", 2))
        self.assertEqual(len(found["plans"]), 2)
        for plan in found["plans"]:
            self.assertEqual(plan["settings"]["parallel.tensor"], "4")
            self.assertEqual(plan["settings"]["parallel.zero"], "1")
            self.assertEqual(plan["devices"], 8)

    def test_what_is_planned_trains(self):
        (self.folder / "here.toml").write_text('[cluster]\ndevice = "cpu"\ndevices_per_node = 2\n')
        self.succeed("plan", "tiny.toml", "here.toml", "--output", "planned.toml")
        self.succeed("train", "planned.toml", "--ranks", 2, "--train.steps=3")
        self.assertEqual(len(self.metrics()), 3)

    def test_the_layout_is_chosen_when_training_starts(self):
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--parallel.auto=true", "--train.steps=4")
        chosen = next(line for line in output.splitlines() if line.startswith("plan "))
        self.assertRegex(chosen, r"plan    data \d.*: predicted [\d.]+ s a step, .* per rank; the best of \d+ layouts")
        again = self.succeed("train", "tiny.toml", "--ranks", 2, "--parallel.auto=true", "--train.steps=8")
        self.assertIn(f"the layout with which the run has begun: {chosen.split(':')[0][8:]}\n", again)
        self.assertEqual(len(self.metrics()), 8)
        self.fail_with(2, ["parallel.auto", "trireme plan"], "run", "--nproc-per-node", 2, "--", self.program, "train",
                       "tiny.toml", "--parallel.auto=true")
        self.fail_with(2, ["no layout fits"], "train", "tiny.toml", "--ranks", 2, "--parallel.auto=true",
                       "--parallel.cluster=small.toml", "--output.folder=other")

    def test_the_microbatch_is_chosen_when_training_starts(self):
        options = ("train", "tiny.toml", "--ranks", 2, "--parallel.zero=2", "--train.micro_batch=auto")
        output = self.succeed(*options, "--train.steps=3")
        chosen = next(line for line in output.splitlines() if line.startswith("plan "))
        self.assertRegex(chosen, r"plan    microbatch \d+: predicted [\d.]+ s a step, .* per rank; the best of \d+, ")
        number = chosen.split(":")[0].split()[-1]
        with open(self.folder / "run" / "config.toml") as file:
            text = file.read()
        self.assertIn(f"micro_batch = {number}\n", text)
        self.assertIn("zero = 2\n", text)
        again = self.succeed(*options, "--train.steps=5")
        self.assertIn(f"plan    the microbatch with which the run has begun: microbatch {number}\n", again)
        self.assertEqual(len(self.metrics()), 5)
        self.fail_with(2, ["train.micro_batch", "auto", "number"], "simulate", "tiny.toml", "cluster.toml",
                       "--train.micro_batch=auto")
        self.fail_with(2, ["train.micro_batch", "trireme plan"], "run", "--nproc-per-node", 2, "--", self.program,
                       "train", "tiny.toml", "--train.micro_batch=auto")
        for i, layout in enumerate((("--ranks=1", "--parallel.zero=2"), ("--ranks=2", "--parallel.tensor=2"),
                                    ("--ranks=2", "--parallel.pipeline=2", "--parallel.schedule=gpipe"),
                                    ("--ranks=2", "--train.reproducible=true", "--train.global_batch=24"))):
            output = self.succeed("train", "tiny.toml", *layout, "--train.micro_batch=auto", "--train.steps=1",
                                  f"--output.folder=layout{i}")
            self.assertIn("plan    microbatch ", output)
        self.fail_with(2, ["train.micro_batch is 0", 'or "auto"'], "train", "tiny.toml", "--train.micro_batch=0")
        self.fail_with(2, ["train.micro_batch", "parallel.servers"], *options[:2], "--ranks=3", "--parallel.servers=1",
                       "--train.micro_batch=auto", "--train.gradient_clip=0")
        self.fail_with(2, ['train.micro_batch = "auto"', "no microbatch fits"], *options, "--parallel.cluster=small.toml",
                       "--output.folder=other")
        self.fail_with(2, ["train.micro_batch", 'a whole number or "auto"'], "train", "tiny.toml",
                       "--train.micro_batch=most")
        self.fail_with(2, ["train.micro_batch is -1", 'or "auto"'], "train", "tiny.toml", "--train.micro_batch=-1")

    def test_the_recomputation_is_chosen_when_training_starts(self):
        """The fastest of all that fit, on devices of several sizes."""
        def model_of(layers):
            return ("tiny.toml", f"--model.layers={layers}", "--model.width=32", "--model.sequence_length=64")

        disk = "--offload.activations=disk"

        def device(memory):
            (self.folder / "one.toml").write_text(
                f'[cluster]\ndevice = "cpu"\nnodes = 1\ndevices_per_node = 1\n[device]\nmemory_gib = {memory / 2**30}\ndisk_gb_per_second = 0.01\n')

        def simulate(model, *options):
            step = json.loads(self.succeed("simulate", *model, "one.toml", "--json", *options))
            return step["step_seconds"], step["peak_memory_bytes"]

        def all_choices(layers, may_store):
            yield ("none", 0, "none", 0)
            for kind in ("full",) if may_store else ("selective", "full"):
                for blocks in range(1, layers + 1):
                    for stored in range(blocks + 1 if may_store else 1):
                        yield (kind, blocks, "disk" if stored else "none", stored)

        device(2**40)
        self.resumed = 0
        for layers, may_store in ((3, False), (9, True)):  # 9: more than the store has buffers
            model = model_of(layers)
            predicted = {}
            for kind, blocks, place, stored in all_choices(layers, may_store):
                predicted[kind, blocks, place, stored] = simulate(
                    model, f"--train.recompute={kind}", f"--train.recompute_blocks={blocks}", f"--offload.activations={place}",
                    f"--offload.activation_blocks={stored}")
            sizes = sorted(memory for _, memory in predicted.values())
            some = (sizes[1], sizes[0]) if may_store else (sizes[-1], sizes[len(sizes) // 2], sizes[1], sizes[0])
            for i, memory in enumerate(some):  # what is not simulated does not fit the smallest
                device(memory / 0.95 * (1 + 1e-9))
                best = min(seconds for seconds, bytes in predicted.values() if bytes <= memory)
                run = f"run-{may_store}-{i}"
                options = ("train", *model, "--ranks=1", "--train.recompute=auto", *([disk] if may_store else []),
                           "--checkpoint.interval=0", "--parallel.cluster=one.toml", f"--output.folder={run}")
                line = next(line for line in self.succeed(*options, "--train.steps=1").splitlines()
                            if line.startswith("plan "))
                self.assertRegex(line, r"plan    recompute \w+.*: predicted [\d.]+ s a step, .* per rank; the best of \d+, ")
                with open(self.folder / run / "config.toml", "rb") as file:
                    config = tomllib.load(file)
                train, offload = config["train"], config["offload"]
                found = predicted[train["recompute"], train["recompute_blocks"], offload["activations"],
                                  offload["activation_blocks"]]
                self.assertLessEqual(found[1], memory)
                self.assertLessEqual(found[0], best * (1 + 1e-12))
                if memory == sizes[-1]:
                    self.assertIn("recompute none:", line)
                if offload["activations"] == ("disk" if may_store else "none"):  # as the user has it
                    what = line.split(":")[0].removeprefix("plan    ")
                    again = self.succeed(*options, "--train.steps=2")
                    self.assertIn(f"plan    the recomputation with which the run has begun: {what}\n", again)
                    self.resumed += 1
            self.fail_with(2, ['train.recompute = "auto"', "no recomputation fits"], *options, "--parallel.cluster=small.toml",
                           "--output.folder=other")
        self.assertEqual(self.resumed, 6)
        both = self.succeed("train", *model_of(3), "--ranks=2", "--train.recompute=auto", "--train.micro_batch=auto",
                            "--train.steps=1", "--output.folder=both")
        self.assertRegex(both, r"plan    microbatch \d+, recompute none: predicted ")
        self.fail_with(2, ["train.recompute is \"auto\"", "another value"], "simulate", "tiny.toml", "cluster.toml",
                       "--train.recompute=auto")
        self.fail_with(2, ["train.recompute is \"auto\"", "trireme plan"], "run", "--nproc-per-node", 2, "--", self.program,
                       "train", "tiny.toml", "--train.recompute=auto")
        self.fail_with(2, ["train.recompute", "parallel.servers"], "train", "tiny.toml", "--ranks=3", "--parallel.servers=1",
                       "--train.recompute=auto", "--train.gradient_clip=0")

    def test_a_run_ends_with_what_was_predicted(self):
        text = self.succeed("bench", "device", "--ranks", 2, "--seconds", "0.001", "--output", "here.toml", "--disk", ".")
        self.assertRegex(text, r"disk +\d+\.\d\d GB/s")
        self.assertRegex((self.folder / "here.toml").read_text(), r"disk_gb_per_second = 0*[1-9.]")
        self.fail_with(2, ["--disk", "none"], "bench", "device", "--disk", "none")
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=8", "--parallel.cluster=here.toml")
        self.assertRegex(output, r"planner measured [\d.]+ ms a step, predicted [\d.]+ \([+-]\d+ %\); memory .*\n"
                                 r"planner most of the difference is (computation|communication and waiting): ")

    def test_beside_what_a_run_measured(self):
        self.succeed("bench", "device", "--ranks", 2, "--seconds", "0.001", "--output", "here.toml")
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=8")
        text = self.succeed("simulate", "tiny.toml", "here.toml", "--measured", "run")
        self.assertRegex(text, r"measured [\d.]+ ms a step, predicted [\d.]+ \([+-]\d+ %\); memory .*\n"
                               r"most of the difference is (computation|communication and waiting): ")
        step = json.loads(self.succeed("simulate", "tiny.toml", "here.toml", "--measured", "run", "--json"))
        self.assertEqual(step["measured"]["steps"], 5)
        self.fail_with(2, ["--measured", "metrics.jsonl"], "simulate", "tiny.toml", "here.toml", "--measured", "none")

    def test_sparse_models(self):
        sparse = ["--model.family=mixtral", "--model.experts=8", "--train.global_batch=16"]
        one = self.simulate(*sparse)
        four = self.simulate(*sparse, "--parallel.expert=4")
        self.assertGreater(four["seconds"]["expert"], 0)
        self.assertLess(four["memory_bytes"]["states"], one["memory_bytes"]["states"])

    def test_serving(self):
        served = self.simulate("--serve", "--serve-context", 4096)
        self.assertEqual(served["cache_bytes_per_token"], 8 * 2 * 8 * 128 * 2)
        self.assertEqual(served["cache_bytes_per_sequence"], 4096 * served["cache_bytes_per_token"])
        self.assertEqual((served["tensor"], served["replicas"]), (1, 16))
        batches = [bound["batch"] for bound in served["decode"]]
        self.assertEqual(batches[:3], [1, 4, 16])
        self.assertEqual(batches[-1], served["largest_batch"])
        rates = [bound["tokens_per_second"] for bound in served["decode"]]
        self.assertEqual(rates, sorted(rates))
        for bound in served["decode"]:
            self.assertAlmostEqual(bound["tokens_per_second"] / bound["tokens_per_second_of_sequence"], bound["batch"])
        divided = self.simulate("--serve", "--serve-tensor", 2, "--serve-batch", 8, "--serve-weight-bytes", 1)
        self.assertEqual(divided["weight_bytes"], served["weight_bytes"] / 4)
        self.assertEqual([bound["batch"] for bound in divided["decode"]], [8])
        self.assertGreater(divided["decode"][0]["tensor_seconds"], 0)
        text = self.succeed("simulate", "model.toml", "cluster.toml", "--serve", "--model.family=mixtral",
                            "--model.experts=8")
        for word in ("16 replicas", "32.0 KiB of keys and values per token", "memory bandwidth", "2.0 of 8 experts"):
            self.assertIn(word, text)

    def test_bad_serving(self):
        serve = ["simulate", "model.toml", "cluster.toml", "--serve"]
        self.fail_with(2, ["3 tensor ranks", "16 heads"], *serve, "--serve-tensor", 3)
        self.fail_with(2, ["--serve-batch", "100000", "fit beside the weights"], *serve, "--serve-batch", 100000)
        self.fail_with(2, ["--serve-context", "do not fit in 2 nodes"], *serve, "--device.memory_gib=2.01")
        self.fail_with(2, ["--serve-weight-bytes", "0.25"], *serve, "--serve-weight-bytes", 0)
        self.fail_with(2, ["--serve", "--sweep"], *serve, "--sweep", "nodes=1,2")
        self.fail_with(2, ["--serve-batch", "--serve"], *serve[:3], "--serve-batch", 1)

    def test_bad_input(self):
        files = ["model.toml", "cluster.toml"]
        self.fail_with(2, ["no.toml", "does not exist"], "simulate", "model.toml", "no.toml")
        self.fail_with(2, ["cluster.device", "h10", "h100-sxm"], "simulate", *files, "--cluster.device=h10")
        self.fail_with(2, ["cluster.nodes", "-1"], "simulate", *files, "--cluster.nodes=-1")
        self.fail_with(2, ["cluster.node", "cluster.nodes"], "simulate", *files, "--cluster.node=1")
        for value in ("rebalance_interval=10", "transport=mpi"):
            for command in ("simulate", "plan"):
                self.fail_with(2, [f"parallel.{value.split('=')[0]}", "GPUs"], command, *files,
                               f"--parallel.{value}", "--cluster.device=h100-sxm")
        self.fail_with(2, ["does not divide", "16 ranks"], "simulate", *files, "--parallel.tensor=3")
        self.fail_with(2, ["model.vocab_size"], "simulate", *files, "--model.vocab_size=0", "--data.path=none")
        self.fail_with(2, ["--sweep", "nodes=1,2,4,8"], "simulate", *files, "--sweep", "nodes")
        self.fail_with(2, ["--csv", "--sweep"], "simulate", *files, "--csv", "x.csv")
        self.fail_with(2, ["--svg", "cannot write", "none/x.svg"], "simulate", *files, "--svg", "none/x.svg")
        self.fail_with(2, ["--fix", "tensr", "tensor"], "plan", *files, "--fix", "tensr=2")
        self.fail_with(2, ["--objective", "time, cost or memory"], "plan", *files, "--objective", "joy")
        (self.folder / "vision.toml").write_text('[task]\nname = "vision"\n')
        self.fail_with(2, ["task.name", "language"], "simulate", "vision.toml", "cluster.toml")
        (self.folder / "bad.toml").write_text("[cluster]\ndevice = 3\n")
        self.fail_with(2, ["bad.toml", "cluster.device"], "plan", "model.toml", "bad.toml")
        output = self.run_program("plan", *files, "--device.memory_gib=1")
        self.assertEqual(output.returncode, 2)
        self.assertIn("no layout fits", output.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
