// Holds back what workers ask of a server until its turn in a log has come.
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

  // What the log has next; null: the log is over.
  const LogRecord* next() const;
  void add(LogKind kind, Request request);
  // The request that next() describes, once it has come; goes on to the record after it.
  std::optional<Request> take();
  // The same for a record that nobody asks for, a worker's departure.
  void skip() { ++at_; }
  // After the end of the log: a request that it does not have.
  std::optional<Request> take_surplus();

  // "server-log/server-0.log: event 17 of 2,031: ...", for errors.
  std::string place() const;

 private:
  using Key = std::tuple<LogKind, uint32_t, uint32_t, int64_t>;  // worker, piece, step

  std::string path_;
  ReadLog log_;
  size_t at_ = 0;
  std::map<Key, std::deque<Request>> arrived_;
};

}  // namespace trireme::parallel::inline internal
