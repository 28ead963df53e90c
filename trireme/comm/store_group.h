// The group of the ranks that meet at a c10d::Store: who they are and which memory they share is
// found by asking, never from the group's size or the environment.
#pragma once

#include <memory>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/shared_communicator.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

// One group a store, or one after the other: a later one must not begin before the former is joined.
// Comm:       through the store: two keys a rank, read by all
// Collective: all `size` ranks
// Throws:     ConfigError when the ranks do not share one host's memory, which this build needs;
//             CommError when a rank never came; what `store` throws
std::unique_ptr<Communicator> make_store_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size, const GroupOptions& options);

}  // namespace trireme::comm
