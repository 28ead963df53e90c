// The group of the ranks that meet at a c10d::Store: who they are and which memory they share is
// found by asking, never from the group's size or the environment.
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

namespace trireme::comm {

struct StoreGroupOptions {
  Transport transport = Transport::kAuto;  // any but kMpi
  // What the other hosts connect to; empty: the interface that routes to `host`.
  std::string interface = {};
  // Where the store is; empty: as a c10d::TCPStore says.
  std::string host = {};
  // Makes the group across hosts; null: make_gloo_group, where the build has it.
  std::function<std::unique_ptr<Communicator>(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const GlooOptions& options)>
      make_gloo = nullptr;
};

// One group a store, or one after the other: a later one must not begin before the former is
// joined. What other jobs or earlier groups left in the store changes nothing (session.h), and its
// memory has a name that no other group has.
// Comm:       through the store: a few keys a rank, read by all
// Collective: all `size` ranks
// Throws:     ConfigError when the transport cannot connect these ranks; CommError when a rank
//             never came; what `store` throws
std::unique_ptr<Communicator> make_store_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size, const GroupOptions& options,
                                               const StoreGroupOptions& how = {});

}  // namespace trireme::comm
