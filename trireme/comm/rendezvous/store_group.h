// The group of the ranks that meet at a c10d::Store. The ranks find out who shares memory by asking
// each other, never from the group's size or the environment.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/c10d/gloo_group.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"
#include "trireme/comm/rendezvous/transport.h"

namespace c10d {
class Store;
}

namespace trireme::comm::inline internal {

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
// other jobs or earlier groups left in the store has no effect (session.h). The group's memory gets
// a name that no other group has.
// Comm:       through the store: a few keys per rank, read by all
// Collective: all `size` ranks
// Throws:     ConfigError when the transport cannot connect these ranks; CommError when a rank
//             never came; what `store` throws
std::unique_ptr<Communicator> make_store_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size, const GroupOptions& options,
                                               const StoreGroupOptions& how = {});

}  // namespace trireme::comm::inline internal
