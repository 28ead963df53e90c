#include "trireme/base/replicas_differ.h"

#include <charconv>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::string_view kBegin = "replicas differ: \"";
constexpr std::string_view kRanks = "\" has different bits on rank ";
constexpr std::string_view kNoMajority = " (or on the others: there is no majority)";
constexpr size_t kMostRanks = 4096;

}  // namespace

std::string to_string(const ReplicasDiffer& found) {
  std::string text;
  for (const int rank : found.ranks) text += concat(text.empty() ? "" : ", ", rank);
  return concat(kBegin, found.tensor, kRanks, text, found.has_majority ? "" : kNoMajority,
                "; check that host's memory and resume from the last checkpoint");
}

std::optional<ReplicasDiffer> parse_replicas_differ(std::string_view error) {
  const size_t begin = error.find(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  error.remove_prefix(begin + kBegin.size());
  const size_t name_end = error.find(kRanks);
  if (name_end == std::string_view::npos) return std::nullopt;
  ReplicasDiffer found{.tensor = std::string(error.substr(0, name_end))};
  error.remove_prefix(name_end + kRanks.size());
  for (bool more = true; more && found.ranks.size() < kMostRanks;) {
    int rank = -1;
    const auto [end, code] = std::from_chars(error.data(), error.data() + error.size(), rank);
    if (code != std::errc() || rank < 0) return std::nullopt;
    found.ranks.push_back(rank);
    error.remove_prefix(static_cast<size_t>(end - error.data()));
    more = error.starts_with(", ");
    if (more) error.remove_prefix(2);
  }
  found.has_majority = !error.starts_with(kNoMajority);
  return found;
}

}  // namespace trireme
