#include "trireme/checkpoint/read/read_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "trireme/base/numbers.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::checkpoint {
namespace {

bool overlap(const mesh::Box& a, const mesh::Box& b) {
  return a.size.size() == b.size.size() && mesh::intersect(a, b).numel() > 0;
}

// By chunk, in their order in the piece.
struct Takers {
  uint64_t at = 0;
  std::vector<int> ranks{};
};
std::map<const Chunk*, Takers> takers_of(const Piece& piece, const TensorRecord& record,
                                         std::span<const std::pair<int, mesh::Box>> wanted) {
  std::map<const Chunk*, Takers> takers;  // the chunks of a piece lie in one vector
  for (const auto& [rank, box] : wanted) {
    if (!overlap(piece.box, box)) continue;
    const auto take = [&, rank = rank](const Chunk& chunk, uint64_t at) {
      Takers& found = takers[&chunk];
      found.at = at;
      found.ranks.push_back(rank);
    };
    for_each_chunk(piece, mesh::intersect(piece.box, box), record, take);
  }
  return takers;
}

// Deals the chunks out and fills batches.
class Dealer {
 public:
  Dealer(size_t num_ranks, uint64_t batch_bytes) : batch_bytes_(batch_bytes), dealt_(num_ranks, 0) {
    plan_.by_reader.resize(num_ranks);
  }

  void deal(SharedChunk chunk) {
    // The one with the least so far, so that all disks and hashes are used alike. Ties go to the
    // lowest rank, on every rank alike.
    const int reader = *std::ranges::min_element(
        chunk.takers, {}, [&](int rank) { return dealt_[static_cast<size_t>(rank)]; });
    dealt_[static_cast<size_t>(reader)] += chunk.chunk.num_bytes;
    std::vector<Batch>& batches = plan_.by_reader[static_cast<size_t>(reader)];
    // Rounded, so that every chunk in a batch is aligned for its elements.
    const uint64_t room = round_up(chunk.chunk.num_bytes, Batch::kHeadBytes);
    if (batches.empty() || batches.back().num_bytes + room > batch_bytes_) batches.emplace_back();
    Batch& batch = batches.back();
    chunk.place = batch.num_bytes;
    batch.num_bytes += room;
    batch.takers.insert(chunk.takers.begin(), chunk.takers.end());
    // The reader has it already.
    batch.takers.erase(reader);
    plan_.shared.insert(&chunk.chunk);
    batch.chunks.push_back(std::move(chunk));
  }
  ReadPlan plan() { return std::move(plan_); }

 private:
  uint64_t batch_bytes_;
  std::vector<uint64_t> dealt_;  // bytes
  ReadPlan plan_;
};

}  // namespace

bool any_in_common(std::span<const WantedBoxes> ranks) {
  std::map<std::string, std::vector<const mesh::Box*>> seen;
  for (const WantedBoxes& wanted : ranks) {
    for (const auto& [name, box] : wanted) {
      auto& boxes = seen[name];
      if (std::ranges::any_of(boxes, [&](const mesh::Box* other) { return overlap(*other, box); }))
        return true;
      boxes.push_back(&box);
    }
  }
  return false;
}

size_t ReadPlan::num_rounds() const {
  size_t most = 0;
  for (const std::vector<Batch>& batches : by_reader) most = std::max(most, batches.size());
  return most;
}

uint64_t ReadPlan::largest_batch() const {
  uint64_t most = 0;
  for (const std::vector<Batch>& batches : by_reader) {
    for (const Batch& batch : batches) most = std::max(most, batch.num_bytes);
  }
  return most;
}

ReadPlan plan_reads(const Manifest& manifest, std::span<const WantedBoxes> ranks,
                    uint64_t batch_bytes) {
  Dealer dealer(ranks.size(), batch_bytes);
  for (const auto& [name, record] : manifest.tensors) {
    std::vector<std::pair<int, mesh::Box>> wanted;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto found = ranks[rank].find(name);
      if (found != ranks[rank].end()) wanted.emplace_back(static_cast<int>(rank), found->second);
    }
    // A tensor that one rank wants is that rank's own work.
    if (wanted.size() < 2) continue;
    for (const Piece& piece : record.pieces) {
      for (const auto& [chunk, takers] : takers_of(piece, record, wanted)) {
        if (takers.ranks.size() < 2) continue;
        dealer.deal({name, record, piece, *chunk, takers.at, 0, takers.ranks});
      }
    }
  }
  return dealer.plan();
}

}  // namespace trireme::checkpoint
