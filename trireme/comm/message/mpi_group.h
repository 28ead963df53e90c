// Ranks as the processes that mpirun started: the transport `mpi`, on Open MPI.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::comm {

// Whether this build has MPI.
bool has_mpi();

// The group of all ranks of MPI_COMM_WORLD. MPI moves bytes only (message_communicator.h): its own
// reductions promise no order, may differ with size and number of ranks, and have no 16-bit floats,
// while these give the bits of shm and thread.
// MPI is initialised at the first call, with MPI_THREAD_MULTIPLE, unless the program has done so;
// whoever initialised it finalises it: here when the process ends with exit code 0. With another
// code it is left as it is, upon which mpirun ends the whole job.
// When a rank dies, mpirun kills the others: unlike on other transports there is no CommError. A
// rank that is stopped or late is a CommError after the timeout.
// Collective: every rank of the job
// Throws:     ConfigError when this build has no MPI, or MPI no MPI_THREAD_MULTIPLE or was
//             finalised
std::unique_ptr<Communicator> make_mpi_group(const GroupOptions& options = {});

}  // namespace trireme::comm
