// Snapshots of a shard: docs/design/server-protocol.md has the parts.
#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/server/state/shard_state.h"

namespace trireme::parallel {
namespace {

enum class Part : uint16_t { kMembers = 1, kWeights, kOptimizer, kFinished, kWaiting, kEnd };

Frame part_of(Part part, int64_t shard, uint32_t piece) {
  Frame frame;
  frame.header = {.kind = FrameKind::kSnapshot,
                  .part = static_cast<uint16_t>(part),
                  .shard = static_cast<uint32_t>(shard),
                  .piece = piece};
  return frame;
}

at::Tensor numbers(const std::vector<int64_t>& values) {
  at::Tensor bytes = at::empty({std::ssize(values) * int64_t{sizeof(int64_t)}}, at::kByte);
  if (!values.empty()) {
    std::memcpy(bytes.data_ptr(), values.data(), values.size() * sizeof(int64_t));
  }
  return bytes;
}

void fill(at::Tensor& tensor, const Frame& part, const char* what) {
  const auto expected = static_cast<int64_t>(tensor.nbytes());
  const int64_t bytes = part.payload.defined() ? part.payload.numel() : 0;
  TRIREME_CHECK(bytes == expected, "a snapshot has ", bytes, " bytes of ", what, " of piece ",
                part.header.piece, "; expected ", expected);
  if (bytes > 0) std::memcpy(tensor.data_ptr(), part.payload.const_data_ptr(), tensor.nbytes());
}

}  // namespace

std::vector<Frame> ShardState::snapshot() const {
  std::vector<Frame> parts;
  std::vector<int64_t> members;
  for (const auto& [worker, member] : members_) {
    members.insert(members.end(),
                   {worker, member.incarnation, member.base, away_.contains(worker) ? 1 : 0});
  }
  parts.push_back(part_of(Part::kMembers, shard_, 0));
  parts.back().payload = numbers(members);
  parts.back().header.sequence = sequence_;
  parts.back().header.step = highest_;
  for (const auto& [index, held] : held_) {
    parts.push_back(part_of(Part::kWeights, shard_, index));
    // A copy: the frames are sent while the weights go on changing.
    parts.back().payload = bytes_of(held.weights.clone());
    parts.back().header.sequence = held.version;
    parts.back().header.num_rows = static_cast<uint32_t>(held.num_combined);
    uint32_t count = 0;
    for (const PieceState& state : held.update->states()) {
      parts.push_back(part_of(Part::kOptimizer, shard_, index));
      parts.back().header.num_rows = count++;
      parts.back().payload = bytes_of(state.values.clone());
    }
    // Steps of workers that have pushed ahead.
    std::vector<int64_t> finished;
    for (const auto& [worker, step] : held.finished) {
      finished.insert(finished.end(), {int64_t{worker}, step, held.combined.at(worker)});
    }
    parts.push_back(part_of(Part::kFinished, shard_, index));
    parts.back().payload = numbers(finished);
    for (const auto& [step, pushes] : held.waiting) {
      for (const auto& [worker, push] : pushes) {
        parts.push_back(push);
        parts.back().header.kind = FrameKind::kSnapshot;
        parts.back().header.part = static_cast<uint16_t>(Part::kWaiting);
        parts.back().header.shard = static_cast<uint32_t>(shard_);
      }
    }
  }
  parts.push_back(part_of(Part::kEnd, shard_, 0));
  return parts;
}

void ShardState::load_members(const Frame& part) {
  const std::vector<int64_t> values = numbers_of(part, 4);
  members_.clear();
  away_.clear();
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto worker = static_cast<uint32_t>(values[i]);
    members_[worker] = {static_cast<uint32_t>(values[i + 1]), values[i + 2]};
    if (values[i + 3] != 0) away_.insert(worker);
  }
  sequence_ = part.header.sequence;
  highest_ = part.header.step;
}

void ShardState::load_piece(const Frame& part) {
  const FrameHeader& header = part.header;
  Held& held = find(header.piece);
  const auto kind = static_cast<Part>(header.part);
  if (kind == Part::kWeights) {
    fill(held.weights, part, "weights");
    held.version = header.sequence;
    held.num_combined = header.num_rows;
    held.published.reset();
    held.waiting.clear();
  } else if (kind == Part::kOptimizer) {
    std::vector<PieceState> states = held.update->states();
    TRIREME_CHECK(header.num_rows < states.size(), "a snapshot has optimizer tensor ",
                  header.num_rows, " of piece ", header.piece, "; expected below ", states.size());
    fill(states[header.num_rows].values, part, "the optimizer");
  } else if (kind == Part::kFinished) {
    const std::vector<int64_t> values = numbers_of(part, 3);
    held.finished.clear();
    held.combined.clear();
    for (size_t i = 0; i < values.size(); i += 3) {
      held.finished[static_cast<uint32_t>(values[i])] = values[i + 1];
      held.combined[static_cast<uint32_t>(values[i])] = values[i + 2];
    }
  } else if (kind == Part::kWaiting) {
    Frame push = part;
    push.header.kind = FrameKind::kEvent;
    push.header.part = static_cast<uint16_t>(EventKind::kPush);
    // Checked as if a worker had sent it.
    check_push(held, push);
    held.waiting[header.step].emplace(std::pair(header.worker, header.incarnation), push);
  } else {
    throw ConfigError(concat("a snapshot has a part of kind ", header.part, "; expected 1 to 6"));
  }
}

bool ShardState::load(const Frame& part) {
  const auto kind = static_cast<Part>(part.header.part);
  if (kind == Part::kMembers) load_members(part);
  if (kind == Part::kMembers || kind == Part::kEnd) return kind == Part::kEnd;
  load_piece(part);
  return false;
}

}  // namespace trireme::parallel
