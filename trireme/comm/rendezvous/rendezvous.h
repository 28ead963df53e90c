// How the ranks of a job find each other, and with that the world's communicator.
#pragma once

#include <functional>
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

struct RendezvousOptions {
  std::chrono::milliseconds timeout = kDefaultTimeout;
  // Hears on rank 0 which connections the store that it serves has refused: one line, from another
  // thread, and few however many there are (store_server.h).
  std::function<void(const std::string& line)> on_refused = nullptr;
};

// The job's store and what the ranks agree on over it. A TCP store is served by rank 0 on the
// store's own address alone (store_server.h): ranks prove that they have its token, which is
// required when more than this host can reach it (token.h). A launcher that serves the store
// itself, as torchrun's agent does, serves libtorch's, which knows no token.
class Rendezvous {
 public:
  explicit Rendezvous(WorldInfo info, RendezvousOptions options = {});
  ~Rendezvous();
  Rendezvous(Rendezvous&&) noexcept;

  // Joined at the first call.
  // Collective: all ranks of the job; the others wait for rank 0
  // Throws:     ConfigError (no store known, an address or a file that cannot be used, no token or
  //             a wrong one, port in use), CommError (it never answered)
  c10::intrusive_ptr<c10d::Store> store();

  // A name that all ranks get and no other job has: random, but for transport mpi, whose ranks meet
  // without a store and take mpirun's.
  // Collective: all ranks of the job
  // Throws:     as store()
  std::string job(const std::string& transport);

  // The world's group over `transport`, as connect_world makes it; one, or one after the other.
  std::unique_ptr<Communicator> connect(const std::string& transport,
                                        const GroupOptions& options = {});

 private:
  class State;
  std::unique_ptr<State> state_;
};

// The world's group over `transport`:
//   auto          shm when all ranks share a host, else hierarchical
//   shm           all ranks share a host
//   gloo          TCP between all ranks, on any hosts
//   hierarchical  shm within each host, gloo across them
//   nccl          the ranks' current CUDA devices, whose tensors alone it takes (nccl_group.h)
//   mpi           all ranks were started by mpirun (mpi_group.h)
// Who shares a host is found by exchanging identities over the store (host_identity.h), and their
// memory gets a random name there. Without a store, or when this program started all ranks here
// under a random name, auto and shm need none.
// Collective: all ranks of the job
// Throws:     ConfigError when the transport is unknown or cannot connect these ranks; CommError
//             when a rank never comes; what Rendezvous::store throws
std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options = {});

// What a group runs on, for people: "shared memory", "gloo over eth0 (10.0.0.1)",
// "hierarchical(shared memory, gloo over eth0 (10.0.0.1))".
std::string transport_of(const Communicator& group);

}  // namespace trireme::comm
