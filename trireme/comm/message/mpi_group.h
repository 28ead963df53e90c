// Ranks as processes started by mpirun: the transport `mpi`, on Open MPI.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::comm {

// Whether this build has MPI.
bool has_mpi();

// The group of all ranks of MPI_COMM_WORLD. MPI only moves bytes (message_communicator.h), so the
// results have the same bits as with shm and thread. MPI's own reductions promise no order, may
// differ with size and number of ranks, and lack 16-bit floats.
// The first call initialises MPI with MPI_THREAD_MULTIPLE, unless the program has done so. Whoever
// initialised MPI finalises it: here when the process ends with exit code 0. With another exit code
// MPI is not finalised, so mpirun ends the whole job.
// When a rank dies, mpirun kills the others; unlike on other transports there is no CommError. A
// rank that is stopped or late causes a CommError after the timeout.
// Collective: every rank of the job
// Throws:     ConfigError when this build has no MPI, when MPI has no MPI_THREAD_MULTIPLE, or when
//             it was finalised
std::unique_ptr<Communicator> make_mpi_group(const GroupOptions& options = {});

}  // namespace trireme::comm
