#include "trireme/train/replica_check.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
namespace {

std::string digest(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().contiguous().cpu();
  return checksum({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
}

// The ranks whose digest of one tensor is not what most have; the lowest such digest on a tie.
std::vector<int> minority(const std::vector<std::string_view>& digests) {
  std::map<std::string_view, int> votes;
  for (const std::string_view each : digests) ++votes[each];
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  std::vector<int> ranks;
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] != most->first) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

void check_replicas(std::span<const NamedTensor> tensors, comm::Communicator& group,
                    int world_rank) {
  std::string mine;
  size_t length = 0;
  for (const auto& [name, tensor] : tensors) {
    mine += digest(tensor);
    if (length == 0) length = mine.size();
  }
  mine += std::to_string(world_rank);
  const std::vector<std::string> all = comm::all_gather_strings(group, mine);
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::string_view> digests;
    for (const std::string& rank : all) {
      digests.push_back(std::string_view(rank).substr(i * length, length));
    }
    const std::vector<int> differing = minority(digests);
    if (differing.empty()) continue;
    std::string ranks;
    for (const int rank : differing) {
      ranks += concat(ranks.empty() ? "" : ", ",
                      all[static_cast<size_t>(rank)].substr(tensors.size() * length));
    }
    const bool tells_which = 2 * differing.size() < digests.size();
    throw Error(concat("replicas differ: \"", tensors[i].first, "\" has other bits on rank ", ranks,
                       tells_which ? "" : " (or on the others: there is no majority)",
                       "; check that host's memory and resume from the last checkpoint"));
  }
}

}  // namespace trireme::train
