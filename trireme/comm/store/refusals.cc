#include "trireme/comm/store/refusals.h"

#include "trireme/base/error.h"

namespace trireme::comm::inline internal {
namespace {

constexpr size_t kMaxKinds = 64;

bool is_power_of_ten(uint64_t count) {
  while (count % 10 == 0 && count > 0) count /= 10;
  return count == 1;
}

}  // namespace

void Refusals::add(const std::string& address, const std::string& reason) {
  uint64_t count;
  std::pair<std::string, std::string> kind(address, reason);
  {
    const std::lock_guard lock(mutex_);
    const bool is_known = counts_.contains(kind);
    if (!is_known && counts_.size() >= kMaxKinds) kind = {"other addresses", "various reasons"};
    count = ++counts_[kind];
  }
  if (!listener_ || !is_power_of_ten(count)) return;
  listener_(count == 1
                ? concat("refused a connection from ", kind.first, ": ", kind.second)
                : concat("refused ", count, " connections from ", kind.first, ": ", kind.second));
}

std::string Refusals::to_string() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  std::string list;
  size_t listed = 0;
  for (const auto& [kind, count] : counts_) {
    total += count;
    if (++listed > 5) continue;
    list += concat(listed == 1 ? "" : ", ", count, " from ", kind.first, " (", kind.second, ")");
  }
  if (total == 0) return "";
  return concat(total, total == 1 ? " connection was" : " connections were", " refused: ", list,
                listed > 5 ? concat(" and ", listed - 5, " more") : "");
}

}  // namespace trireme::comm::inline internal
