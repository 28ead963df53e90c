// A replica's answers to pulls, and the replay of an earlier run.
#include <utility>

#include "trireme/base/error.h"
#include "trireme/parallel/server/replica.h"
#include "trireme/parallel/server/state/shard_state.h"

namespace trireme::parallel {
namespace {

FrameHeader answer_to(const FrameHeader& pull, FrameKind kind, int64_t version) {
  return {.kind = kind,
          .part = pull.part,
          .shard = pull.shard,
          .worker = pull.worker,
          .piece = pull.piece,
          .sequence = version};
}

}  // namespace

void Replica::on_pull(PeerId peer, Frame frame) {
  // Of a view in which this was the tail. The worker asks again.
  if (!is_tail()) return;
  state_->check_pull(frame);
  if (replay_ != nullptr && frame.header.step > 0) {
    replay_->add(LogKind::kPull, {peer, std::move(frame)});
    return replay();
  }
  const uint32_t piece = frame.header.piece;
  pulls_[piece].push_back({peer, std::move(frame)});
  answer_waiting(piece);
}

void Replica::answer_waiting(uint32_t piece) {
  const auto pulls = pulls_.find(piece);
  if (pulls == pulls_.end() || !is_tail() || !is_whole_) return;
  // Not in order: a pull that is allowed need not wait for one that is not.
  std::erase_if(pulls->second, [&](const Request& pull) {
    const FrameHeader& header = pull.frame.header;
    if (!state_->may_pull(header.worker, header.piece, header.step)) return false;
    answer(pull.peer, pull.frame);
    return true;
  });
}

void Replica::answer_all_waiting() {
  for (const auto& [piece, pulls] : pulls_) answer_waiting(piece);
}

void Replica::answer(PeerId peer, const Frame& pull) {
  const FrameHeader& header = pull.header;
  const int64_t version = state_->version(header.piece);
  if (header.step > 0) {
    if (!state_->has_rounds()) {
      port_.count_staleness(state_->steps_ahead(header.worker, header.piece, header.step));
    }
    port_.log(record_of(LogKind::kPull, header, version));
  }
  Frame weights;
  weights.header = answer_to(header, FrameKind::kWeights, version);
  weights.header.step = header.step;
  weights.header.base = state_->is_waiting(header.piece, header.worker) ? 1 : 0;
  weights.header.num_rows = static_cast<uint32_t>(state_->num_combined(header.piece));
  const bool wants_all = header.num_rows == 0;
  weights.payload =
      wants_all ? state_->weights(header.piece) : state_->rows(header.piece, rows_in(pull));
  // By piece: the first layer's weights are needed first.
  port_.send(peer, std::move(weights), 1 + int64_t{header.piece});
}

void Replica::on_pull_state(PeerId peer, Frame frame) {
  if (!is_tail()) return;
  const auto state = state_->state(frame);
  // A copy that is not whole has no right answer.
  if (!is_whole_) return state_pulls_.push_back({peer, std::move(frame)});
  const FrameHeader& header = frame.header;
  Frame answer;
  answer.header = answer_to(header, FrameKind::kState, state_->version(header.piece));
  answer.header.num_rows = header.num_rows;
  answer.header.step = state ? 1 : 0;
  if (state) answer.payload = bytes_of(*state);
  port_.send(peer, std::move(answer), 0);
}

void Replica::replay() {
  while (const LogRecord* const record = replay_->next()) {
    if (record->kind == LogKind::kLeave || record->kind == LogKind::kClose) {
      const bool leaves = record->kind == LogKind::kLeave;
      Frame event;
      event.header = {.kind = FrameKind::kEvent,
                      .part = static_cast<uint16_t>(leaves ? EventKind::kLeave : EventKind::kClose),
                      .shard = static_cast<uint32_t>(shard_),
                      .worker = record->worker,
                      .incarnation = record->incarnation,
                      .piece = record->piece,
                      .step = record->step};
      // Before commit(), which looks at what comes next in the log.
      replay_->skip();
      if (state_->judge(event) == ShardState::Verdict::kNew) commit(std::move(event));
      continue;
    }
    const LogRecord expected = *record;
    auto request = replay_->take();
    if (!request) return;
    replay_one(expected, std::move(*request));
  }
  while (auto request = replay_->take_surplus()) {
    refuse(request->peer, Refusal::kRequest,
           concat(replay_->place(),
                  ": the log ends here; train only as many steps as the run that wrote it"));
  }
}

void Replica::replay_one(const LogRecord& record, Request request) {
  const FrameHeader& header = request.frame.header;
  bool is_same = false;
  if (record.kind == LogKind::kPull) {
    is_same = state_->may_pull(header.worker, header.piece, header.step) &&
              state_->version(header.piece) == record.number;
    if (is_same) answer(request.peer, request.frame);
  } else {
    is_same = state_->judge(request.frame) == ShardState::Verdict::kNew &&
              record.number == state_->sequence() + 1;
    if (is_same) commit(std::move(request.frame));
  }
  TRIREME_CHECK(is_same, replay_->place(), ": the request of worker ", record.worker, " in step ",
                record.step, " does not fit here; replay the log of the same run");
}

}  // namespace trireme::parallel
