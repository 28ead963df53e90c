// Joins or serves the store that a WorldInfo names, and ends its waits when the rank has to leave
// the job.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "trireme/comm/cancellation.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

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

// A job's store whose waits end when the rank has to leave the job.
// Thread safe as far as the store is. Waits in slices, and throws CommError within a slice of
// cancel(); other calls throw when they begin after it.
class CancellableStore : public c10d::PrefixStore {
 public:
  CancellableStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store,
                   std::shared_ptr<Cancellation> cancellation);

  using c10d::PrefixStore::compareSet;
  using c10d::PrefixStore::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;

 private:
  const std::shared_ptr<Cancellation> cancellation_;
};

}  // namespace trireme::comm
