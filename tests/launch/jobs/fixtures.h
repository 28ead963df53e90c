// Environments of real and documented jobs: fixtures/NAME.env has a variable a line.
#pragma once

#include <string>

#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch {

// The variables that name files (PBS_NODEFILE, LSB_DJOB_HOSTFILE, mpirun's folder) name fixtures.
Variables fixture(const std::string& name);

}  // namespace trireme::launch
