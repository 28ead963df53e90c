// Writes the file with which a scheduler starts a training run: one `trireme run` per host, which
// reads its hosts from the job (job_hosts.h). Only writes text; submits nothing.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"

namespace trireme::launch {

enum class JobSystem { kSlurm, kPbs, kLsf, kKubernetes, kKubeflow, kCompose };

inline constexpr Choice<JobSystem> kJobSystems[] = {
    {"slurm", JobSystem::kSlurm},       {"pbs", JobSystem::kPbs},
    {"lsf", JobSystem::kLsf},           {"kubernetes", JobSystem::kKubernetes},
    {"kubeflow", JobSystem::kKubeflow}, {"compose", JobSystem::kCompose}};

struct JobOptions {
  JobSystem system = JobSystem::kSlurm;
  std::string config = {};                  // path, as the job's hosts see it
  std::vector<std::string> overrides = {};  // --section.key=value, after the config
  std::string name = "trireme";
  int min_nnodes = 1;  // fewer hosts than nnodes: the run goes on without those that it loses
  int nnodes = 1;
  int nproc_per_node = 1;
  int cpus_per_node =
      0;  // 0: whole hosts (Slurm, PBS), no limit (containers), nproc_per_node (LSF)
  int gpus_per_node = 0;
  std::chrono::seconds time{0};      // the job's limit; 0: the scheduler's
  std::chrono::seconds notice{120};  // from the notice to the end of the job
  std::string partition = {};        // Slurm's partition, the queue of PBS and LSF
  std::string account = {};          // LSF's project
  // The container image: needed by Kubernetes, Kubeflow and Compose. On the other systems an image
  // of Apptainer, "": none.
  std::string image = {};
  // Kubernetes: a persistent volume claim that all pods mount at /work, where they start; "": none.
  std::string claim = {};
  std::string program = "trireme";  // as the job's hosts find it
};

// The file's text.
// Throws: ConfigError when an option cannot be written safely or the system cannot do what it asks:
//         a name that the system does not allow, control characters, numbers out of range, no image
std::string emit_job(const JobOptions& options);

// One writer per scheduler, and what they share. emit_job() has checked the options.

std::string emit_slurm(const JobOptions& options);
std::string emit_pbs(const JobOptions& options);
std::string emit_lsf(const JobOptions& options);
std::string emit_kubernetes(const JobOptions& options);
std::string emit_kubeflow(const JobOptions& options);
std::string emit_compose(const JobOptions& options);

// The file's first lines: what it starts, and with which command.
std::string job_heading(const JobOptions& options, std::string_view start);

// "trireme run --nproc-per-node 4", with Apptainer before it if there is an image of it.
std::vector<std::string> agent_words(const JobOptions& options);
// "-- trireme train CONFIG --section.key=value".
std::vector<std::string> trained_words(const JobOptions& options);
// Both, of a container.
std::vector<std::string> container_words(const JobOptions& options);

// "2", or "2:4" when the run may go on with fewer hosts.
std::string nnodes_text(const JobOptions& options);

// The port where agents meet in containers, each of which has its own ports.
inline constexpr int kContainerPort = 29400;

}  // namespace trireme::launch
