#include "trireme/parallel/server/replica.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::parallel {

ReplayOrder::ReplayOrder(const std::filesystem::path& path, const std::string& config)
    : path_(path.string()), log_(read_server_log(path, config)) {}

const LogRecord* ReplayOrder::next() const {
  return at_ < log_.records.size() ? &log_.records[at_] : nullptr;
}

void ReplayOrder::add(LogKind kind, Request request) {
  const FrameHeader& header = request.frame.header;
  // The step of an advance is only a question of the worker. The log has the answer.
  const int64_t step = kind == LogKind::kAdvance ? 0 : header.step;
  std::deque<Request>& waiting = arrived_[Key(kind, header.worker, header.piece, step)];
  // Sent again after a change of the view, while the first one waits for its turn.
  if (kind != LogKind::kAdvance) waiting.clear();
  waiting.push_back(std::move(request));
}

std::optional<Request> ReplayOrder::take() {
  const LogRecord* const record = next();
  if (record == nullptr) return std::nullopt;
  const int64_t step = record->kind == LogKind::kAdvance ? 0 : record->step;
  const auto found = arrived_.find(Key(record->kind, record->worker, record->piece, step));
  if (found == arrived_.end()) return std::nullopt;
  Request request = std::move(found->second.front());
  found->second.pop_front();
  // Requests of a key come in order, so the first is the one meant.
  if (found->second.empty()) arrived_.erase(found);
  ++at_;
  return request;
}

std::optional<Request> ReplayOrder::take_surplus() {
  if (next() != nullptr || arrived_.empty()) return std::nullopt;
  Request request = std::move(arrived_.begin()->second.front());
  arrived_.begin()->second.pop_front();
  if (arrived_.begin()->second.empty()) arrived_.erase(arrived_.begin());
  return request;
}

std::string ReplayOrder::place() const {
  return concat(path_, ": event ", at_, " of ", log_.records.size());
}

// The rules of chain replication: only the head numbers events, every copy applies them in that
// order, and only the tail acknowledges. What is acknowledged is therefore at every copy, and any
// of them may become head or tail. window_ has the events that the tail may lack. After each change
// of the chain a copy sends its successor what is missing from there, or all of its state when the
// window does not reach back far enough. A new tail acknowledges its whole window again, because
// nobody knows what the old one had still said; workers drop answers that they have had. The
// histories that broke earlier versions are tests (replica_test.cc).

namespace {

LogKind log_kind(const FrameHeader& event) {
  switch (static_cast<EventKind>(event.part)) {
    case EventKind::kAdvance: return LogKind::kAdvance;
    case EventKind::kLeave: return LogKind::kLeave;
    case EventKind::kPush: return LogKind::kPush;
    case EventKind::kAway: return LogKind::kAway;
    case EventKind::kClose: return LogKind::kClose;
  }
  throw InternalError("an event without a kind");
}

}  // namespace

Replica::Replica(std::unique_ptr<ShardState> state, int64_t shard, ReplicaPort& port,
                 ReplayOrder* replay)
    : state_(std::move(state)), shard_(shard), port_(port), replay_(replay) {}

LogRecord Replica::record_of(LogKind kind, const FrameHeader& header, int64_t number) const {
  return {.kind = kind,
          .shard = static_cast<uint32_t>(shard_),
          .worker = header.worker,
          .incarnation = header.incarnation,
          .piece = header.piece,
          .step = header.step,
          .number = number};
}

void Replica::start(const std::map<uint32_t, uint32_t>& workers) {
  for (const auto& [worker, incarnation] : workers) {
    Frame event;
    event.header = {.kind = FrameKind::kEvent,
                    .part = static_cast<uint16_t>(EventKind::kAdvance),
                    .shard = static_cast<uint32_t>(shard_),
                    .worker = worker,
                    .incarnation = incarnation};
    state_->apply(event);
  }
  done_ = state_->sequence();
  is_whole_ = true;
}

void Replica::take_place(const View& view, uint32_t id) {
  const std::vector<uint32_t>& chain = view.chains.at(static_cast<size_t>(shard_));
  if (chain != chain_) {
    const auto self = std::ranges::find(chain, id);
    const auto before =
        self == chain.begin() ? std::nullopt : std::optional<uint32_t>(*std::prev(self));
    const auto after =
        std::next(self) == chain.end() ? std::nullopt : std::optional<uint32_t>(*std::next(self));
    // The neighbour is another process, or has to introduce itself anew.
    if (before != predecessor_) predecessor_peer_ = 0;
    if (after != successor_) successor_peer_ = 0;
    if (after != successor_) is_successor_ready_ = false;
    chain_ = chain;
    predecessor_ = before;
    successor_ = after;
    // The previous tail may have died between applying and acknowledging.
    if (is_tail() && is_whole_) {  // also what the previous tail may have acknowledged
      for (const Frame& event : window_) acknowledge(event);
      done_up_to(state_->sequence());
      flush_confirms();
    }
    if (!is_tail()) {  // workers ask the new tail
      pulls_.clear();
      state_pulls_.clear();
    }
  }
  workers_ = view.workers;
  if (is_head() && is_whole_) remove_departed(workers_);
}

void Replica::remove_departed(const std::map<uint32_t, uint32_t>& workers) {
  // The log of the replayed run says when a worker left.
  if (replay_ != nullptr && replay_->next() != nullptr) return;  // the log says when
  for (Frame& event : state_->departures(workers)) commit(std::move(event));
}

void Replica::connect_successor(PeerId peer, uint32_t view, uint32_t own_id) {
  successor_peer_ = peer;
  is_successor_ready_ = false;
  Frame frame;
  frame.header = {.kind = FrameKind::kAttach,
                  .shard = static_cast<uint32_t>(shard_),
                  .view = view,
                  .piece = own_id};
  port_.send(peer, std::move(frame), 0);
}

void Replica::on_forwarded(PeerId peer, Frame frame) {
  // Of a neighbour of an earlier view, or sent twice after a change.
  if (peer != predecessor_peer_ || frame.header.sequence <= state_->sequence()) return;
  TRIREME_ASSERT(frame.header.sequence == state_->sequence() + 1, "a chain has lost an event");
  commit(std::move(frame));
}

// An event may arrive after the view that lacks its worker. If it were applied then, the others
// would wait for a worker that no later view removes.
bool Replica::takes_part(const FrameHeader& event) const {
  const auto worker = workers_.find(event.worker);
  return worker != workers_.end() && worker->second == event.incarnation;
}

void Replica::on_event(PeerId peer, Frame frame) {
  // Not refused: the worker's view is older or newer than this one.
  if (!is_head() || !is_whole_) return;  // the worker sends it again in the next view
  const ShardState::Verdict verdict = state_->judge(frame);
  if (verdict == ShardState::Verdict::kStranger || !takes_part(frame.header)) {
    return refuse(peer, Refusal::kWorker,
                  concat("worker ", frame.header.worker, " (incarnation ", frame.header.incarnation,
                         ") is no longer in the run; start it again"));
  }
  // It was applied before; only the answer was lost.
  if (verdict == ShardState::Verdict::kDuplicate) return confirm(std::move(frame));
  if (replay_ != nullptr) {
    const LogKind kind = log_kind(frame.header);
    replay_->add(kind, {peer, std::move(frame)});
    return replay();
  }
  frame.header.sequence = state_->sequence() + 1;
  commit(std::move(frame));
}

void Replica::commit(Frame event) {
  event.header.sequence = state_->sequence() + 1;
  event.header.view = 0;  // a successor must not hold it back and take later ones first
  state_->apply(event);
  for (const int64_t rounds : state_->take_staleness()) {
    if (is_tail()) port_.count_staleness(rounds);
  }
  LogRecord record = record_of(log_kind(event.header), event.header, event.header.sequence);
  if (record.kind == LogKind::kAdvance) record.step = state_->members().at(record.worker).base;
  port_.log(record);
  if (is_tail()) {
    acknowledge(event);
    done_up_to(event.header.sequence);
  } else {
    if (is_successor_ready_) port_.send(successor_peer_, event, 0);
    // Kept until the tail has it.
    window_.push_back(std::move(event));
  }
  // A push opens one piece; a member that comes or goes may open all.
  record.kind == LogKind::kPush ? answer_waiting(record.piece) : answer_all_waiting();
}

void Replica::acknowledge(const Frame& event) {
  FrameHeader header = event.header;
  const auto kind = static_cast<EventKind>(header.part);
  if (kind == EventKind::kLeave || kind == EventKind::kClose) return;
  if (kind == EventKind::kAdvance) {
    const auto member = state_->members().find(header.worker);
    if (member == state_->members().end()) return;
    header.step = member->second.base;
  }
  header.kind = FrameKind::kDone;
  port_.send_to_worker(header.worker, Frame{header, {}});
}

// The worker does not know that `event` is done; the event itself may still be on its way. The
// frame keeps the worker's view, so that a server that does not have that view yet does not send
// the frame to a dead successor.
void Replica::confirm(Frame event) {
  event.payload.reset();
  if (is_tail()) return acknowledge(event);
  event.header.kind = FrameKind::kConfirm;
  // It has not said yet what it has, so order with the events is not known.
  if (!is_successor_ready_) return confirms_.push_back(std::move(event));
  port_.send(successor_peer_, std::move(event), 0);
}

void Replica::flush_confirms() {
  for (Frame& event : std::exchange(confirms_, {})) confirm(std::move(event));
}

void Replica::done_up_to(int64_t sequence) {
  done_ = std::max(done_, sequence);
  // The tail has them: no successor will ask.
  while (!window_.empty() && window_.front().header.sequence <= done_) window_.pop_front();
  if (predecessor_peer_ == 0) return;
  Frame frame;
  frame.header = {
      .kind = FrameKind::kEventDone, .shard = static_cast<uint32_t>(shard_), .sequence = done_};
  port_.send(predecessor_peer_, std::move(frame), 0);
}

void Replica::on_attach(PeerId peer, const Frame& frame) {
  if (frame.header.piece != predecessor_) return;  // of an earlier view
  predecessor_peer_ = peer;
  Frame answer;
  answer.header = {.kind = FrameKind::kHave,
                   .shard = static_cast<uint32_t>(shard_),
                   .sequence = is_whole_ ? state_->sequence() : -1};
  port_.send(peer, std::move(answer), 0);
  if (is_whole_ && is_tail()) done_up_to(state_->sequence());
  if (is_whole_ && !is_tail()) done_up_to(done_);
}

void Replica::on_have(PeerId peer, const Frame& frame) {
  if (peer != successor_peer_ || is_successor_ready_ || !is_whole_) return;
  const int64_t first = window_.empty() ? state_->sequence() + 1 : window_.front().header.sequence;
  // The window does not reach back: all of it.
  if (frame.header.sequence < first - 1) {
    for (Frame& part : state_->snapshot()) port_.send(peer, std::move(part), 0);
    // The successor acknowledges only what comes as an event, and these events are part of the
    // snapshot. Workers resend only what they had sent to an earlier chain.
    confirms_.insert(confirms_.end(), window_.begin(), window_.end());
  } else {
    for (const Frame& event : window_) {
      if (event.header.sequence > frame.header.sequence) port_.send(peer, event, 0);
    }
  }
  is_successor_ready_ = true;
  flush_confirms();
}

void Replica::on_event_done(PeerId peer, const Frame& frame) {
  if (peer == successor_peer_) done_up_to(std::min(frame.header.sequence, state_->sequence()));
}

void Replica::on_confirm(PeerId peer, Frame frame) {
  if (peer == predecessor_peer_) confirm(std::move(frame));
}

void Replica::on_snapshot(PeerId peer, const Frame& frame) {
  // A copy that is whole needs none.
  if (peer != predecessor_peer_ || is_whole_) return;
  if (!state_->load(frame)) return;
  is_whole_ = true;
  Frame filled;
  filled.header = {.kind = FrameKind::kFilled, .shard = static_cast<uint32_t>(shard_)};
  port_.tell_director(std::move(filled));
  if (is_tail()) done_up_to(state_->sequence());
  // Workers have asked while it was filled.
  answer_all_waiting();
  for (Request& pull : std::exchange(state_pulls_, {})) {
    on_pull_state(pull.peer, std::move(pull.frame));
  }
}

void Replica::on_tick(std::chrono::steady_clock::time_point now) {
  if (!is_head() || !is_whole_) return;
  // The log of the replayed run says when a grace was over.
  if (replay_ != nullptr && replay_->next() != nullptr) return;
  const std::map<uint32_t, int64_t> waiting = state_->in_grace();
  std::erase_if(graces_, [&](const auto& known) {
    const auto found = waiting.find(known.first);
    return found == waiting.end() || found->second != known.second.first;
  });
  for (const auto& [piece, version] : waiting) {
    const auto grace = graces_.try_emplace(piece, version, now + state_->grace()).first;
    if (now >= grace->second.second) commit(state_->closing(piece));
  }
}

void Replica::refuse(PeerId peer, Refusal kind, const std::string& reason) {
  Frame frame;
  frame.header = {.kind = FrameKind::kRefused, .part = static_cast<uint16_t>(kind)};
  frame.payload = bytes_of(reason);
  port_.send(peer, std::move(frame), 0);
}

}  // namespace trireme::parallel
