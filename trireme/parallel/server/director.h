// Decides who is where: it sees servers and workers come and go, and tells all of them the next
// numbered view. It holds no parameters, and nothing passes through it. One per run; the run ends
// with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/parallel/server/server_options.h"

namespace trireme::parallel {

struct DirectorOptions {
  int64_t workers = 1;             // that the run starts with, numbered from 0
  std::string host = "127.0.0.1";  // to listen on
};

struct DirectorCounts {
  int64_t view = 0;  // 0: not all have come yet
  int64_t servers = 0;
  int64_t workers = 0;
  int64_t servers_lost = 0;
  int64_t workers_lost = 0;  // without a goodbye
  bool is_whole = false;     // every shard has all its copies
};

class Director {
 public:
  // Serves in a thread of its own. The first view comes when run.shards servers and all workers
  // have registered.
  // Throws: ConfigError when the host is not this machine's, or copies exceed servers
  Director(const ServerRun& run, const DirectorOptions& options);
  ~Director();  // members see a lost director, unless end() came first
  Director(const Director&) = delete;
  Director& operator=(const Director&) = delete;

  const std::string& address() const;  // "tcp://HOST:PORT"
  DirectorCounts counts() const;       // any thread
  // Tells servers and workers that the run is over. Their calls return or throw `problem`.
  void end(const std::string& problem = "");

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::parallel
