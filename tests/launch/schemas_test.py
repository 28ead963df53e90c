#!/usr/bin/env python3
"""Manifests against the published schemas of Kubernetes and Kubeflow, and a Compose file read by docker-compose.

TRIREME_JOB_TOOL: jobs/job_tool.cc. Needs what `tools/setup.sh clusters` installs.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models

TOOL = os.environ["TRIREME_JOB_TOOL"]
SETTINGS = {"plain": ["image=reg/trireme:1"],
            "all": ["image=reg/trireme:1", "name=galley", "nnodes=3", "min_nnodes=2", "nproc=4", "time=3600", "cpus=8",
                    "gpus=4", "notice=60"]}


def emit(system, *settings):
    return subprocess.run([TOOL, "emit", system, *settings, "--", "--data.path=it's ${HOME} $(X)"], check=True,
                          capture_output=True, text=True).stdout


class Schemas(unittest.TestCase):
    def test_kubernetes_takes_the_job_and_its_service(self):
        for settings in (*SETTINGS.values(), [*SETTINGS["all"], "claim=runs"]):
            service, job = yaml.safe_load_all(emit("kubernetes", *settings))
            for version in ("1.31", "1.37"):  # podFailurePolicy is stable from 1.31 on
                for resource in (service, job):
                    kubernetes_validate.validate(resource, version, strict=True)
        job["spec"]["completions"] = "three"
        with self.assertRaises(kubernetes_validate.ValidationError):  # the test can fail
            kubernetes_validate.validate(job, "1.37", strict=True)

    def test_the_service_finds_the_jobs_pods(self):
        service, job = yaml.safe_load_all(emit("kubernetes", *SETTINGS["all"]))
        # Kubernetes itself gives pods this label, and the name JOB-INDEX.SUBDOMAIN.
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": job["metadata"]["name"]})
        self.assertEqual(job["spec"]["template"]["spec"]["subdomain"], service["metadata"]["name"])

    def test_kubeflow_takes_the_train_job(self):
        for settings in SETTINGS.values():
            train_job = yaml.safe_load(emit("kubeflow", *settings))
            # Keys that the model does not know do not come back.
            self.assertEqual(models.TrainerV1alpha1TrainJob.from_dict(train_job).to_dict(), train_job)
        train_job["spec"]["trainer"]["numNodes"] = "three"
        with self.assertRaises(ValueError):  # the test can fail
            models.TrainerV1alpha1TrainJob.from_dict(train_job)

    def test_compose_reads_the_services(self):
        for settings in SETTINGS.values():
            with tempfile.TemporaryDirectory(prefix="trireme-compose-") as folder:
                path = Path(folder) / "compose.yaml"
                path.write_text(emit("compose", *settings))
                command = ["docker-compose", "-f", str(path), "config"]
                environment = {"PATH": os.environ["PATH"], "HOME": folder}
                result = subprocess.run(command, env={**environment, "TRIREME_TOKEN": "0123456789abcdef"},
                                        capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stderr)
                # It prints the doubled dollar that it reads as one.
                words = yaml.safe_load(result.stdout)["services"]["host-0"]["entrypoint"]
                self.assertEqual(words[-1].replace("$$", "$"), "--data.path=it's ${HOME} $(X)")
                result = subprocess.run(command, env=environment, capture_output=True, text=True)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn("TRIREME_TOKEN", result.stderr)

    def test_hadolint_accepts_the_dockerfile(self):
        dockerfile = Path(__file__).parents[2] / "tools" / "container" / "Dockerfile"
        hadolint = str(Path(sys.executable).parent / "hadolint")
        result = subprocess.run([hadolint, str(dockerfile)], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
