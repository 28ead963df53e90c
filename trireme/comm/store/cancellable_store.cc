#include "trireme/comm/store/cancellable_store.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace trireme::comm::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWaitSlice{100};
constexpr const char* kMeeting = "meeting the other ranks";

}  // namespace

CancellableStore::CancellableStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store,
                                   std::shared_ptr<Cancellation> cancellation)
    : c10d::PrefixStore(std::move(prefix), std::move(store)),
      cancellation_(std::move(cancellation)) {}

c10::intrusive_ptr<c10d::Store> CancellableStore::clone() {
  return c10::make_intrusive<CancellableStore>(prefix_, store_->clone(), cancellation_);
}

void CancellableStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  cancellation_->check(kMeeting);
  PrefixStore::set(key, value);
}

std::vector<uint8_t> CancellableStore::get(const std::string& key) {
  wait({key});
  return PrefixStore::get(key);
}

bool CancellableStore::check(const std::vector<std::string>& keys) {
  cancellation_->check(kMeeting);
  return PrefixStore::check(keys);
}

void CancellableStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void CancellableStore::wait(const std::vector<std::string>& keys,
                            const std::chrono::milliseconds& timeout) {
  const bool is_endless = timeout.count() <= 0;
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    cancellation_->check(kMeeting);
    const Clock::time_point begin = Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - begin);
    const bool is_last = !is_endless && left <= kWaitSlice;
    const std::chrono::milliseconds slice =
        is_last ? std::max(left, std::chrono::milliseconds(1)) : kWaitSlice;
    try {
      return PrefixStore::wait(keys, slice);
    } catch (const std::exception&) {
      // An error before the slice's end is another one than that of missing keys.
      if (is_last || Clock::now() < begin + slice) throw;
    }
  }
}

std::vector<std::vector<uint8_t>> CancellableStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return PrefixStore::multiGet(keys);
}

}  // namespace trireme::comm::inline internal
