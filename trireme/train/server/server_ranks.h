// The parameter servers of a run: its last ranks, each with a server, and the director on rank 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/server/director.h"
#include "trireme/parallel/server/parameter_server.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// Not thread safe. The config and the world must outlive it.
// Collective: the constructor, begin(), start() and finish(), by every rank of the world
class ServerRanks {
 public:
  // Throws: ConfigError when ranks are on several hosts, and one knows no address of its own
  ServerRanks(const RunConfig& config, comm::Communicator& world);

  int num_workers() const { return num_workers_; }
  // Which of the workers' hosts this one is, in the order of their first ranks.
  int host() const { return host_; }
  bool is_server() const { return world_.rank() >= num_workers_; }
  // The workers, or the servers.
  comm::Communicator& role() { return *role_; }

  // Cuts the parameters into pieces, and begins the director.
  // Throws: ConfigError when there are fewer pieces than servers
  void begin(const std::vector<parallel::ServedParameter>& parameters);
  // Those that this server has at the start.
  std::vector<parallel::Piece> own_pieces() const;
  // first_step: finished steps; the servers' logs are named by it. make: of servers
  // Throws: ConfigError on every rank when a server cannot read the log that it replays
  void start(int64_t first_step, const parallel::MakePiece& make);

  // A worker's client; with parallel.host_sums that of its host's first rank.
  std::unique_ptr<parallel::ServerClient> connect() const;
  // Rank 0's, to read what the servers have when all workers have left.
  std::unique_ptr<parallel::ServerClient> connect_reader() const;

  // A server serves until the run ends.
  void serve() { server_->wait(); }
  // Rank 0 ends the run of all servers.
  void end() { director_->end(); }
  // Writes the histogram of staleness: rank 0 that of all servers, which it tells; where servers
  // may have died (parallel.server_copies), each its own. Returns rank 0's outcome; there, the own.
  int finish(int outcome, const std::function<void(const std::string& line)>& tell);

 private:
  bool is_root() const { return world_.rank() == 0; }
  bool is_synchronous() const { return config_.parallel.staleness == 0; }
  std::filesystem::path log_path(int64_t server) const;
  void write_histogram(const std::string& name, const parallel::StalenessCounts& counts) const;

  const RunConfig& config_;
  comm::Communicator& world_;
  int num_workers_;
  std::unique_ptr<comm::Communicator> role_;
  int host_ = 0;
  int num_worker_hosts_ = 0;
  std::string listens_on_ = "127.0.0.1";
  int64_t first_step_ = 0;
  parallel::ServerRun run_;
  std::unique_ptr<parallel::Director> director_;  // rank 0
  std::string address_;                           // the director's
  std::unique_ptr<parallel::ParameterServer> server_;
};

}  // namespace trireme::train::inline internal
