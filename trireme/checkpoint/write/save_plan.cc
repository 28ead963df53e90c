#include "trireme/checkpoint/write/save_plan.h"

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/exact_cover.h"

namespace trireme::checkpoint::inline internal {
namespace {

// A distinct box of a tensor and the ranks that hold it, ascending.
struct Candidate {
  const std::string* name = nullptr;
  mesh::Box box;
  int64_t num_bytes = 0;
  std::vector<int> holders;
};

// The tensors of all ranks, without pieces.
std::map<std::string, TensorRecord> merge(
    std::span<const std::map<std::string, TensorRecord>> held_by) {
  std::map<std::string, TensorRecord> merged;
  for (size_t rank = 0; rank < held_by.size(); ++rank) {
    for (const auto& [name, held] : held_by[rank]) {
      TensorRecord record = held;
      record.pieces.clear();
      // The layouts may differ, because each block of a tensor may have its own cuts.
      const auto& known = merged.emplace(name, record).first->second;
      if (known.dtype != record.dtype || known.shape != record.shape)
        throw CheckpointError(concat("rank ", rank, " holds \"", name,
                                     "\" with another dtype or shape than a lower rank"));
    }
  }
  return merged;
}

// The boxes that ranks would save, or with `of_replicas` all that they hold.
std::vector<Candidate> distinct_boxes(std::span<const std::map<std::string, TensorRecord>> held_by,
                                      const std::map<std::string, TensorRecord>& merged,
                                      bool of_replicas) {
  using Key = std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Key, Candidate> boxes;
  for (size_t rank = 0; rank < held_by.size(); ++rank) {
    for (const auto& [name, held] : held_by[rank]) {
      const mesh::Box& box = of_replicas ? held.pieces.back().box : held.pieces.at(0).box;
      if (box.numel() == 0) continue;
      Candidate& candidate = boxes[Key(name, box.offset, box.size)];
      candidate.name = &merged.find(name)->first;
      candidate.box = box;
      candidate.num_bytes = box.numel() * static_cast<int64_t>(c10::elementSize(held.dtype));
      candidate.holders.push_back(static_cast<int>(rank));
    }
  }
  std::vector<Candidate> result;
  for (auto& [key, candidate] : boxes) result.push_back(std::move(candidate));
  return result;
}

}  // namespace

std::string shard_name(int rank, int world_size) {
  char name[64];
  std::snprintf(name, sizeof(name), "rank-%03d-of-%03d.safetensors", rank, world_size);
  return name;
}

std::map<std::string, TensorRecord> plan_save(
    std::span<const std::map<std::string, TensorRecord>> held_by) {
  std::map<std::string, TensorRecord> plan = merge(held_by);
  std::vector<Candidate> boxes = distinct_boxes(held_by, plan, /*of_replicas=*/false);
  // First the boxes with only one holder, then the largest; the small ones even out the rest.
  std::stable_sort(boxes.begin(), boxes.end(), [](const Candidate& a, const Candidate& b) {
    const bool a_free = a.holders.size() > 1, b_free = b.holders.size() > 1;
    return a_free != b_free ? !a_free : a.num_bytes > b.num_bytes;
  });
  const int world_size = static_cast<int>(held_by.size());
  std::vector<int64_t> load_bytes(held_by.size(), 0);
  for (const Candidate& box : boxes) {
    const int writer = *std::min_element(box.holders.begin(), box.holders.end(), [&](int a, int b) {
      return load_bytes[a] < load_bytes[b];
    });
    load_bytes[writer] += box.num_bytes;
    plan.at(*box.name).pieces.push_back({.box = box.box, .file = shard_name(writer, world_size)});
  }
  for (auto& [name, record] : plan) {
    std::vector<mesh::Box> held;
    for (const Piece& piece : record.pieces) held.push_back(piece.box);
    const std::string error = cover_error(record.shape, held);
    if (!error.empty())
      throw CheckpointError(concat("the ranks together do not hold \"", name, "\" exactly once: ",
                                   error, ": a rank left it out, or its layout is wrong"));
    std::sort(record.pieces.begin(), record.pieces.end(),
              [](const Piece& a, const Piece& b) { return a.box.offset < b.box.offset; });
  }
  return plan;
}

std::vector<ReplicatedBox> replicated_boxes(
    std::span<const std::map<std::string, TensorRecord>> held_by) {
  const std::map<std::string, TensorRecord> merged = merge(held_by);
  std::vector<ReplicatedBox> result;
  for (Candidate& candidate : distinct_boxes(held_by, merged, /*of_replicas=*/true)) {
    if (candidate.holders.size() > 1)
      result.push_back({*candidate.name, std::move(candidate.box), std::move(candidate.holders)});
  }
  return result;
}

}  // namespace trireme::checkpoint::inline internal
