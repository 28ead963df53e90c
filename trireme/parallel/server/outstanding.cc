#include "trireme/parallel/server/outstanding.h"

#include <utility>

namespace trireme::parallel::inline internal {

// A request and its answer have the same key.
OutstandingRequests::Key OutstandingRequests::key_of(const FrameHeader& header) {
  FrameKind kind = header.kind;
  if (kind == FrameKind::kDone) kind = FrameKind::kEvent;
  if (kind == FrameKind::kWeights) kind = FrameKind::kPull;
  if (kind == FrameKind::kState) kind = FrameKind::kPullState;
  const bool is_event = kind == FrameKind::kEvent;
  const bool is_advance = is_event && header.part == 1;
  const bool is_state = kind == FrameKind::kPullState;
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

}  // namespace trireme::parallel::inline internal
