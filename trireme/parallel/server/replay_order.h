// Holds back workers' requests until their turn in a log.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/log/server_log.h"

namespace trireme::parallel::inline internal {

struct Request {
  PeerId peer = 0;
  Frame frame;
};

class ReplayOrder {
 public:
  // Throws: as read_server_log()
  ReplayOrder(const std::filesystem::path& path, const std::string& config);

  // The next record of the log; null at its end.
  const LogRecord* next() const;
  void add(LogKind kind, Request request);
  // Returns the request that next() describes and moves on to the next record; empty while the
  // request has not come.
  std::optional<Request> take();
  // Moves on from a record without a request: a worker's departure.
  void skip() { ++at_; }
  // At the end of the log: a request that is not in it.
  std::optional<Request> take_surplus();

  // "server-log/from-0-server-0: event 17 of 2031", for errors.
  std::string place() const;

 private:
  using Key = std::tuple<LogKind, uint32_t, uint32_t, int64_t>;  // worker, piece, step

  std::string path_;
  ReadLog log_;
  size_t at_ = 0;
  std::map<Key, std::deque<Request>> arrived_;
};

}  // namespace trireme::parallel::inline internal
