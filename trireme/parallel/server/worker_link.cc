#include "trireme/parallel/server/worker_link.h"

#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/run_identity.h"

namespace trireme::parallel {

// A request and its answer have the same key.
OutstandingRequests::Key OutstandingRequests::key_of(const FrameHeader& header) {
  FrameKind kind = header.kind;
  if (kind == FrameKind::kDone) kind = FrameKind::kEvent;
  if (kind == FrameKind::kWeights) kind = FrameKind::kPull;
  if (kind == FrameKind::kState) kind = FrameKind::kPullState;
  const bool is_event = kind == FrameKind::kEvent;
  const bool is_advance = is_event && header.part == 1;
  const bool is_state = kind == FrameKind::kPullState;
  // An answer must match one request only. A pull of states has no step, and an event is told by
  // incarnation: a tail may acknowledge what an earlier process of the worker had sent.
  return {kind,
          header.part,
          header.shard,
          header.piece,
          is_state ? header.num_rows : (is_event ? header.incarnation : 0),
          is_advance || is_state ? 0 : header.step};
}

void OutstandingRequests::add(Outstanding request) {
  const Key key = key_of(request.frame.header);
  requests_[key] = std::move(request);
  due_.insert(key);
}

std::optional<Outstanding> OutstandingRequests::take(const Frame& answer) {
  const auto found = requests_.find(key_of(answer.header));
  if (found == requests_.end()) return std::nullopt;
  Outstanding request = std::move(found->second);
  due_.erase(found->first);
  requests_.erase(found);
  return request;
}

void OutstandingRequests::install(const View& view) {
  chains_.resize(view.chains.size());
  since_.resize(view.chains.size());
  for (size_t shard = 0; shard < view.chains.size(); ++shard) {
    // A chain that is as it was still has its requests.
    if (view.chains[shard] == chains_[shard]) continue;
    chains_[shard] = view.chains[shard];
    since_[shard] = view.number;
  }
  for (const auto& [key, request] : requests_) {
    if (request.sent_in != since_.at(request.frame.header.shard)) due_.insert(key);
  }
}

int64_t OutstandingRequests::send_due(const std::function<bool(uint32_t shard)>& reaches,
                                      const std::function<void(const Frame& frame)>& send) {
  int64_t num_again = 0;
  for (auto due = due_.begin(); due != due_.end();) {
    Outstanding& request = requests_.at(*due);
    const uint32_t shard = request.frame.header.shard;
    if (!reaches(shard)) {
      ++due;
      continue;
    }
    // Sent before, to a chain that has changed.
    if (request.sent_in != 0) {
      ++num_again;
      // The first one's answer may come while this one is written: then the caller may use its
      // memory again.
      at::Tensor& payload = request.frame.payload;
      if (payload.defined()) payload = payload.clone();
    }
    request.sent_in = since_.at(shard);
    send(request.frame);
    due = due_.erase(due);
  }
  return num_again;
}

WorkerLink::WorkerLink(const ServerRun& run, const ServerClientOptions& options)
    : run_(run), options_(options), hub_(hub_options(run, Role::kWorker), *this) {
  hub_.start();
  hub_.post([this] { director_ = hub_.connect(options_.director, options_.number); });
}

WorkerLink::~WorkerLink() { hub_.stop(); }

void WorkerLink::ask(std::vector<Outstanding> requests) {
  // std::function needs a copyable task.
  auto shared = std::make_shared<std::vector<Outstanding>>(std::move(requests));
  hub_.post([this, shared] {
    for (Outstanding& request : *shared) {
      request.frame.header.worker = options_.number;
      request.frame.header.incarnation = incarnation_;
      requests_.add(std::move(request));
    }
    send_due();
  });
}

void WorkerLink::wait(const std::string& what, const std::function<bool()>& is_done) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const bool is_over =
      condition_.wait_for(lock, run_.timeout, [&] { return !problem_.empty() || is_done(); });
  // Under the lock, so nothing comes between the condition and the answer.
  if (problem_.empty() && is_over) return;
  if (problem_.empty()) problem_ = concat("no answer; ", chain_text());
  const std::string text = concat(what, ", worker ", options_.number, ", after ",
                                  seconds_since(start), " s: ", problem_);
  // The user can help a wrong request, and a launcher a lost peer.
  if (is_refusal_) throw ConfigError(text);
  throw CommError(text);
}

std::string WorkerLink::chain_text() const {
  std::string text = concat("view ", view_.number, ":");
  for (const auto& [id, address] : view_.servers) text += concat(" server ", id, " at ", address);
  return text;
}

int64_t WorkerLink::resent() const {
  const std::lock_guard lock(mutex_);
  return resent_;
}

void WorkerLink::say_goodbye() {
  hub_.post([this] {
    Frame frame;
    frame.header.kind = FrameKind::kGoodbye;
    hub_.send(director_, std::move(frame));
  });
  hub_.stop(std::chrono::seconds(5));
}

void WorkerLink::fail(const std::string& problem, bool is_refusal) {
  const std::lock_guard lock(mutex_);
  if (!problem_.empty()) return;
  problem_ = problem;
  is_refusal_ = is_refusal;
  condition_.notify_all();
}

void WorkerLink::on_failed(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const std::exception& problem) {
    fail(problem.what(), false);
  } catch (...) {
    fail("the worker's link has failed", false);
  }
}

void WorkerLink::on_open(PeerId peer, Role, uint32_t) {
  if (peer == director_) {
    Frame frame;
    frame.header.kind = FrameKind::kRegister;
    // Requests that waited for this connection.
    return hub_.send(peer, std::move(frame));
  }
  for (auto& [id, link] : links_) link.is_open = link.is_open || link.peer == peer;
  send_due();
}

void WorkerLink::on_closed(PeerId peer, const std::string& reason) {
  if (peer == director_) {
    return fail(concat("the director at ", options_.director, ": ", reason), false);
  }
  for (const auto& [id, link] : links_) {
    if (link.peer != peer) continue;
    Frame suspect;
    suspect.header = {.kind = FrameKind::kSuspect, .piece = id};
    links_.erase(id);
    // The director decides; until its next view the requests wait.
    return hub_.send(director_, std::move(suspect));
  }
}

void WorkerLink::on_frame(PeerId peer, Frame frame) {
  if (peer == director_) return on_director(frame);
  if (frame.header.kind == FrameKind::kRefused) {
    return fail(text_of(frame.payload),
                frame.header.part == static_cast<uint16_t>(Refusal::kRequest));
  }
  // A late frame to an earlier process of this number.
  if (frame.header.worker != options_.number) return;
  const auto request = requests_.take(frame);
  if (!request) return;  // answered before, by the tail of another view
  const std::lock_guard lock(mutex_);
  // After a problem, no call waits, and the answer's destination may be gone.
  if (problem_.empty()) request->on_answer(frame);
  condition_.notify_all();
}

void WorkerLink::on_director(const Frame& frame) {
  if (frame.header.kind == FrameKind::kRegister) incarnation_ = frame.header.incarnation;
  if (frame.header.kind == FrameKind::kView) on_view(parse_view(text_of(frame.payload)));
  if (frame.header.kind == FrameKind::kEnd) {
    const std::string problem = text_of(frame.payload);
    fail(problem.empty() ? "the run has ended" : problem, false);
  }
}

void WorkerLink::on_view(View view) {
  TRIREME_CHECK(std::ssize(view.chains) == run_.shards, "a view has ", view.chains.size(),
                " shards; expected ", run_.shards);
  const auto self = view.workers.find(options_.number);
  if (self == view.workers.end() || self->second != incarnation_) {
    return fail("the director has removed this worker from the run", false);
  }
  // Before new connections: what was sent along a changed chain is due again.
  requests_.install(view);
  for (const auto& chain : view.chains) {
    // Events go to the head, pulls to the tail.
    for (const uint32_t id : {chain.front(), chain.back()}) {
      if (!links_.contains(id)) {
        links_[id].peer = hub_.connect(view.servers.at(id), options_.number);
      }
    }
  }
  {
    const std::lock_guard lock(mutex_);
    view_ = std::move(view);
    condition_.notify_all();
  }
  send_due();
}

void WorkerLink::send_due() {
  // Before the first view nobody is known.
  if (view_.number == 0) return;
  const auto is_open = [&](uint32_t id) {
    const auto link = links_.find(id);
    return link != links_.end() && link->second.is_open;
  };
  const auto reaches = [&](uint32_t shard) {
    const auto& chain = view_.chains.at(shard);
    return is_open(chain.front()) && is_open(chain.back());
  };
  const int64_t again = requests_.send_due(reaches, [&](const Frame& frame) {
    const auto& chain = view_.chains.at(frame.header.shard);
    const bool is_event = frame.header.kind == FrameKind::kEvent;
    Frame copy = frame;
    copy.header.view = view_.number;
    // The first layer's gradients first. The other requests are small.
    const bool is_push = frame.payload.defined();
    hub_.send(links_.at(is_event ? chain.front() : chain.back()).peer, std::move(copy),
              is_push ? 1 + int64_t{frame.header.piece} : 0);
  });
  const std::lock_guard lock(mutex_);
  resent_ += again;
}

}  // namespace trireme::parallel
