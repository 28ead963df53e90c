// A server: owns shards of the parameters, applies the update rule to the gradients that workers
// push, and answers pulls. Serves in a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/parallel/server/server_options.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel {

struct ParameterServerOptions {
  std::string director;  // address
  // The shard whose chain this server heads at the start, from 0. Servers that join later may have
  // any number.
  uint32_t number = 0;
  std::string host = "127.0.0.1";  // to listen on
  // New file for the order of events; empty: no log. Its folder must exist.
  std::filesystem::path log{};
  // Log of an earlier run of this server, whose order it repeats; empty: no replay.
  std::filesystem::path replay{};
};

struct ServerCounts {
  int64_t sent_bytes = 0;  // frames with their headers, without beats
  int64_t received_bytes = 0;
  int64_t events = 0;  // applied to any of its copies
  StalenessCounts staleness{};
};

// Comm, per step, synchronous or not, for W workers and m bytes in p pieces on this server:
//   received W (m + 64p) of pushes and 64 W p of requests; sent W (m + 64p) of weights and 64 W p
//   of acknowledgements. In a chain, each server except the tail also sends W (m + 64p), and each
//   except the head sends 64 W p back. For a sparse piece, m is replaced by 8 + row bytes per
//   pushed row, and by 8 bytes received and the row's bytes sent per pulled row.
class ParameterServer {
 public:
  // Reads the replayed log, makes the pieces that this server has at the start, and listens.
  // Registers with the director in the background. The server's own thread makes pieces of later
  // copies.
  // Throws: ConfigError (host, replay), Error (log), and what `make` throws
  ParameterServer(const ServerRun& run, MakePiece make, const ParameterServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Waits for up to `limit` until the director ends the run. False: the run goes on.
  // Throws: CommError if the director is lost or has removed this server, or if the run has ended
  //         with a problem; Error if the log cannot be written; what an update rule throws
  bool wait_for(std::chrono::milliseconds limit);
  // The same without a limit.
  void wait();

  ServerCounts counts() const;  // any thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::parallel
