#include "trireme/parallel/server/state/shard_state.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// Far beyond any run, and far enough from the end of the type to count on from there.
constexpr int64_t kMaxStep = int64_t{1} << 53;

void check_step(const FrameHeader& header, int64_t least) {
  TRIREME_CHECK(header.step >= least && header.step <= kMaxStep, "a worker sent \"",
                name_of(header.kind), "\" with step ", header.step, "; expected ", least, " to ",
                kMaxStep);
}

}  // namespace

ShardState::ShardState(std::span<const Piece> pieces, int64_t shard, Consistency consistency,
                       const MakePiece& make)
    : shard_(shard), consistency_(consistency) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.shard != shard) continue;
    ServedPiece made = make(piece, static_cast<int64_t>(i));
    TRIREME_CHECK(made.weights.defined() && made.weights.is_contiguous() &&
                      made.weights.sizes() == at::IntArrayRef({piece.rows, piece.width}) &&
                      made.weights.scalar_type() == piece.dtype && made.update != nullptr,
                  "piece ", i, " of the parameters was not made as a contiguous tensor of ",
                  piece.rows, " x ", piece.width, " with an update rule");
    TRIREME_CHECK(!piece.is_sparse || piece.dtype == at::kFloat || piece.dtype == at::kDouble,
                  "piece ", i, " is sparse and has dtype ", piece.dtype, "; expected fp32 or fp64");
    held_.emplace(static_cast<uint32_t>(i), Held{.piece = piece,
                                                 .index = static_cast<int64_t>(i),
                                                 .weights = std::move(made.weights),
                                                 .update = std::move(made.update)});
  }
}

const ShardState::Held& ShardState::find(uint32_t piece) const {
  const auto found = held_.find(piece);
  TRIREME_CHECK(found != held_.end(), "shard ", shard_, " has no piece ", piece,
                "; workers and servers cut their parameters differently");
  return found->second;
}

ShardState::Held& ShardState::find(uint32_t piece) {
  return const_cast<Held&>(std::as_const(*this).find(piece));
}

void ShardState::check_push(const Held& held, const Frame& event) const {
  check_step(event.header, 1);
  if (has_rounds()) return check_difference(held, event);
  const Piece& piece = held.piece;
  const int64_t bytes = event.payload.defined() ? event.payload.numel() : 0;
  const auto num_rows = static_cast<int64_t>(event.header.num_rows);
  const int64_t expected = piece.is_sparse
                               ? num_rows * (piece.row_bytes() + int64_t{sizeof(int64_t)})
                               : piece.num_bytes();
  TRIREME_CHECK(bytes == expected && (piece.is_sparse || num_rows == 0), "a push to piece ",
                held.index, " has ", bytes, " bytes and ", num_rows, " rows; expected ", expected,
                piece.is_sparse ? " bytes" : " bytes and no rows");
  if (piece.is_sparse) check_rows(rows_in(event), piece.rows);
}

ShardState::Verdict ShardState::judge(const Frame& event) const {
  const FrameHeader& header = event.header;
  const auto member = members_.find(header.worker);
  const bool is_member = member != members_.end();
  const uint32_t incarnation = is_member ? member->second.incarnation : 0;
  switch (static_cast<EventKind>(header.part)) {
    case EventKind::kAdvance:
      check_step(header, -1);
      // A worker that starts again counts up, so a larger incarnation is a new process.
      if (!is_member || incarnation < header.incarnation) return Verdict::kNew;
      if (incarnation > header.incarnation) return Verdict::kStranger;
      return header.step <= member->second.base ? Verdict::kDuplicate : Verdict::kNew;
    case EventKind::kLeave:
      return is_member && incarnation == header.incarnation ? Verdict::kNew : Verdict::kDuplicate;
    case EventKind::kPush: {
      const Held& held = find(header.piece);
      check_push(held, event);
      if (!is_member || incarnation != header.incarnation) return Verdict::kStranger;
      return header.step <= held.finished.at(header.worker) ? Verdict::kDuplicate : Verdict::kNew;
    }
    case EventKind::kAway:
      TRIREME_CHECK(has_rounds() && (header.step == 0 || header.step == 1),
                    "a worker sent \"away\" ", header.step,
                    "; expected 0 or 1, and a run with a quorum");
      if (!is_member || incarnation != header.incarnation) return Verdict::kStranger;
      return away_.contains(header.worker) == (header.step == 1) ? Verdict::kDuplicate
                                                                 : Verdict::kNew;
    case EventKind::kClose:
      TRIREME_CHECK(has_rounds(), "the end of a grace in a run without a quorum");
      return find(header.piece).version < header.step ? Verdict::kNew : Verdict::kDuplicate;
  }
  throw ConfigError(concat("a worker sent event ", header.part, "; expected 1 to 5"));
}

void ShardState::apply(const Frame& event) {
  ++sequence_;
  const FrameHeader& header = event.header;
  const auto kind = static_cast<EventKind>(header.part);
  if (kind == EventKind::kAdvance) advance(event);
  if (kind == EventKind::kLeave) {
    members_.erase(header.worker);
    away_.erase(header.worker);
    for (auto& [index, held] : held_) held.finished.erase(header.worker);
    for (auto& [index, held] : held_) held.combined.erase(header.worker);
  }
  if (kind == EventKind::kAway && header.step == 1) away_.insert(header.worker);
  if (kind == EventKind::kAway && header.step == 0) away_.erase(header.worker);
  if (kind == EventKind::kClose) return end_round(find(header.piece));
  if (kind == EventKind::kPush) {
    Held& held = find(header.piece);
    held.finished[header.worker] = header.step;
    highest_ = std::max(highest_, header.step);
    // A step is applied when all workers have pushed it. Without that rule each push counts at
    // once.
    if (has_rounds()) {
      held.waiting[header.step].emplace(std::pair(header.worker, header.incarnation), event);
      end_if_due(held);
    } else if (consistency_.is_synchronous()) {
      held.waiting[header.step].emplace(std::pair(header.worker, header.incarnation), event);
      complete_steps(held);
    } else {
      const Frame* const push = &event;
      update(held, {&push, 1});
    }
  } else {
    // One who left may have been the last that was waited for.
    for (auto& [index, held] : held_) has_rounds() ? end_if_due(held) : complete_steps(held);
  }
}

void ShardState::advance(const Frame& event) {
  const FrameHeader& header = event.header;
  int64_t base = header.step;
  if (base < 0) {
    // The latest over the pieces: a piece that has had a synchronous step must not get it again
    // with only this worker's gradient.
    std::optional<int64_t> finished_by_all;
    for (const auto& [index, held] : held_) {
      const auto step = slowest(held, header.worker);
      if (step) finished_by_all = std::max(*step, finished_by_all.value_or(*step));
    }
    base = finished_by_all.value_or(highest_);
  }
  const auto member = members_.find(header.worker);
  const bool is_same = member != members_.end() && member->second.incarnation == header.incarnation;
  for (auto& [index, held] : held_) {
    int64_t& finished = held.finished[header.worker];
    finished = is_same ? std::max(finished, base) : base;
    if (!is_same) held.combined[header.worker] = held.version;
  }
  if (!is_same) away_.erase(header.worker);
  members_[header.worker] = {header.incarnation, base};
}

std::optional<int64_t> ShardState::slowest(const Held& held, std::optional<uint32_t> except) const {
  std::optional<int64_t> least;
  for (const auto& [worker, step] : held.finished) {
    if (worker != except) least = std::min(step, least.value_or(step));
  }
  return least;
}

void ShardState::complete_steps(Held& held) {
  while (!held.waiting.empty()) {
    const auto first = held.waiting.begin();
    const auto least = slowest(held, std::nullopt);
    // A worker has not pushed this step.
    if (least && *least < first->first) return;
    std::vector<const Frame*> pushes;
    // By worker, which fixes the order of the sum.
    for (const auto& [worker, push] : first->second) pushes.push_back(&push);
    update(held, pushes);
    held.waiting.erase(first);
  }
}

void ShardState::update(Held& held, std::span<const Frame* const> pushes) {
  const PushSum sum = sum_pushes(held.piece, pushes);
  ++held.version;
  held.update->apply(held.weights, {.rows = sum.rows, .values = sum.values},
                     pushes.front()->header.learning_rate, held.version);
  held.published.reset();
}

std::vector<Frame> ShardState::departures(const std::map<uint32_t, uint32_t>& workers) const {
  std::vector<Frame> events;
  for (const auto& [worker, member] : members_) {
    const auto found = workers.find(worker);
    // Gone, or replaced by a newer process.
    if (found != workers.end() && found->second <= member.incarnation) continue;
    Frame event;
    event.header = {.kind = FrameKind::kEvent,
                    .part = static_cast<uint16_t>(EventKind::kLeave),
                    .shard = static_cast<uint32_t>(shard_),
                    .worker = worker,
                    .incarnation = member.incarnation};
    events.push_back(std::move(event));
  }
  return events;
}

void ShardState::check_pull(const Frame& pull) const {
  check_step(pull.header, 0);
  check_rows(rows_in(pull), find(pull.header.piece).piece.rows);
}

bool ShardState::may_pull(uint32_t worker, uint32_t piece, int64_t step) const {
  const Held& held = find(piece);
  // Pulls of the initial weights are allowed at any time.
  if (step == 0) return true;
  const auto own = held.finished.find(worker);
  // Its own push of the step before must be in the weights.
  if (own == held.finished.end() || own->second < step - 1) return false;
  if (has_rounds()) return waiting_base(held, worker) != held.version;
  const auto least = slowest(held, worker);
  return consistency_.staleness == kAsynchronous || !least ||
         *least >= step - 1 - consistency_.staleness;
}

int64_t ShardState::steps_ahead(uint32_t worker, uint32_t piece, int64_t step) const {
  const auto least = slowest(find(piece), worker);
  return least ? std::max<int64_t>(0, step - 1 - *least) : 0;
}

at::Tensor ShardState::weights(uint32_t piece) {
  Held& held = find(piece);
  // Copied once per version: all workers pull the same bytes.
  if (!held.published.defined()) held.published = bytes_of(held.weights.clone());
  return held.published;
}

at::Tensor ShardState::rows(uint32_t piece, std::span<const int64_t> rows) const {
  const Held& held = find(piece);
  check_rows(rows, held.piece.rows);
  const int64_t row_bytes = held.piece.row_bytes();
  at::Tensor bytes = at::empty({std::ssize(rows) * row_bytes}, at::kByte);
  auto* to = static_cast<uint8_t*>(bytes.data_ptr());
  const auto* const from = static_cast<const uint8_t*>(held.weights.const_data_ptr());
  for (const int64_t row : rows) {
    std::memcpy(to, from + row * row_bytes, static_cast<size_t>(row_bytes));
    to += row_bytes;
  }
  return bytes;
}

std::optional<at::Tensor> ShardState::state(const Frame& pull) const {
  const Held& held = find(pull.header.piece);
  const std::vector<PieceState> states = held.update->states();
  if (pull.header.num_rows >= states.size()) return std::nullopt;
  const at::Tensor& values = states[pull.header.num_rows].values;
  const std::vector<int64_t> range = numbers_of(pull, 2);  // first row, number of rows
  if (range.empty()) return values.clone();
  const bool fits = range.size() == 2 && range[0] >= 0 && range[1] >= 0 &&
                    range[0] <= held.piece.rows && range[1] <= held.piece.rows - range[0];
  TRIREME_CHECK(fits, "a worker requested optimizer states beyond the ", held.piece.rows,
                " rows of piece ", pull.header.piece);
  return values.reshape({held.piece.rows, -1}).narrow(0, range[0], range[1]).clone();
}

}  // namespace trireme::parallel
