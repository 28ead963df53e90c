#include "trireme/checkpoint/write/save_plan.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/replicas_differ.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {
namespace {

void add_axes(const std::string& name, const mesh::Layout& layout, TensorRecord& record) {
  if (layout.outer() != nullptr) add_axes(name, *layout.outer(), record);  // it splits first
  for (const mesh::Placement& placement : layout.placements()) {
    if (placement.kind == mesh::Placement::Kind::kPartial)
      throw CheckpointError(concat("\"", name, "\" is a partial sum: reduce it first"));
    record.placements.push_back(placement);
  }
  record.axes.insert(record.axes.end(), layout.axes().begin(), layout.axes().end());
}

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
  // By place and not by rank, so that replicas of a box are one candidate.
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

std::vector<size_t> minority(std::span<const std::string_view> digests) {
  std::map<std::string_view, int> votes;
  for (const std::string_view each : digests) ++votes[each];
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (digests[i] != most->first) places.push_back(i);
  }
  return places;
}

std::string replicas_differ(const std::string& name, std::span<const int> ranks,
                            size_t num_holders) {
  return to_string(ReplicasDiffer{.tensor = name,
                                  .ranks = {ranks.begin(), ranks.end()},
                                  .has_majority = 2 * ranks.size() < num_holders});
}

std::map<std::string, TensorRecord> describe(std::span<const Entry> entries, int world_rank,
                                             int world_size) {
  std::map<std::string, TensorRecord> held;
  for (const Entry& entry : entries) {
    TensorRecord record{.dtype = entry.local.scalar_type(), .shape = entry.layout.whole_shape()};
    bool is_first_replica = true;
    add_axes(entry.name, entry.layout, record);
    for (const mesh::Layout* layout = &entry.layout; layout != nullptr; layout = layout->outer()) {
      const mesh::Layout* outer = layout->outer();
      const int rank = layout->outer_rank();
      is_first_replica &= outer == nullptr || outer->owner(rank) == rank;
    }
    mesh::Box box = entry.box(world_rank, world_size);
    record.pieces.push_back({.box = box});
    // It is described all the same: another rank compares it.
    if (!is_first_replica) {  // another rank saves it; this one has a replica
      box.size.assign(box.size.size(), 0);
      record.pieces.insert(record.pieces.begin(), {.box = std::move(box)});
    }
    if (!is_printable(entry.name))
      throw CheckpointError(concat("the name \"", shown(entry.name),
                                   "\" is too long or has control characters; expected at most ",
                                   kMaxWordBytes, " bytes"));
    if (!held.emplace(entry.name, std::move(record)).second)
      throw CheckpointError(concat("\"", entry.name, "\" is listed twice"));
  }
  return held;
}

Held held_at(int64_t step, std::span<const std::string> descriptions) {
  Held all;
  for (const std::string& text : descriptions) {
    Manifest held = parse_manifest(text, "a rank's description");
    // They would be mixed in one folder.
    if (held.step != step)
      throw CheckpointError(concat("ranks save different steps: ", step, " and ", held.step));
    // Rank 0's. The others say "{}".
    if (all.by_rank.empty()) all.state = held.state;
    all.by_rank.push_back(std::move(held.tensors));
  }
  return all;
}

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
    // min_element takes the first of equals: the lowest rank, on every rank alike.
    const int writer = *std::min_element(box.holders.begin(), box.holders.end(), [&](int a, int b) {
      return load_bytes[a] < load_bytes[b];
    });
    load_bytes[writer] += box.num_bytes;
    plan.at(*box.name).pieces.push_back({.box = box.box, .file = shard_name(writer, world_size)});
  }
  for (auto& [name, record] : plan) {
    std::vector<mesh::Box> held;
    for (const Piece& piece : record.pieces) held.push_back(piece.box);
    // A layout that is wrong would lose elements without a word. Only all boxes together can tell.
    const std::string error = cover_error(record.shape, held);
    if (!error.empty())
      throw CheckpointError(concat("the ranks together do not hold \"", name, "\" exactly once: ",
                                   error, ": a rank left it out, or its layout is wrong"));
    // The order of saves must not depend on who writes.
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

}  // namespace trireme::checkpoint
