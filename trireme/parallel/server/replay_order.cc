#include "trireme/parallel/server/replay_order.h"

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {

ReplayOrder::ReplayOrder(const std::filesystem::path& path, const std::string& config)
    : path_(path.string()), log_(read_server_log(path, config)) {}

const LogRecord* ReplayOrder::next() const {
  return at_ < log_.records.size() ? &log_.records[at_] : nullptr;
}

void ReplayOrder::add(LogKind kind, Request request) {
  const FrameHeader& header = request.frame.header;
  // What a worker asks for with an advance is a question. The log has the answer.
  const int64_t step = kind == LogKind::kAdvance ? 0 : header.step;
  arrived_[Key(kind, header.worker, header.piece, step)].push_back(std::move(request));
}

std::optional<Request> ReplayOrder::take() {
  const LogRecord* const record = next();
  if (record == nullptr) return std::nullopt;
  const int64_t step = record->kind == LogKind::kAdvance ? 0 : record->step;
  const auto found = arrived_.find(Key(record->kind, record->worker, record->piece, step));
  if (found == arrived_.end()) return std::nullopt;
  Request request = std::move(found->second.front());
  found->second.pop_front();
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

}  // namespace trireme::parallel::inline internal
