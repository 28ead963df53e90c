// Decides who is where: tracks servers and workers as they come and go, and sends all of them the
// next numbered view. Holds no parameters and forwards no data. There is one per run, and the run
// ends with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/parallel/server/server_options.h"

namespace trireme::parallel {

struct DirectorOptions {
  int64_t workers = 1;             // at the start of the run, numbered from 0
  std::string host = "127.0.0.1";  // to listen on
};

struct DirectorCounts {
  int64_t view = 0;  // 0: not everyone has registered yet
  int64_t servers = 0;
  int64_t workers = 0;
  int64_t servers_lost = 0;
  int64_t workers_lost = 0;  // without a goodbye
  bool is_whole = false;     // every shard has all its copies
};

class Director {
 public:
  // Serves in a thread of its own. Sends the first view once run.shards servers and all workers
  // have registered.
  // Throws: ConfigError if the host is not an address of this machine, or copies exceed servers
  Director(const ServerRun& run, const DirectorOptions& options);
  ~Director();  // without end(): as if the director had died
  Director(const Director&) = delete;
  Director& operator=(const Director&) = delete;

  const std::string& address() const;  // "tcp://HOST:PORT"
  DirectorCounts counts() const;       // any thread
  // Tells servers and workers that the run is over. Their calls return, or throw with `problem`.
  void end(const std::string& problem = "");

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::parallel
