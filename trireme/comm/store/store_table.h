// The keys and values of the job's store, and the requests on them (store_wire.h). Knows no
// network.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/net/store_wire.h"

namespace trireme::comm {

class StoreTable {
 public:
  using Clock = std::chrono::steady_clock;

  // A request that is answered once all its keys exist.
  struct Waiting {
    std::vector<std::string> keys;
    size_t next = 0;  // the keys before it have been seen
    bool wants_values = false;
    Clock::time_point deadline;
  };
  // Exactly one is set. Neither is set for a message that no rank sends.
  struct Outcome {
    std::optional<wire::Bytes> reply;
    std::optional<Waiting> waiting;
  };

  Outcome apply(std::span<const uint8_t> message);
  // The reply, if all keys exist now or `now` is past the deadline.
  std::optional<wire::Bytes> retry(Waiting& waiting, Clock::time_point now);

 private:
  // Requests that are answered at once. The caller detects messages that are cut short.
  wire::Bytes set(wire::FrameReader& reader);
  wire::Bytes append(wire::FrameReader& reader);
  wire::Bytes add(wire::FrameReader& reader);
  wire::Bytes compare_set(wire::FrameReader& reader);
  wire::Bytes erase(wire::FrameReader& reader);
  wire::Bytes check(wire::FrameReader& reader) const;
  Outcome wait(wire::FrameReader& reader, bool wants_values);

  const wire::Bytes* find(const std::string& key) const;
  // Stores the value. Returns why it cannot, or "".
  std::string store(const std::string& key, wire::Bytes value);
  wire::Bytes values_of(const Waiting& waiting) const;

  std::unordered_map<std::string, wire::Bytes> values_;
  size_t num_bytes_ = 0;  // of keys and values
};

}  // namespace trireme::comm
