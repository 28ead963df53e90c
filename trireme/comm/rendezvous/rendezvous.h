// How the ranks of a job find each other, and with that the world's communicator.
#pragma once

#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

// Joins the job's store, libtorch's TCPStore or FileStore; rank 0 serves a TCPStore unless the
// launcher does. Its keys are this job's alone.
// Collective: all ranks of the job; the others wait for rank 0
// Throws:     ConfigError (no store known, port in use), CommError (it never answered)
c10::intrusive_ptr<c10d::Store> connect_store(const WorldInfo& info,
                                              std::chrono::milliseconds timeout = kDefaultTimeout);

// The world's group over `transport`:
//   auto          shm when all ranks share a host, else hierarchical
//   shm           all ranks share a host
//   gloo          TCP between all ranks, on any hosts
//   hierarchical  shm within each host, gloo across them
//   nccl          the ranks' current CUDA devices, whose tensors alone it takes (nccl_group.h)
//   mpi           all ranks were started by mpirun (mpi_group.h)
// Who shares a host is found by exchanging identities over the store (host_identity.h). Without a
// store, or when the launcher started all ranks here under one name, auto and shm need none.
// Collective: all ranks of the job
// Throws:     ConfigError when the transport is unknown or cannot connect these ranks; CommError
//             when a rank never comes
std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options = {});

// What a group runs on, for people: "shared memory", "gloo over eth0 (10.0.0.1)",
// "hierarchical(shared memory, gloo over eth0 (10.0.0.1))".
std::string transport_of(const Communicator& group);

}  // namespace trireme::comm
