#include "trireme/checkpoint/write/held_tensors.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::checkpoint::inline internal {
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

}  // namespace

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
    if (held.step != step)
      throw CheckpointError(concat("ranks save different steps: ", step, " and ", held.step));
    if (all.by_rank.empty()) all.state = held.state;
    all.by_rank.push_back(std::move(held.tensors));
  }
  return all;
}

}  // namespace trireme::checkpoint::inline internal
