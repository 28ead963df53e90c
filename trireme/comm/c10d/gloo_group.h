// Ranks on any hosts, over TCP: libtorch's own Gloo as a MessageChannel.
#pragma once

#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/c10d/network_interface.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

class Cancellation;

struct GlooOptions {
  std::string name = "world";                            // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;   // for operations that set none
  NetworkInterface interface;                            // what peers connect to
  GroupRecorder recorder = {};                           // records this rank's calls
  std::shared_ptr<Cancellation> cancellation = nullptr;  // as in GroupOptions
};

// False when this build has no Gloo (TRIREME_WITH_GLOO, which needs libgloo-dev's headers).
bool has_gloo();

// Throws: ConfigError without Gloo, or when the interface cannot be used; CommError when the ranks
//         do not find each other within the timeout
// Collective: all `size` ranks
std::unique_ptr<Communicator> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const GlooOptions& options);

}  // namespace trireme::comm
