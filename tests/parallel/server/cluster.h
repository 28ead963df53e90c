// A run with servers in the test's process: director, servers and workers are threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/parallel/server/director.h"
#include "trireme/parallel/server/parameter_server.h"
#include "trireme/parallel/server/server_client.h"

namespace trireme::parallel::server_test {

// w -= learning_rate * m with m = 0.9 m + g: has a state, so that copies of it show.
class Momentum final : public PieceUpdate {
 public:
  explicit Momentum(const at::Tensor& weights);
  void apply(at::Tensor& weights, const PieceGradient& gradient, double learning_rate,
             int64_t step) override;
  std::vector<PieceState> states() override { return {{"momentum_buffer", momentum_}}; }

 private:
  at::Tensor momentum_;
};

// Element i of a parameter begins as sin(i + parameter).
at::Tensor initial_weights(const ServedParameter& parameter, int64_t index);
MakePiece momentum_pieces(std::vector<ServedParameter> parameters);

// A few dense parameters of odd sizes, one of which has several pieces.
std::vector<ServedParameter> small_parameters(c10::ScalarType dtype = c10::kFloat);

struct ClusterOptions {
  int64_t servers = 1;
  int64_t workers = 1;
  int64_t copies = 1;
  int64_t staleness = 0;
  int64_t quorum = 0;  // 0: no rounds
  std::chrono::milliseconds grace{0};
  std::vector<ServedParameter> parameters{};  // empty: small_parameters()
  std::vector<double> shares{};               // empty: equal ones
  int64_t max_piece_bytes = 256;
  std::string log{};     // folder; server i writes <log>/<i>
  std::string replay{};  // the same
  std::chrono::milliseconds timeout{20'000};
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  const ServerRun& run() const { return run_; }
  const std::vector<ServedParameter>& parameters() const { return parameters_; }
  Director& director() { return *director_; }
  ParameterServer& server(size_t i) { return *servers_.at(i); }
  void remove_server(size_t i) { servers_.at(i).reset(); }
  size_t add_server();

  // Runs `work` on every worker, each in a thread; rethrows the first failure.
  void run_workers(const std::function<void(uint32_t worker, ServerClient& client)>& work);
  std::unique_ptr<ServerClient> connect(uint32_t worker);
  // Undefined tensors to pull into.
  std::vector<at::Tensor> empty_weights() const;
  std::vector<at::Tensor> pull_now();  // what the servers have, by a worker that comes and goes
  StalenessCounts staleness();
  // Waits until `is_true`, and fails the test after a while.
  static void eventually(const std::function<bool()>& is_true, const char* what);

 private:
  ServerRun run_;
  ClusterOptions options_;
  std::vector<ServedParameter> parameters_;
  std::unique_ptr<Director> director_;
  std::vector<std::unique_ptr<ParameterServer>> servers_;
};

// Gradient of `worker` in `step`, a function of the weights.
at::Tensor gradient_of(const at::Tensor& weights, uint32_t worker, int64_t step);

// Trains: pull, gradient, push.
void train(ServerClient& client, uint32_t worker, std::vector<at::Tensor> weights, int64_t first,
           int64_t last);

}  // namespace trireme::parallel::server_test
