// The parameter servers of a run: one on each of its last ranks, and the director on rank 0. They
// hold the run's model and optimizer in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/server/director.h"
#include "trireme/parallel/server/parameter_server.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/parallel/server/state/key_ranges.h"
#include "trireme/train/config/config.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {

// Not thread safe. The config and the world must outlive it.
// Collective: the constructor, begin(), start() and finish(), by every rank of the world
class ServerRanks {
 public:
  // Throws: ConfigError if ranks are on several hosts and one of them has no address
  ServerRanks(const RunConfig& config, comm::Communicator& world);

  int num_workers() const { return num_workers_; }
  // The index of this host among the workers' hosts, in the order of their first ranks.
  int host() const { return host_; }
  bool is_server() const { return world_.rank() >= num_workers_; }
  // The group of the workers or of the servers: the one of this rank.
  comm::Communicator& role() const { return *role_; }

  // Cuts the parameters into pieces and starts the director.
  // Throws: ConfigError if there are fewer pieces than servers
  void begin(const std::vector<parallel::ServedParameter>& parameters);
  // The pieces that this server has at the start.
  std::vector<parallel::Piece> own_pieces() const;
  // Starts the servers.
  // first_step: number of finished steps, after which the servers' logs are named
  // make: used on servers only
  // Throws: ConfigError on every rank if a server cannot read the log that it replays
  void start(int64_t first_step, const parallel::MakePiece& make);

  // Connects a worker; with parallel.host_sums, the first rank of a host; with learners, the first
  // of each.
  std::unique_ptr<parallel::ServerClient> connect() const;
  // Connects rank 0 again, to read from the servers once all workers have left.
  std::unique_ptr<parallel::ServerClient> connect_reader() const;

  // On a server: serves until the run ends.
  void serve() { server_->wait(); }
  // On rank 0: ends the run on all servers.
  void end() { director_->end(); }
  // Writes the histogram of staleness. Rank 0 writes that of all servers, also to `tell`, and every
  // rank returns rank 0's outcome. If servers may have died (parallel.server_copies > 1), each
  // server writes its own histogram, and each rank returns `outcome`.
  int finish(int outcome, const std::function<void(const std::string& line)>& tell);

 private:
  bool is_root() const { return world_.rank() == 0; }
  bool has_learners() const { return config_.parallel.learners > 1; }
  bool is_synchronous() const { return config_.parallel.staleness == 0 && !has_learners(); }
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

// A run's model and optimizer on parameter servers: pieces with the run's update rule.
// The shards that are trained; each is a whole parameter.
std::vector<const parallel::Shard*> trained_shards(std::span<const parallel::Shard> shards);
std::vector<parallel::ServedParameter> served_parameters(std::span<const parallel::Shard> shards);

// Makes pieces from the present weights of the shards and states of the optimizer. Elementwise
// rules give the same bits as the optimizer. The pieces share no memory with the model, which must
// outlive the returned function.
parallel::MakePiece make_pieces(const RunConfig& config, std::span<const parallel::Shard> shards,
                                const Optimizer& optimizer);

// Pulls the shards' weights and the optimizer's states from the servers.
void pull_into(parallel::ServerClient& client, std::span<const parallel::Shard> shards,
               const Optimizer& optimizer);

}  // namespace trireme::train
