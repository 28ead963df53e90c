// A server: owns shards of the parameters, applies the update rule to what workers push, and
// answers pulls. Serves in a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/parallel/server/server_options.h"
#include "trireme/parallel/server/state/piece_update.h"

namespace trireme::parallel {

struct ParameterServerOptions {
  std::string director;  // its address
  // Which shard's chain it heads at the start, from 0. Servers that come later have any number.
  uint32_t number = 0;
  std::string host = "127.0.0.1";  // to listen on
  // A new file for the order of events; empty: none. Its folder must exist.
  std::filesystem::path log{};
  // The log of an earlier run of this server, whose order it keeps; empty: none.
  std::filesystem::path replay{};
};

struct ServerCounts {
  int64_t sent_bytes = 0;  // frames with their headers, without the signs of life
  int64_t received_bytes = 0;
  int64_t events = 0;  // applied to any of its copies
  StalenessCounts staleness{};
};

// Comm, for M bytes of parameters in P pieces, of which this server's shards have m and p, and W
// workers; synchronous or not, per step:
//   received W (m + 64p) pushed, 64 W p asked for; sent W (m + 64p) of weights, 64 W p acknowledged
//   in a chain of r copies each link but the tail sends W (m + 64p) more, and each but the head
//   sends 64 W p back
// A sparse piece has, instead of m, 8 + row bytes for each row that is pushed; and where rows are
// pulled, 8 bytes for each row asked for and its own in the answer.
class ParameterServer {
 public:
  // Reads the replay's log, makes the pieces that it has at the start and listens. Registers with the
  // director in the background. Pieces of later copies are made by the server's own thread.
  // Throws: ConfigError (host, replay), Error (log), and what `make` throws
  ParameterServer(const ServerRun& run, MakePiece make, const ParameterServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Waits until the director ends the run. False: it goes on after `limit`.
  // Throws: CommError when the director is lost or has given this server up, or the run has ended
  //         with a problem; Error when the log cannot be written; ConfigError when the replayed log
  //         is of another run; what an update rule throws
  bool wait_for(std::chrono::milliseconds limit);
  // The same without a limit.
  void wait();

  ServerCounts counts() const;  // any thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::parallel
