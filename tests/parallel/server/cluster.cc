#include "tests/parallel/server/cluster.h"

#include <exception>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel::server_test {

Momentum::Momentum(const at::Tensor& weights) : momentum_(at::zeros_like(weights)) {}

void Momentum::apply(at::Tensor& weights, const PieceGradient& gradient, double learning_rate,
                     int64_t) {
  if (gradient.rows.empty() && gradient.values.size(0) != weights.size(0)) return;
  if (gradient.rows.empty()) {
    momentum_.mul_(0.9).add_(gradient.values);
    weights.sub_(momentum_, learning_rate);
    return;
  }
  for (size_t i = 0; i < gradient.rows.size(); ++i) {
    at::Tensor row = momentum_[gradient.rows[i]];
    row.mul_(0.9).add_(gradient.values[static_cast<int64_t>(i)]);
    weights[gradient.rows[i]].sub_(row, learning_rate);
  }
}

at::Tensor initial_weights(const ServedParameter& parameter, int64_t index) {
  const int64_t count = parameter.rows * parameter.width;
  return at::sin(at::arange(count, at::kDouble) + static_cast<double>(index))
      .to(parameter.dtype)
      .view({parameter.rows, parameter.width});
}

MakePiece momentum_pieces(std::vector<ServedParameter> parameters) {
  return [parameters](const Piece& piece, int64_t) {
    const auto index = static_cast<size_t>(piece.parameter);
    at::Tensor weights = initial_weights(parameters[index], piece.parameter)
                             .narrow(0, piece.first_row, piece.rows)
                             .contiguous()
                             .clone();
    auto update = std::make_unique<Momentum>(weights);
    return ServedPiece{std::move(weights), std::move(update)};
  };
}

std::vector<ServedParameter> small_parameters(c10::ScalarType dtype) {
  return {{"first", 7, 1, dtype},
          {"second", 300, 1, dtype},
          {"third", 1, 1, dtype},
          {"fourth", 65, 1, dtype}};
}

Cluster::Cluster(const ClusterOptions& options) : options_(options) {
  parameters_ = options.parameters.empty() ? small_parameters() : options.parameters;
  std::vector<double> shares = options.shares;
  shares.resize(static_cast<size_t>(options.servers), 1.0);
  run_ = {.pieces = key_ranges(parameters_, shares, options.max_piece_bytes),
          .shards = options.servers,
          .copies = options.copies,
          .consistency = {options.staleness, options.quorum, options.grace},
          .secret = "secret of the test",
          .config = "config of the test",
          .timeout = options.timeout};
  director_ = std::make_unique<Director>(run_, DirectorOptions{.workers = options.workers});
  for (int64_t i = 0; i < options.servers; ++i) add_server();
}

Cluster::~Cluster() { director_->end(); }

size_t Cluster::add_server() {
  const auto number = static_cast<uint32_t>(servers_.size());
  const auto path = [&](const std::string& folder) {
    return folder.empty() ? "" : folder + "/" + std::to_string(number);
  };
  servers_.push_back(
      std::make_unique<ParameterServer>(run_, momentum_pieces(parameters_),
                                        ParameterServerOptions{.director = director_->address(),
                                                               .number = number,
                                                               .log = path(options_.log),
                                                               .replay = path(options_.replay)}));
  return servers_.size() - 1;
}

std::unique_ptr<ServerClient> Cluster::connect(uint32_t worker) {
  return std::make_unique<ServerClient>(
      run_, ServerClientOptions{.director = director_->address(), .number = worker});
}

void Cluster::run_workers(const std::function<void(uint32_t, ServerClient&)>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < options_.workers; ++i) {
    threads.emplace_back([&, worker = static_cast<uint32_t>(i)] {
      try {
        const auto client = connect(worker);
        work(worker, *client);
        client->leave();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

std::vector<at::Tensor> Cluster::empty_weights() const {
  std::vector<at::Tensor> tensors;
  for (const ServedParameter& parameter : parameters_) {
    tensors.push_back(at::empty({parameter.rows, parameter.width}, parameter.dtype));
  }
  return tensors;
}

std::vector<at::Tensor> Cluster::pull_now() {
  const auto client = connect(999);
  std::vector<at::Tensor> weights = empty_weights();
  client->pull(0, weights);
  client->leave();
  return weights;
}

StalenessCounts Cluster::staleness() {
  StalenessCounts all;
  for (const auto& server : servers_) {
    if (server) add(all, server->counts().staleness);
  }
  return all;
}

void Cluster::eventually(const std::function<bool()>& is_true, const char* what) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_true() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_TRUE(is_true()) << what;
}

at::Tensor gradient_of(const at::Tensor& weights, uint32_t worker, int64_t step) {
  return at::sin(weights * (worker + 1.5) + static_cast<double>(step));
}

void train(ServerClient& client, uint32_t worker, std::vector<at::Tensor> weights, int64_t first,
           int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    client.pull(step, weights);
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < weights.size(); ++i) {
      client.wait_pulled(static_cast<int64_t>(i));
      gradients.push_back(gradient_of(weights[i], worker, step));
      client.push(step, static_cast<int64_t>(i), gradients.back(),
                  0.01 * static_cast<double>(step));
    }
    client.wait_pushed();
  }
}

}  // namespace trireme::parallel::server_test
