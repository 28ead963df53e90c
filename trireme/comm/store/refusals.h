// Counts, within bounds, which connections a server refused, from where and why.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace trireme::comm::inline internal {

// Thread safe.
class Refusals {
 public:
  using Listener = std::function<void(const std::string& line)>;

  // `listener` gets the 1st, 10th, 100th, ... refusal of each address and reason.
  explicit Refusals(Listener listener = nullptr) : listener_(std::move(listener)) {}
  void add(const std::string& address, const std::string& reason);
  // "3 connections were refused: 2 from 10.0.0.7 (wrong token), ..."; "" when there were none.
  std::string to_string() const;

 private:
  const Listener listener_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, uint64_t> counts_;
};

}  // namespace trireme::comm::inline internal
