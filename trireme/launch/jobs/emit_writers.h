// One writer per scheduler, and what they share. emit_job() has checked the options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/jobs/emit.h"

namespace trireme::launch::inline internal {

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

// Where agents meet in containers, which have ports of their own.
inline constexpr int kContainerPort = 29400;

}  // namespace trireme::launch::inline internal
