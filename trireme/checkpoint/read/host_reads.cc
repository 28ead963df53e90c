#include "trireme/checkpoint/read/host_reads.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/place_bytes.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Two of these per reader lie in the heap of the host's ranks; chunks have 1 MiB.
constexpr uint64_t kBatchBytes = uint64_t{2} << 20;

bool can_share(const Manifest& manifest, const Entry& entry) {
  // Offloaded tensors come and go one at a time, and format 1 has no chunks.
  return manifest.format_version > 1 && !entry.offloaded && manifest.tensors.contains(entry.name);
}

// Ranks with the same mark are of one host, and see the same checkpoint.
std::string mark_of(const fs::path& folder) {
  try {
    // The manifest too: ranks of one host may have been given different folders.
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

// In each round a rank reads one batch into memory that the others can see, lends it to those that
// want it, and then copies what it wants from their batches. Two slots of memory take turns: a slot
// is filled again only when all its takers are done, so a reader is one round ahead of the slowest
// taker. Takers go through the readers in a rotated order, or all would copy from rank 0 first. All
// ranks go through the same rounds, whatever happens. After a failure a rank still lends its
// batches, with a first byte that says they are empty, because a taker that waits for a message
// that never comes would hang.

namespace {

// The disk of another rank may be slow. A rank that is lost is noticed anyway.
constexpr std::chrono::hours kPatience{1};
constexpr std::chrono::milliseconds kBetweenChecks{200};

// The first byte of a batch.
constexpr std::byte kIsWhole{1};
constexpr std::byte kHasFailed{0};

void wait_for(comm::Work& work, const Peers& peers) {
  // In short waits, so that a lost peer is noticed.
  while (!work.wait_for(kBetweenChecks)) peers.check();
}

// This rank's part of the plan.
class SharedReader {
 public:
  SharedReader(const ReadPlan& plan, Shards& shards, const std::map<std::string, Target>& targets,
               comm::Communicator& group, const Peers& peers)
      : plan_(plan), shards_(shards), targets_(targets), group_(group), peers_(peers) {}

  void run() {
    for (size_t round = 0; round < plan_.num_rounds(); ++round) {
      peers_.check();
      const std::vector<Batch>& own = plan_.by_reader[static_cast<size_t>(group_.rank())];
      if (round < own.size()) hand_out(own[round], slots_[round % slots_.size()]);
      for (int distance = 1; distance < group_.size(); ++distance) {
        const int reader = (group_.rank() + distance) % group_.size();
        const auto& batches = plan_.by_reader[static_cast<size_t>(reader)];
        if (round < batches.size() && batches[round].takers.contains(group_.rank()))
          take(batches[round], reader);
      }
    }
    // The memory must not go while a taker reads from it.
    for (Slot& slot : slots_) wait_for_takers(slot);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Memory for a batch that others read.
  struct Slot {
    at::Tensor memory{};
    std::vector<comm::WorkPtr> sends{};
  };

  void wait_for_takers(Slot& slot) {
    for (const comm::WorkPtr& send : slot.sends) wait_for(*send, peers_);
    slot.sends.clear();
  }

  at::Tensor make_memory() {
    const auto num_bytes = static_cast<int64_t>(plan_.largest_batch());
    try {
      return group_.symmetric_empty({num_bytes}, at::kByte);
    } catch (const ConfigError&) {  // the heap is full: the group copies
      // Slower, and the same bytes.
      return at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte));
    }
  }

  void hand_out(const Batch& batch, Slot& slot) {
    wait_for_takers(slot);
    if (!slot.memory.defined()) slot.memory = make_memory();
    auto* const data = static_cast<std::byte*>(slot.memory.mutable_data_ptr());
    attempt([&] {
      for (const SharedChunk& each : batch.chunks) {
        const auto bytes = shards_.read_chunk(each.name, each.record, each.chunk, scratch_);
        std::memcpy(data + each.place, bytes.data(), bytes.size());
      }
    });
    // Also for a batch that was read before the failure of another one.
    data[0] = failure_ ? kHasFailed : kIsWhole;
    const at::Tensor sent = slot.memory.narrow(0, 0, static_cast<int64_t>(batch.num_bytes));
    for (const int taker : batch.takers) slot.sends.push_back(group_.send(sent, taker, behind_));
    // After the sends: takers need not wait for this rank's own copies.
    place(batch, data);
  }

  void take(const Batch& batch, int reader) {
    const comm::LoanPtr loan = group_.borrow({static_cast<int64_t>(batch.num_bytes)},
                                             at::TensorOptions().dtype(at::kByte), reader, behind_);
    wait_for(*loan, peers_);
    place(batch, static_cast<const std::byte*>(loan->data().const_data_ptr()));
  }

  // Copies what this rank wants of the batch.
  void place(const Batch& batch, const std::byte* data) {
    // The reader has failed and throws itself. What this rank lacks is covered by that.
    if (data[0] != kIsWhole) return;
    attempt([&] {
      for (const SharedChunk& each : batch.chunks) {
        if (std::ranges::count(each.takers, group_.rank()) == 0) continue;
        const Target& target = targets_.at(each.name);
        place_bytes({.box = each.piece.box,
                     .dtype = each.record.dtype,
                     .at = each.at,
                     .bytes = {data + each.place, each.chunk.num_bytes}},
                    target.box, target.tensor);
      }
    });
  }

  // After a failure the remaining batches are exchanged without their content.
  template <typename Action>
  void attempt(const Action& action) {
    if (failure_) return;
    try {
      action();
    } catch (const CommError&) {
      throw;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const ReadPlan& plan_;
  Shards& shards_;
  const std::map<std::string, Target>& targets_;
  comm::Communicator& group_;
  const Peers& peers_;
  const comm::Options behind_{.timeout = kPatience, .background = true};
  std::array<Slot, 2> slots_;
  std::vector<std::byte> scratch_;
  std::exception_ptr failure_;
};

}  // namespace

void read_shared(const ReadPlan& plan, Shards& shards, const std::map<std::string, Target>& targets,
                 comm::Communicator& group, const Peers& peers) {
  SharedReader(plan, shards, targets, group, peers).run();
}

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
  // Without a mark nobody knows who is on this host.
  if (!marks[static_cast<size_t>(world.rank())].empty()) {
    for (const int rank : hosts.ranks_of(host)) boxes.push_back(wanted_by(rank));
  }
  const bool has_common = any_in_common(boxes);
  // Asked of all, because the split is collective.
  const auto all = comm::all_gather_numbers(world, has_common ? 1 : 0);
  if (std::ranges::count(all, 1) == 0) return;
  group_ = split_by_memory(world, has_common ? host : -1);
  if (!group_) return;
  // Again, in the order of the group and not of the world.
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
      // The targets of this rank only; others' boxes are others' memory.
      targets[entry.name] = {entry.box(world.rank(), world.size()), entry.local};
  }
  read_shared(plan_, shards, targets, *group_, peers);
}

namespace {

// Smaller messages are copied even between ranks that share memory.
constexpr int64_t kProbeNumbers = 8192;

at::Tensor shared_zeros(comm::Communicator& group) {
  try {
    return group.symmetric_empty({kProbeNumbers}, at::kLong).zero_();
  } catch (const ConfigError&) {  // the heap is full: as if nothing were shared
    // A heap without room says nothing about whether memory is shared.
    return at::empty({kProbeNumbers}, at::TensorOptions().dtype(at::kLong)).zero_();
  }
}

// Whether this rank sees what rank 0 changes after it has lent it: its memory, or else a copy.
// Collective: every rank of `group`
bool sees_memory_of_root(comm::Communicator& group) {
  const comm::Options behind{.background = true};
  if (group.rank() == 0) {
    const at::Tensor numbers = shared_zeros(group);
    std::vector<comm::WorkPtr> sends;
    for (int peer = 1; peer < group.size(); ++peer)
      sends.push_back(group.send(numbers, peer, behind));
    group.barrier()->wait();  // all have it
    // Between two barriers: all have borrowed it, none has looked. A copy would still have zeros.
    numbers.fill_(1);
    group.barrier()->wait();
    for (const comm::WorkPtr& send : sends) send->wait();
    return true;
  }
  const comm::LoanPtr loan =
      group.borrow({kProbeNumbers}, at::TensorOptions().dtype(at::kLong), 0, behind);
  loan->wait();
  group.barrier()->wait();
  group.barrier()->wait();
  return *loan->data().const_data_ptr<int64_t>() == 1;
}

}  // namespace

std::unique_ptr<comm::Communicator> split_by_memory(comm::Communicator& world, int color) {
  auto group = world.split(color, world.rank(), "loads");
  // A group of one has nothing to share.
  if (!group || group->size() == 1) return nullptr;
  // All or none: a reader cannot serve half of a group by memory.
  const auto all = comm::all_gather_numbers(*group, sees_memory_of_root(*group) ? 1 : 0);
  return std::ranges::count(all, 0) == 0 ? std::move(group) : nullptr;
}

}  // namespace trireme::checkpoint
