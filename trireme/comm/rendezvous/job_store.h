// Joins or serves the store that a WorldInfo names.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "trireme/comm/cancellation.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"

namespace c10d {
class Store;
}

namespace trireme::comm::inline internal {

class StoreServer;

struct JobStore {
  c10::intrusive_ptr<c10d::Store> store;  // the keys are used by this job only
  std::shared_ptr<StoreServer> server;    // null when this process serves no store
  std::string host;                       // of a TCP store
};

struct JobStoreOptions {
  std::chrono::milliseconds timeout{};
  // As in RendezvousOptions (rendezvous.h).
  std::function<void(const std::string&)> on_refused = nullptr;
  std::shared_ptr<Cancellation> cancellation = nullptr;
};

// Collective: all ranks of the job; the others wait for rank 0
// Throws:     as Rendezvous::store (rendezvous.h)
JobStore join_job_store(const WorldInfo& info, const JobStoreOptions& options);

}  // namespace trireme::comm::inline internal
