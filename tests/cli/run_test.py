"""`trireme run` on one host: workers that are killed, programs of others, what is refused."""
import json
import os
import signal
import socket
import sys
import time
import unittest

from program import PROGRAM, TIMEOUT, ProgramTest, rank_of

TRAIN = ["--", PROGRAM, "train", "tiny.toml", "--checkpoint.memory_interval=5"]

DDP = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restarts == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
print("sum", value.item(), "of", dist.get_world_size(), "after", restarts, flush=True)
dist.destroy_process_group()
"""


class Run(ProgramTest):
    def events(self, run="run"):
        return [json.loads(line) for line in (self.folder / run / "events.jsonl").read_text().splitlines()]

    def run_job(self, *arguments, **options):
        return self.succeed("run", "--nproc-per-node", 2, *arguments, **options)

    def test_a_killed_rank_costs_no_bit(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--output.folder=whole", "--train.steps=60")
        process = self.start("run", "--nproc-per-node", 2, *TRAIN, "--train.steps=60")
        for step, rank in ((8, 1), (23, 0)):
            self.await_step(step, process)
            os.kill(rank_of(process, rank), signal.SIGKILL)
            while sum(event["event"] == "recovery" for event in self.events()) < (2 if rank else 3):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertIn("in memory", output)
        self.assertEqual(self.curve(), self.curve("whole"))
        self.assertEqual([e["rank"] for e in self.events() if e["event"] == "failure"], [1, 0])
        # They go on from a checkpoint, of every fifth step.
        self.assertEqual([(e["step"] - 1) % 5 for e in self.events() if e["event"] == "recovery"], [0, 0, 0])
        self.assertIn("rank-00000.log", [path.name for path in (self.folder / "run/logs").iterdir()])
        self.assertIn("epoch 3", self.succeed("logs", "run"))
        self.assertIn("killed", self.succeed("doctor", "run"))

    def test_an_injected_kill_is_reported_like_a_real_one(self):
        output = self.run_job("--inject", "kill rank=1 at step=4", *TRAIN)
        self.assertIn("inject", output)
        kinds = [event["event"] for event in self.events()]
        self.assertEqual([kinds.count(kind) for kind in ("inject", "failure", "end")], [1, 1, 1])
        self.assertEqual([point[0] for point in self.curve()], list(range(1, 21)))

    def test_options_of_torchrun_may_have_underscores(self):
        self.succeed("run", "--nproc_per_node=2", "--max_restarts", 0, "--log_dir", "l", "--rdzv_id", "job", "--node_rank=0",
                     "--", "sh", "-c", "echo $RANK of $WORLD_SIZE, $TORCHELASTIC_MAX_RESTARTS, $* > at.$RANK", "sh",
                     "--log_dir=x")
        self.assertEqual((self.folder / "at.1").read_text(), "1 of 2, 0, --log_dir=x\n")
        text = self.succeed("run", "--help")
        self.assertIn("--nproc-per-node", text)
        self.assertNotIn("_per_node", text)

    def test_sigterm_saves_and_ends_with_zero(self):
        process = self.start("run", "--nproc-per-node", 2, *TRAIN, "--train.steps=100000")
        self.await_step(3, process)
        process.terminate()
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (0, ""))
        newest = self.checkpoints()[-1]
        self.assertEqual(f"step-{self.curve()[-1][0]:06}", newest)

    def test_a_program_of_pytorch_runs_unchanged_and_is_restarted(self):
        (self.folder / "ddp.py").write_text(DDP)
        output = self.run_job("--log-dir", "logged", "--", sys.executable, "ddp.py")
        self.assertIn("sum 3.0 of 2 after 1", output)
        self.assertEqual(next(e["rank"] for e in self.events("logged") if e["event"] == "failure"), 1)

    def test_exit_codes_2_and_4_are_not_restarted(self):
        error = self.fail_with(2, ["model.widht", "width"], "run", "--nproc-per-node", 2, *TRAIN, "--model.widht=3")
        self.assertNotIn("restart after", error)
        for code in (2, 4):
            result = self.run_program("run", "--log-dir", f"l{code}", "--", "sh", "-c", f"exit {code}")
            self.assertEqual(result.returncode, code)

    def test_what_cannot_be_is_refused_in_one_line(self):
        (self.folder / "weak").write_text("a token that others can read\n")
        (self.folder / "weak").chmod(0o644)
        with socket.create_server(("127.0.0.1", 0)) as another:  # not the next one, which the kernel gives out next
            free = another.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for code, words, arguments in (
                    (2, ["--nnodes", "--rdzv-endpoint"], ["--nnodes", "2", "--", "true"]),
                    (2, ["--nnodes", "3:2", "2:4"], ["--nnodes", "3:2", "--", "true"]),
                    (2, ["--nproc-per-node", "none", "auto"], ["--nproc-per-node", "none", "--", "true"]),
                    (2, ["cannot start /nowhere/program"], ["--log-dir", "l", "--", "/nowhere/program"]),
                    (2, ["rank", "kll"], ["--inject", "kll rank=1", "--", "true"]),
                    (2, ["hang"], ["--policy", "hang=dance", "--", "true"]),
                    (2, ["port", "in use"],
                     ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", f"127.0.0.1:{port}", "--", "true"]),
                    (2, ["does not resolve"],
                     ["--nnodes", "2", "--rdzv-endpoint", "no.such.host.invalid:29400", "--", "true"]),
                    (3, ["1 of 2 hosts came within 1 s"],
                     ["--nnodes", "2", "--join-timeout", "1", "--rdzv-endpoint", f"127.0.0.1:{free}", "--log-dir",
                      "l", "--", "true"])):
                self.fail_with(code, words, "run", *arguments)

    def test_agents_need_the_same_token(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
        arguments = ["run", "--nnodes", "2", "--rdzv-endpoint", endpoint, "--log-dir", "l", "--", "true"]
        leader = self.start(*arguments, environment={"TRIREME_TOKEN": "three banks of oars"})
        time.sleep(0.3)
        result = self.run_program(*arguments[:5], "--node-rank", "1", *arguments[5:],
                                  environment={"TRIREME_TOKEN": "another bank of oars"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("token is a different one", result.stderr)
        self.assertIsNone(leader.poll())


if __name__ == "__main__":
    unittest.main()
