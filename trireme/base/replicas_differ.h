// The message of silent data corruption, written and recognised in one place: a launcher reads it
// from a rank's error, which otherwise looks like any other.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct ReplicasDiffer {
  std::string tensor{};
  std::vector<int> ranks{};   // their bits differ from most ranks' bits
  bool has_majority = false;  // false: the other ranks may be the wrong ones
  bool operator==(const ReplicasDiffer&) const = default;
};

// "replicas differ: "w" has different bits on rank 3; check that host's memory ...". One line.
std::string to_string(const ReplicasDiffer& found);

// Finds such a message in an error, which may have text before and after it. At most 4096 ranks
// are read. Nothing when there is none.
std::optional<ReplicasDiffer> parse_replicas_differ(std::string_view error);

}  // namespace trireme
