// How the ranks of a job find each other: torchrun's variables, and with them the world's
// communicator.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/shared_communicator.h"

namespace trireme::comm {

struct WorldInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string job;  // the same on all ranks, unique on the host
};

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, and TRIREME_JOB or else MASTER_ADDR and
// MASTER_PORT, which name a job of torchrun's.
// Throws: ConfigError that names the variable, its value and what is expected
WorldInfo world_info();

// transport: "auto", "shm" or "mpi".
// Collective: all ranks of the job
// Throws:     ConfigError when the job spans several hosts or the transport is unknown
std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options = {});

}  // namespace trireme::comm
