#include "trireme/train/parallel/share_balance.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "trireme/base/locale/text.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train {

std::optional<std::vector<int64_t>> better_shares(std::span<const ShareTime> ranks,
                                                  double threshold) {
  const auto seconds_with = [&](size_t rank, int64_t share) {
    const auto samples = static_cast<double>(std::max<int64_t>(ranks[rank].share, 1));
    return ranks[rank].seconds / samples * static_cast<double>(share);
  };
  int64_t left = 0;
  double slowest = 0;
  for (const ShareTime& rank : ranks) {
    left += rank.share;
    slowest = std::max(slowest, rank.seconds);
  }
  left -= std::ssize(ranks);
  if (left < 0) return std::nullopt;
  // One sample each, and then always one to the rank that would be done with it first.
  using Next = std::pair<double, size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  std::vector<int64_t> shares(ranks.size(), 1);
  for (size_t rank = 0; rank < ranks.size(); ++rank) next.emplace(seconds_with(rank, 2), rank);
  while (left > 0 && !next.empty()) {
    const size_t rank = next.top().second;
    next.pop();
    if (shares[rank] >= ranks[rank].most) continue;
    ++shares[rank];
    --left;
    next.emplace(seconds_with(rank, shares[rank] + 1), rank);
  }
  double expected = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    expected = std::max(expected, seconds_with(rank, shares[rank]));
  }
  if (left > 0 || expected >= (1 - threshold) * slowest) return std::nullopt;
  return shares;
}

ShareBalance::ShareBalance(const mesh::DeviceMesh& mesh)
    : mesh_(mesh), place_(mesh.position(mesh::axes_where([](const mesh::AxisKind& kind) {
        return kind.tokens == mesh::Tokens::kOtherSamples;
      }))) {
  const std::string own = comm::host_identity();
  num_local_ = std::ranges::count(comm::all_gather_strings(mesh.world(), own), own);
}

std::optional<std::vector<int64_t>> ShareBalance::better(std::span<const int64_t> shares,
                                                         const MemoryUse& memory) {
  constexpr double kLeastGain = 0.05;
  if (seconds_.empty()) return std::nullopt;
  const auto own = static_cast<size_t>(place_.index);
  const double seconds = median(std::exchange(seconds_, {}));
  const std::vector<double> all = gather(
      mesh_.world(),
      {static_cast<double>(own), seconds, static_cast<double>(most_samples(shares[own], memory))});
  std::vector<ShareTime> ranks(shares.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank] = {.share = shares[rank], .most = std::max<int64_t>(2 * shares[rank], 1)};
  }
  for (size_t at = 0; at < all.size(); at += 3) {
    ShareTime& rank = ranks[static_cast<size_t>(all[at])];
    rank.seconds = std::max(rank.seconds, all[at + 1]);
    rank.most = std::min(rank.most, static_cast<int64_t>(all[at + 2]));
  }
  const auto [fastest, slowest] = std::ranges::minmax(ranks, {}, &ShareTime::seconds);
  times_ = format("%.3g to %.3g s", fastest.seconds, slowest.seconds);
  // Hosts of another kind might round another way.
  std::string decided;
  for (const int64_t share : better_shares(ranks, kLeastGain).value_or(std::vector<int64_t>())) {
    decided += std::to_string(share) + ' ';
  }
  std::vector<int64_t> result;
  TextReader text(comm::broadcast_string(mesh_.world(), decided, 0));
  for (int64_t share = 0; text >> share;) result.push_back(share);
  if (result.empty()) return std::nullopt;
  return result;
}

// The machine's memory is the ranks' in equal parts. More samples take as much each as those of the
// largest share so far, which fitted.
int64_t ShareBalance::most_samples(int64_t share, const MemoryUse& memory) {
  largest_share_ = std::max(largest_share_, share);
  const int64_t activations = memory.most[MemoryKind::kActivations];  // small blocks do not count
  const int64_t sample = std::max<int64_t>(activations / largest_share_, 1);
  const int64_t room = machine_memory_bytes() / num_local_ - memory.at_peak.total();
  return largest_share_ + std::max<int64_t>(room, 0) / sample;
}

}  // namespace trireme::train
