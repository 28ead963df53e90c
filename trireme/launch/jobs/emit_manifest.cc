// Manifests of Kubernetes and Kubeflow, and the file of Docker Compose.
#include "trireme/base/error.h"
#include "trireme/launch/jobs/emit.h"
#include "trireme/launch/jobs/quoted.h"

namespace trireme::launch {
namespace {

// Lines of `text`, each behind `margin` blanks.
std::string indented(const std::string& text, size_t margin) {
  std::string result;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    result += std::string(margin, ' ') + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return result;
}

// Command that makes the secret by which pods recognise each other.
std::string secret_heading(const JobOptions& options) {
  return concat("# First make its secret:\n#   kubectl create secret generic ", options.name,
                "-token --from-literal=token=\"$(head -c 32 /dev/urandom | base64)\"\n");
}

std::string token_variable(const JobOptions& options) {
  return concat("- name: TRIREME_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: ",
                yaml_text(options.name + "-token"), "\n      key: token\n");
}

// "limits: ..." and the like; "" without limits.
std::string limits(const JobOptions& options) {
  std::string text;
  if (options.cpus_per_node > 0) text += concat("cpu: ", options.cpus_per_node, "\n");
  if (options.gpus_per_node > 0) text += concat("nvidia.com/gpu: ", options.gpus_per_node, "\n");
  return text.empty() ? "" : "limits:\n" + indented(text, 2);
}

// Workers of a pod share memory: 64 MiB, a container's own /dev/shm, are too few.
std::string volume_mounts(const JobOptions& options) {
  std::string text = "volumeMounts:\n- name: shared-memory\n  mountPath: /dev/shm\n";
  if (!options.claim.empty()) text += "- name: work\n  mountPath: /work\n";
  return text;
}

std::string volumes(const JobOptions& options) {
  std::string text = "volumes:\n- name: shared-memory\n  emptyDir:\n    medium: Memory\n";
  if (!options.claim.empty()) {
    text +=
        "- name: work\n  persistentVolumeClaim:\n    claimName: " + yaml_text(options.claim) + "\n";
  }
  return text;
}

// The variables of torchrun that job_hosts.h reads; JOB_COMPLETION_INDEX is Kubernetes' own.
std::string meeting_variables(const JobOptions& options, const std::string& head) {
  return concat("- name: PET_NNODES\n  value: \"", nnodes_text(options),
                "\"\n- name: PET_MASTER_ADDR\n  value: ", yaml_text(head),
                "\n- name: PET_MASTER_PORT\n  value: \"", kContainerPort, "\"\n");
}

std::string job_container(const JobOptions& options) {
  std::string text = "- name: trireme\n  image: " + yaml_text(options.image) + "\n";
  text += "  command: " + yaml_list(container_words(options)) + "\n";
  if (!options.claim.empty()) text += "  workingDir: /work\n";
  text += "  env:\n";
  // The first pod's name in the headless service: known before any pod runs.
  text += indented(meeting_variables(options, options.name + "-0." + options.name), 2);
  text += indented(token_variable(options), 2);
  if (const std::string most = limits(options); !most.empty()) {
    text += "  resources:\n" + indented(most, 4);
  }
  return text + indented(volume_mounts(options), 2);
}

}  // namespace

std::string emit_kubernetes(const JobOptions& options) {
  const std::string name = yaml_text(options.name);
  std::string text = job_heading(options, "kubectl apply -f FILE") + secret_heading(options);
  text += concat(R"(apiVersion: v1
kind: Service
metadata:
  name: )",
                 name, R"(
spec:
  # Headless: it only gives each pod a name, before the pod is ready.
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    batch.kubernetes.io/job-name: )",
                 name, R"(
---
apiVersion: batch/v1
kind: Job
metadata:
  name: )",
                 name, R"(
spec:
  completionMode: Indexed
  completions: )",
                 options.nnodes, R"(
  parallelism: )",
                 options.nnodes, R"(
  backoffLimit: )",
                 // A pod that is moved away does not count, so these are real failures.
                 8 * int64_t{options.nnodes}, "\n");
  if (options.time.count() > 0) {
    text += concat("  activeDeadlineSeconds: ", options.time.count(), "\n");
  }
  text += concat(R"(  podFailurePolicy:
    rules:
    # A pod that Kubernetes moves away does not count.
    - action: Ignore
      onPodConditions:
      - type: DisruptionTarget
        status: "True"
    # The user must fix it, or a checkpoint cannot be used: another start would end the same.
    - action: FailJob
      onExitCodes:
        operator: In
        values: [2, 4]
  template:
    spec:
      subdomain: )",
                 name, R"(
      restartPolicy: Never
      # From SIGTERM, which the agent takes as its notice, to SIGKILL.
      terminationGracePeriodSeconds: )",
                 options.notice.count(), R"(
      containers:
)");
  return text + indented(job_container(options), 6) + indented(volumes(options), 6);
}

std::string emit_kubeflow(const JobOptions& options) {
  std::string text = job_heading(options, "kubectl apply -f FILE") + secret_heading(options);
  text += concat(R"(apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: )",
                 yaml_text(options.name), R"(
spec:
)");
  if (options.time.count() > 0) {
    text += concat("  activeDeadlineSeconds: ", options.time.count(), "\n");
  }
  text += concat(
      // Kubeflow's runtime sets the variables of meeting_variables() itself.
      R"(  # The runtime that comes with Kubeflow Trainer. It starts the pods and sets PET_NNODES, PET_NODE_RANK,
  # PET_MASTER_ADDR and PET_MASTER_PORT. Workers of a pod share memory: a runtime of your own should mount an
  # emptyDir of medium Memory at /dev/shm.
  runtimeRef:
    name: torch-distributed
  trainer:
    image: )",
      yaml_text(options.image), R"(
    command: )",
      yaml_list(container_words(options)), R"(
    numNodes: )",
      options.nnodes, R"(
    numProcPerNode: )",
      options.nproc_per_node, R"(
    env:
)",
      indented(token_variable(options), 4));
  if (const std::string most = limits(options); !most.empty()) {
    text += "    resourcesPerNode:\n" + indented(most, 6);
  }
  return text;
}

std::string emit_compose(const JobOptions& options) {
  std::string text =
      job_heading(options, concat("docker compose -p ", options.name, " -f FILE up"));
  text +=
      "# Its services know each other by a token:\n#   export TRIREME_TOKEN=$(head -c 32 "
      "/dev/urandom | base64)\nservices:\n";
  for (int rank = 0; rank < options.nnodes; ++rank) {
    text +=
        concat("  host-", rank, ":\n    image: ", yaml_text(options.image), "\n    hostname: host-",
               rank, "\n    init: true\n    entrypoint: ", yaml_list(container_words(options)),
               "\n    environment:\n      PET_NNODES: \"", nnodes_text(options),
               "\"\n      PET_NODE_RANK: \"", rank,
               "\"\n      PET_MASTER_ADDR: host-0\n      PET_MASTER_PORT: \"", kContainerPort,
               "\"\n      TRIREME_TOKEN: \"${TRIREME_TOKEN:?set it as the first lines of this "
               "file say}\"\n    working_dir: /work\n    volumes:\n    - .:/work\n    "
               "shm_size: 4gb\n    stop_grace_period: ",
               options.notice.count(), "s\n");
    if (options.cpus_per_node > 0) text += concat("    cpus: ", options.cpus_per_node, "\n");
    if (options.gpus_per_node > 0) {
      text += concat(
          "    deploy:\n      resources:\n        reservations:\n          devices:\n"
          "          - driver: nvidia\n            count: ",
          options.gpus_per_node, "\n            capabilities: [gpu]\n");
    }
  }
  return text;
}

}  // namespace trireme::launch
