#!/usr/bin/env python3
"""The files for schedulers, read by the shell and by YAML, and the batch scripts run.

TRIREME_JOB_TOOL: the program that writes them (jobs/job_tool.cc). PBS and LSF cannot be installed here: commands of
this file stand in for pbsdsh and blaunch, and do what their manuals say.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import yaml

TOOL = os.environ["TRIREME_JOB_TOOL"]
HOSTILE = ["it's $HOME", "$(touch x)", "`touch x`", 'a"b\\c', "a;touch x", "é \u2028", "{x}", "#", "- a: b", "~", "*", "$$(X)"]

# Prints its arguments, one a line, into a file of its own.
PROGRAM = """#!/bin/bash
printf '%s\\n' "$@" >"$ARGUMENTS/$(date +%s%N).$$"
if [[ -n ${SAVES-} ]]; then
  saved=
  trap 'sleep 1; touch "$ARGUMENTS/../saved.$$"; saved=1' TERM
  touch "$ARGUMENTS/../ready.$$"
  while [[ -z $saved ]]; do sleep 0.05; done
  exit 3
fi
exit ${CODE:-0}
"""
# pbsdsh -n INDEX -- PROGRAM ARGUMENTS: runs it in the home folder, with hardly any variables. LOST: the host that is
# lost. A signal it passes on, and ends.
PBSDSH = """#!/bin/bash
[[ $1 == -n && $3 == -- ]] || exit 99
[[ ${LOST-} == $2 ]] && exit 255
shift 3
cd / || exit 99
env -i PBS_JOBID="$PBS_JOBID" ARGUMENTS="$ARGUMENTS" CODE="${CODE-}" SAVES="${SAVES-}" "$@" &
trap 'pkill -TERM -P $!; exit 1' TERM
wait $!
"""
# blaunch -z "HOST ..." WORDS: on each host a shell gets the words joined with blanks.
BLAUNCH = """#!/bin/bash
[[ $1 == -z ]] || exit 99
hosts=$2
shift 2
for host in $hosts; do
  [[ ${LOST-} == $host ]] && exit 255
  sh -c "$*" || code=$?
done
exit ${code:-0}
"""


def emit(system, *settings, overrides=()):
    return subprocess.run([TOOL, "emit", system, *settings, "--", *overrides], check=True, capture_output=True,
                          text=True).stdout


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trireme-emit-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "arguments").mkdir()
        (self.folder / "bin").mkdir()
        for name, text in {"trireme": PROGRAM, "pbsdsh": PBSDSH, "blaunch": BLAUNCH}.items():
            path = self.folder / "bin" / name
            path.write_text(text)
            path.chmod(0o755)
        (self.folder / "token").write_text("0123456789abcdef")

    def environment(self):
        return {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.folder), "USER": "galley",
                "ARGUMENTS": f"{self.folder}/arguments", "TRIREME_TOKEN_FILE": f"{self.folder}/token"}

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not come")
            time.sleep(0.05)

    def run_script(self, text, **variables):
        """Runs the script; returns its result and the arguments of each agent that it started."""
        result = subprocess.run(["bash"], input=text, cwd=self.folder, env={**self.environment(), **variables},
                                capture_output=True, text=True, timeout=60)
        agents = [path.read_text().split("\n")[:-1] for path in sorted((self.folder / "arguments").iterdir())]
        return result, agents

    def test_shells_read_every_script(self):
        for system in ("slurm", "pbs", "lsf"):
            for settings in ([], ["nnodes=3", "min_nnodes=2", "time=3600", "cpus=8", "gpus=4", "image=a b.sif"]):
                text = emit(system, *settings, overrides=HOSTILE)
                result = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
                self.assertEqual((result.returncode, result.stderr), (0, ""), system)

    def test_directives_have_their_schedulers_form(self):
        forms = {"slurm": r"#SBATCH --[a-z-]+(=[\w:.@,/+-]+)?", "pbs": r"#PBS -[lNqArj] [\w:=.@,/+-]+",
                 "lsf": r'#BSUB -([nJWqPo] [\w:.@%,/+-]+|r|R "span\[ptile=\d+\]"|gpu "num=\d+/host")'}
        for system, form in forms.items():
            text = emit(system, "nnodes=3", "min_nnodes=2", "time=3600", "cpus=8", "gpus=4", "partition=a.b",
                        "account=c-d")
            lines = text.split("\n")
            directives = [i for i, line in enumerate(lines) if re.match(r"#(SBATCH|PBS|BSUB)", line)]
            for i in directives:
                self.assertRegex(lines[i], f"^{form}$")
            # A scheduler stops reading at the first command.
            self.assertTrue(all(line.startswith("#") for line in lines[:directives[-1]]), system)

    def test_pbs_tells_every_agent_its_place(self):
        nodes = self.folder / "nodes"
        nodes.write_text("n1.x\nn2.x\n")
        work = self.folder / "it's $work"
        work.mkdir()
        variables = {"PBS_NODEFILE": str(nodes), "PBS_JOBID": "1042[7].pbs", "PBS_ARRAY_INDEX": "7",
                     "PBS_O_WORKDIR": str(work)}
        text = emit("pbs", "nnodes=2", "nproc=4", "time=3600", overrides=HOSTILE)
        result, agents = self.run_script(text, **variables)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(agent[agent.index("--node-rank") + 1] for agent in agents), ["0", "1"])
        for agent in agents:
            self.assertEqual(agent[:5], ["run", "--nproc-per-node", "4", "--nnodes", "2"])
            self.assertEqual(agent[7:9], ["--rdzv-endpoint", f"n1.x:{16384 + 1049}"])
            self.assertRegex(agent[10], r"^test \$\(date \+%s\) -ge \d+$")
            self.assertEqual(agent[11:], ["--", "trireme", "train", "run.toml", *HOSTILE])
        result, _ = self.run_script(text, CODE="3", **variables)
        self.assertEqual(result.returncode, 3)
        nodes.write_text("n1.x\n")
        result, _ = self.run_script(text, **variables)
        self.assertEqual(result.returncode, 2)
        self.assertIn("has 1 lines; expected 2 hosts", result.stderr)

    def test_lsf_starts_an_agent_on_every_host(self):
        hosts = self.folder / "hosts"
        hosts.write_text("a\na\nb\nb\n")
        for settings, notice in ([], 0), (["time=3600"], 2):
            result, agents = self.run_script(emit("lsf", "nnodes=2", "nproc=2", *settings, overrides=HOSTILE),
                                             LSB_DJOB_HOSTFILE=str(hosts), LSB_JOBID="801")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for agent in agents[-2:]:
                self.assertEqual(agent[:3], ["run", "--nproc-per-node", "2"])
                self.assertEqual(agent[3 + notice:], ["--", "trireme", "train", "run.toml", *HOSTILE])
            self.assertEqual([path.name for path in self.folder.glob(".trireme-*")], [])
        self.assertEqual(len(agents), 4)
        result, _ = self.run_script(emit("lsf", "nnodes=3"), LSB_DJOB_HOSTFILE=str(hosts), LSB_JOBID="801")
        self.assertIn("has 2 hosts; expected 3", result.stderr)

    def test_a_lost_host_does_not_fail_a_job_that_others_finish(self):
        (self.folder / "nodes").write_text("a\nb\n")
        variables = {"PBS_NODEFILE": f"{self.folder}/nodes", "PBS_JOBID": "1042.pbs", "PBS_O_WORKDIR": str(self.folder),
                     "LSB_DJOB_HOSTFILE": f"{self.folder}/nodes", "LSB_JOBID": "801"}
        for system, first, last in (("pbs", "0", "1"), ("lsf", "a", "b")):
            text = emit(system, "nnodes=2", "min_nnodes=1")
            for lost in (first, last):
                result, _ = self.run_script(text, LOST=lost, **variables)
                self.assertEqual((result.returncode, result.stderr), (0, ""), (system, lost))
            result, _ = self.run_script(text, LOST=last, CODE="4", **variables)
            self.assertEqual(result.returncode, 4, system)
            result, _ = self.run_script(text, LOST=first, CODE="4", **variables)
            self.assertEqual(result.returncode, 255, system)
        self.assertEqual(list(self.folder.glob(".trireme-codes*")), [])

    def test_a_signal_to_the_job_leaves_its_agents_time_to_save(self):
        (self.folder / "nodes").write_text("a\nb\n")
        variables = {"PBS_NODEFILE": f"{self.folder}/nodes", "PBS_JOBID": "1042.pbs", "PBS_O_WORKDIR": str(self.folder),
                     "LSB_DJOB_HOSTFILE": f"{self.folder}/nodes", "LSB_JOBID": "801", "SAVES": "1"}
        for system in ("pbs", "lsf"):
            script = subprocess.Popen(["bash", "-c", emit(system, "nnodes=2")], cwd=self.folder,
                                      env={**self.environment(), **variables}, start_new_session=True)
            self.wait_for(lambda: len(list(self.folder.glob("ready.*"))) == 2)
            os.killpg(script.pid, signal.SIGTERM)
            self.assertEqual(script.wait(timeout=60), 3, system)
            self.assertEqual(len(list(self.folder.glob("saved.*"))), 2, system)
            for path in (*self.folder.glob("ready.*"), *self.folder.glob("saved.*")):
                path.unlink()

    def test_scripts_say_that_the_token_is_missing(self):
        for system in ("slurm", "pbs", "lsf"):
            result, agents = self.run_script(emit(system, "nnodes=2"), TRIREME_TOKEN_FILE="/nowhere",
                                             PBS_O_WORKDIR=str(self.folder))
            self.assertEqual((result.returncode, agents), (2, []), system)
            self.assertIn("/nowhere is missing; make it: (umask 077;", result.stderr)


class Manifests(unittest.TestCase):
    def test_a_configs_name_stays_in_its_comment(self):
        for mark in "\u2028\u2029\ufeff\u202e":
            for system, documents in {"kubernetes": 2, "kubeflow": 1, "compose": 1}.items():
                text = emit(system, "image=i", f"config=a{mark}apiVersion: evil{mark}---{mark}.toml")
                self.assertTrue(text.isascii(), system)
                self.assertEqual(len(list(yaml.safe_load_all(text))), documents, system)
                self.assertNotIn("evil", [each.get("apiVersion") for each in yaml.safe_load_all(text)])

    # What Kubernetes and Compose make of a string: `$$` is a dollar.
    def words(self, command):
        return [word.replace("$$", "$") for word in command]

    def test_yaml_reads_hostile_words_as_they_are(self):
        expected = ["trireme", "run", "--nproc-per-node", "1", "--", "trireme", "train", "it's: #$x.toml", *HOSTILE]
        settings = ["image=a b", "name=null", "config=it's: #$x.toml", "nnodes=2"]
        service, job = yaml.safe_load_all(emit("kubernetes", *settings, overrides=HOSTILE))
        self.assertEqual((service["metadata"]["name"], job["metadata"]["name"]), ("null", "null"))
        container = job["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(self.words(container["command"]), expected)
        self.assertEqual(container["image"], "a b")
        train_job = yaml.safe_load(emit("kubeflow", *settings, overrides=HOSTILE))
        self.assertEqual(self.words(train_job["spec"]["trainer"]["command"]), expected)
        services = yaml.safe_load(emit("compose", *settings, overrides=HOSTILE))["services"]
        self.assertEqual(list(services), ["host-0", "host-1"])
        self.assertEqual(self.words(services["host-1"]["entrypoint"]), expected)

    def test_pods_read_their_job_from_what_the_manifest_sets(self):
        _, job = yaml.safe_load_all(emit("kubernetes", "image=i", "name=galley", "nnodes=3", "min_nnodes=2"))
        variables = {entry["name"]: entry["value"] for entry in job["spec"]["template"]["spec"]["containers"][0]["env"]
                     if "value" in entry}
        result = subprocess.run([TOOL, "hosts"], env={**variables, "JOB_COMPLETION_INDEX": "2"}, check=True,
                                capture_output=True, text=True)
        read = yaml.safe_load(result.stdout)
        self.assertEqual((read["node_rank"], read["head"], read["port"]), (2, "galley-0.galley", 29400))
        self.assertEqual([host["name"] for host in read["hosts"]], [f"galley-{i}.galley" for i in range(3)])

    def test_services_read_their_job_from_what_compose_sets(self):
        services = yaml.safe_load(emit("compose", "image=i", "nnodes=2"))["services"]
        for rank, (name, service) in enumerate(services.items()):
            variables = {key: value for key, value in service["environment"].items() if key != "TRIREME_TOKEN"}
            result = subprocess.run([TOOL, "hosts"], env=variables, check=True, capture_output=True, text=True)
            read = yaml.safe_load(result.stdout)
            self.assertEqual((read["node_rank"], read["head"]), (rank, "host-0"))
            self.assertEqual(read["hosts"][rank]["name"], name)


if __name__ == "__main__":
    unittest.main()
