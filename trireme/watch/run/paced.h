// A value that is made anew when somebody asks for it, but never so often that making it takes much
// of the time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace trireme::watch {

// Not thread safe.
template <typename Value>
class Paced {
 public:
  // At least `interval` passes from one making to the next, and ten times as long as it took.
  explicit Paced(std::chrono::milliseconds interval) : interval_(interval) {}

  // The same `version` as before: nothing has changed, and the value stays.
  template <typename Make>
  const Value& get(const Make& make, std::optional<uint64_t> version = std::nullopt) {
    const auto now = Clock::now();
    const bool is_same = version && version == version_;
    if (!value_ || (now >= next_ && !is_same)) {
      version_ = version;
      value_ = make();
      const auto end = Clock::now();
      next_ = end + std::max<Clock::duration>(interval_, 10 * (end - now));
    }
    return *value_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds interval_;
  Clock::time_point next_{};
  std::optional<uint64_t> version_{};
  std::optional<Value> value_{};
};

}  // namespace trireme::watch
