// A job's store whose waits end when the rank has to leave the job.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "trireme/comm/cancellation.h"

namespace trireme::comm::inline internal {

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

}  // namespace trireme::comm::inline internal
