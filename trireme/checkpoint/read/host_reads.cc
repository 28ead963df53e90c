#include "trireme/checkpoint/read/host_reads.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/read/memory_group.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint::inline internal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kBatchBytes = uint64_t{2} << 20;

bool can_share(const Manifest& manifest, const Entry& entry) {
  return manifest.format_version > 1 && !entry.offloaded && manifest.tensors.contains(entry.name);
}

// Ranks with the same mark are of one host, and see the same checkpoint.
std::string mark_of(const fs::path& folder) {
  try {
    return comm::host_identity() + " " + checksum(InputFile(folder / kManifestName));
  } catch (const ConfigError&) {  // /proc cannot be read
    return "";
  }
}

WantedBoxes parse_boxes(std::string_view text) {
  WantedBoxes boxes;
  const json object = json::parse(text);
  for (const auto& [name, box] : object.items()) {
    boxes[name] = {box.at(0).get<std::vector<int64_t>>(), box.at(1).get<std::vector<int64_t>>()};
  }
  return boxes;
}

}  // namespace

std::string HostReads::describe(const fs::path& folder, const Manifest& manifest,
                                std::span<const Entry> entries, const comm::Communicator& world) {
  json boxes = json::object();
  for (const Entry& entry : entries) {
    const mesh::Box box = entry.box(world.rank(), world.size());
    if (can_share(manifest, entry)) boxes[entry.name] = json::array({box.offset, box.size});
  }
  return mark_of(folder) + "\n" + boxes.dump();
}

HostReads::HostReads(const Manifest& manifest, std::span<const std::string> described,
                     comm::Communicator& world) {
  if (world.size() == 1) return;
  std::vector<std::string> marks;
  for (const std::string& text : described) marks.push_back(text.substr(0, text.find('\n')));
  const comm::HostMap hosts(marks);
  const int host = hosts.host_of(world.rank());
  const auto wanted_by = [&](int rank) {
    const std::string& text = described[static_cast<size_t>(rank)];
    return parse_boxes(std::string_view(text).substr(text.find('\n')));
  };
  std::vector<WantedBoxes> boxes;
  if (!marks[static_cast<size_t>(world.rank())].empty()) {
    for (const int rank : hosts.ranks_of(host)) boxes.push_back(wanted_by(rank));
  }
  const bool has_common = any_in_common(boxes);
  const auto all = comm::all_gather_numbers(world, has_common ? 1 : 0);
  if (std::ranges::count(all, 1) == 0) return;
  group_ = split_by_memory(world, has_common ? host : -1);
  if (!group_) return;
  boxes.clear();
  for (const int64_t rank : comm::all_gather_numbers(*group_, world.rank()))
    boxes.push_back(wanted_by(static_cast<int>(rank)));
  plan_ = plan_reads(manifest, boxes, kBatchBytes);
}

bool HostReads::has(const Entry& entry, const Chunk& chunk) const {
  return group_ && !entry.offloaded && plan_.shared.contains(&chunk);
}

void HostReads::read(std::span<Entry> entries, Shards& shards, const comm::Communicator& world,
                     const Peers& peers) const {
  if (!group_) return;
  std::map<std::string, Target> targets;
  for (const Entry& entry : entries) {
    if (!entry.offloaded)
      targets[entry.name] = {entry.box(world.rank(), world.size()), entry.local};
  }
  read_shared(plan_, shards, targets, *group_, peers);
}

}  // namespace trireme::checkpoint::inline internal
