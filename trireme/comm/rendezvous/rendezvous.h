// How the ranks of a job find each other and make the world's communicator.
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
  // Gets a line about connections that rank 0's store has refused. Called from another thread, and
  // rarely even when there are many refusals (store_server.h).
  std::function<void(const std::string& line)> on_refused = nullptr;
  // Ends a meeting that is not complete; null: nothing does. Give it to the groups' options too.
  std::shared_ptr<Cancellation> cancellation = nullptr;
};

// The job's store, and what the ranks agree on through it. Rank 0 serves a TCP store, on the
// store's own address only (store_server.h). Ranks prove that they know its token, which is
// required when other hosts can reach the store (job_token). If the launcher serves the store, as
// torchrun's agent does, it is libtorch's store, which has no token.
class Rendezvous {
 public:
  explicit Rendezvous(WorldInfo info, RendezvousOptions options = {});
  ~Rendezvous();
  Rendezvous(Rendezvous&&) noexcept;

  // Joins the store at the first call.
  // Collective: all ranks of the job; the others wait for rank 0
  // Throws:     ConfigError (no store known, unusable address or file, missing or wrong token, port
  //             in use), CommError (the store never answered)
  c10::intrusive_ptr<c10d::Store> store();

  // A name that all ranks get and that no other job has. It is random, except with transport mpi:
  // its ranks meet without a store and use mpirun's name.
  // Collective: all ranks of the job
  // Throws:     as store()
  std::string job(const std::string& transport);

  // The address by which ranks on other hosts reach this one: of the interface that the launcher
  // names, or the one towards rank 0. Empty when the ranks have met without a network.
  // Throws: ConfigError, see network_interface.h
  std::string address() const;

  // The world's group over `transport`, as connect_world makes it. Make the next one only after the
  // last is complete.
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
//   nccl          the ranks' current CUDA devices; takes only their tensors (nccl_group.h)
//   cuda-ipc      all ranks share a host and a GPU; takes only that GPU's tensors
//                 (device/cuda_ipc_group.h)
//   mpi           all ranks were started by mpirun (mpi_group.h)
// Ranks find out who shares a host by exchanging identities over the store (host_identity.h). It
// also gives their shared memory a random name. auto and shm need no store when there is none, or
// when this program started all ranks under a random name.
// Collective: all ranks of the job
// Throws:     ConfigError when the transport is unknown or cannot connect these ranks; CommError
//             when a rank never comes; what Rendezvous::store throws
std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options = {});

// A description of a group's transport for people: "shared memory", "gloo over eth0 (10.0.0.1)",
// "hierarchical(shared memory, gloo over eth0 (10.0.0.1))".
std::string transport_of(const Communicator& group);

}  // namespace trireme::comm
