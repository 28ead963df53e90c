// The group of the ranks that meet at a c10d::Store, over one of the transports of a job. The ranks
// find out who shares memory by asking each other, never from the group's size or the environment,
// and agree on a name that nobody else has, whatever earlier users left at the store.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/base/choice.h"
#include "trireme/comm/c10d/gloo_group.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

// The transports over which the ranks of a job can meet.
enum class Transport {
  kAuto,          // shared memory on one host, hierarchical over several
  kShm,           // shared memory; one host
  kGloo,          // libtorch's Gloo
  kHierarchical,  // shared memory within each host, Gloo between hosts
  kNccl,          // libtorch's NCCL; ranks with a GPU
  kCudaIpc,       // memory of a GPU that the ranks of one host share
  kMpi,           // Open MPI; started by mpirun
};
inline constexpr Choice<Transport> kTransports[] = {
    {"auto", Transport::kAuto}, {"shm", Transport::kShm},
    {"gloo", Transport::kGloo}, {"hierarchical", Transport::kHierarchical},
    {"nccl", Transport::kNccl}, {"cuda-ipc", Transport::kCudaIpc},
    {"mpi", Transport::kMpi}};

struct StoreGroupOptions {
  Transport transport = Transport::kAuto;  // any but kMpi
  // The interface that other hosts connect to; empty: the one that routes to `host`.
  std::string interface = {};
  // The store's host; empty: taken from the c10d::TCPStore.
  std::string host = {};
  // Makes the group across hosts; null: make_gloo_group, if this build has it.
  std::function<std::unique_ptr<Communicator>(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const GlooOptions& options)>
      make_gloo = nullptr;
};

// A store serves one group at a time: the next call must not begin before the group is joined. What
// other jobs or earlier groups left in the store has no effect (agree_on_session). The group's
// memory gets a name that no other group has.
// Comm:       through the store: a few keys per rank, read by all
// Collective: all `size` ranks
// Throws:     ConfigError when the transport cannot connect these ranks; CommError when a rank
//             never came; what `store` throws
std::unique_ptr<Communicator> make_store_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size, const GroupOptions& options,
                                               const StoreGroupOptions& how = {});

// Identifies the ranks that meet at a store now: a random name that all these ranks get and nobody
// else has, for names in /dev/shm and as a prefix of keys. Keys that a crashed job or an earlier
// group left in the store have no effect: each rank draws a new number, and rank 0 accepts only
// ranks that answer it.
// Comm:       through the store: three keys per rank
// Collective: all `size` ranks; a call must not begin before the previous one has ended on rank 0
// Throws:     CommError with the ranks that did not come within `timeout`; ConfigError when two
//             processes are the same rank
std::string agree_on_session(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                             std::chrono::milliseconds timeout);

}  // namespace trireme::comm
