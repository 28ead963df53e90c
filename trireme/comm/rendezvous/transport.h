// The transports over which the ranks of a job can meet.
#pragma once

#include "trireme/base/choice.h"

namespace trireme::comm::inline internal {

enum class Transport {
  kAuto,          // shared memory on one host, hierarchical over several
  kShm,           // shared memory; one host
  kGloo,          // libtorch's Gloo
  kHierarchical,  // shared memory within each host, Gloo between hosts
  kNccl,          // libtorch's NCCL; ranks with a GPU
  kMpi,           // Open MPI; started by mpirun
};
inline constexpr Choice<Transport> kTransports[] = {
    {"auto", Transport::kAuto}, {"shm", Transport::kShm},
    {"gloo", Transport::kGloo}, {"hierarchical", Transport::kHierarchical},
    {"nccl", Transport::kNccl}, {"mpi", Transport::kMpi}};

}  // namespace trireme::comm::inline internal
