// Measures how tokens travel to their experts and results back, forward and backward, on processes
// of one thread each: bytes, memory and time, when the busiest expert has 1, 2, 3 and 5 times the
// mean number of tokens.
//   expert_dispatch_benchmark [ranks] [rounds] [tokens] [width] [experts] [experts a token] [chunk]
// Compares Trireme's exchange over shared memory with one all-to-all of a copy for each expert
// (flat), over shared memory and over Gloo. Every round runs each way once. Prints medians of the
// slowest rank's wall time.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "benchmarks/group_seconds.h"
#include "tests/harness/counting_communicator.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/c10d/gloo_group.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/parallel/expert/row_exchange.h"

namespace {

using namespace trireme;
using namespace trireme::parallel;
using benchmarks::seconds_of;

struct Sizes {
  int ranks = 2;
  int64_t rounds = 15;
  int64_t S = 2048;  // of each rank
  int64_t D = 768;
  int64_t E = 16;
  int64_t k = 2;
  int64_t chunk = 512;
};

double binomial(double n, double k) {
  return k < 0 || k > n
             ? 0
             : std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1));
}

// The mean number of ranks with experts for a token. Expert 0 has `skew` times the mean of tokens,
// and a token's others are drawn evenly. For skew 1 it is R (1 - C(E - E/R, k) / C(E, k)).
double expected_ranks(const Sizes& sizes, double skew) {
  const auto E = static_cast<double>(sizes.E), k = static_cast<double>(sizes.k);
  const double R = sizes.ranks;
  const double hot = skew * k / E, own = E / R;
  const double unused_first = (1 - hot) * binomial(E - own, k) / binomial(E - 1, k);
  const double unused_other = hot * binomial(E - 1 - own, k - 1) / binomial(E - 1, k - 1) +
                              (1 - hot) * binomial(E - 1 - own, k) / binomial(E - 1, k);
  return (1 - unused_first) + (R - 1) * (1 - unused_other);
}

at::Tensor draw_experts(const Sizes& sizes, double skew, int rank) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
  std::bernoulli_distribution is_hot(skew * static_cast<double>(sizes.k) /
                                     static_cast<double>(sizes.E));
  const at::Tensor experts_SK = at::empty({sizes.S, sizes.k}, at::kLong);
  auto* chosen = experts_SK.mutable_data_ptr<int64_t>();
  std::vector<int64_t> others(static_cast<size_t>(sizes.E - 1));
  for (int64_t s = 0; s < sizes.S; ++s) {
    for (int64_t e = 1; e < sizes.E; ++e) others[static_cast<size_t>(e - 1)] = e;
    std::shuffle(others.begin(), others.end(), random);
    const int64_t hot = is_hot(random) ? 1 : 0;
    if (hot == 1) *chosen++ = 0;
    for (int64_t j = 0; j < sizes.k - hot; ++j) *chosen++ = others[static_cast<size_t>(j)];
  }
  return experts_SK;
}

// What the comparison sends: a copy of a token for each of its experts, and each result.
void run_flat(const at::Tensor& x, const at::Tensor& experts_SK, const Sizes& sizes,
              comm::Communicator& group) {
  const ExpertOrder order = order_by_expert(experts_SK, sizes.E);
  const ExpertAxis axis{.group = &group};
  std::vector<int64_t> sent, received;
  std::vector<at::Tensor> to, from;
  for (int r = 0; r < group.size(); ++r) {
    const mesh::Range own = axis.experts_of(sizes.E, r);
    int64_t rows = 0;
    for (int64_t e = own.offset; e < own.offset + own.size; ++e) {
      rows += order.counts[static_cast<size_t>(e)];
    }
    sent.push_back(rows);
    to.push_back(at::full({1}, rows, at::kLong));
    from.push_back(at::empty({1}, at::kLong));
  }
  group.all_to_all(from, to)->wait();
  int64_t total = 0;
  for (const at::Tensor& count : from) {
    received.push_back(count.item<int64_t>());
    total += received.back();
  }
  // Forward and backward each send rows there and back.
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor rows = x.index_select(0, order.tokens_R);
    const at::Tensor there = at::empty({total, sizes.D}, x.options());
    group.all_to_all(there.split_with_sizes(received), rows.split_with_sizes(sent))->wait();
    group.all_to_all(rows.split_with_sizes(sent), there.split_with_sizes(received))->wait();
    const at::Tensor y = rows.index_select(0, order.rows_SK.view({-1}));
    (void)y.view({sizes.S, sizes.k, sizes.D}).sum(1);
  }
}

// Returns the most rows that experts of this rank had at once.
int64_t run_ours(const at::Tensor& x, const at::Tensor& experts_SK, const at::Tensor& weights_SK,
                 const Sizes& sizes, const ExpertAxis& axis, int64_t chunk) {
  int64_t most = 0;
  for (int64_t first = 0; first < sizes.S; first += chunk) {
    const int64_t size = std::min(chunk, sizes.S - first);
    RowExchange exchange(order_by_expert(experts_SK.narrow(0, first, size), sizes.E), axis);
    const at::Tensor rows = exchange.to_experts(x.narrow(0, first, size));
    most = std::max(most, rows.size(0));
    const at::Tensor y = exchange.to_tokens(rows, weights_SK.narrow(0, first, size));
    torch::autograd::backward({y}, {y.detach()});
  }
  return most;
}

int64_t sum_of(int64_t number, comm::Communicator& group,
               comm::ReduceOp operation = comm::ReduceOp::kSum) {
  const at::Tensor sum = at::full({1}, number, at::kLong);
  group.all_reduce(sum, {.operation = operation})->wait();
  return sum.item<int64_t>();
}

void measure(const Sizes& sizes, double skew, comm::Communicator& shm, comm::Communicator& gloo) {
  const at::Tensor experts_SK = draw_experts(sizes, skew, shm.rank());
  const at::Tensor x = at::randn({sizes.S, sizes.D}).requires_grad_();
  const at::Tensor weights_SK = at::full({sizes.S, sizes.k}, 0.5).requires_grad_();
  harness::CountingCommunicator counting(shm);
  // One forward: tokens go, results come back.
  RowExchange exchange(order_by_expert(experts_SK, sizes.E), {.group = &counting});
  const at::Tensor rows = exchange.to_experts(x.detach());
  const int64_t there = sum_of(counting.sent_by_all_to_all(), shm);
  exchange.to_tokens(rows, weights_SK.detach());
  const int64_t both = sum_of(counting.sent_by_all_to_all(), shm);
  const int64_t most =
      sum_of(run_ours(x, experts_SK, weights_SK, sizes, {.group = &shm}, sizes.chunk), shm,
             comm::ReduceOp::kMax);
  std::vector<double> ours, flat, flat_gloo;
  for (int64_t round = -2; round < sizes.rounds; ++round) {
    const double times[] = {
        seconds_of([&] { run_ours(x, experts_SK, weights_SK, sizes, {.group = &shm}, sizes.S); },
                   shm),
        seconds_of([&] { run_flat(x.detach(), experts_SK, sizes, shm); }, shm),
        seconds_of([&] { run_flat(x.detach(), experts_SK, sizes, gloo); }, shm)};
    if (round < 0) continue;
    ours.push_back(times[0]);
    flat.push_back(times[1]);
    flat_gloo.push_back(times[2]);
  }
  if (shm.rank() != 0) return;
  // Each of R ranks sends to R - 1 others.
  const double row_bytes = 4.0 * static_cast<double>(sizes.D);
  const double tokens = static_cast<double>(sizes.S) * (sizes.ranks - 1);
  const double formula = tokens * expected_ranks(sizes, skew) * row_bytes;
  const double copies = tokens * static_cast<double>(sizes.k) * row_bytes;
  std::printf("%5.0f %9.2f %9.2f %8.3f %9.2f %9.2f %7ld %7ld %8.2f %8.2f %8.2f\n", skew,
              static_cast<double>(there) / 1e6, formula / 1e6, static_cast<double>(there) / formula,
              copies / 1e6, static_cast<double>(both - there) / 1e6, static_cast<long>(most),
              static_cast<long>(sizes.ranks * sizes.chunk * sizes.k), 1e3 * median(ours),
              median(flat) / median(ours), median(flat_gloo) / median(ours));
  std::fflush(stdout);
}

void run(const Sizes& sizes, const std::string& job, const std::string& store, int rank) {
  at::set_num_threads(1);
  const auto shm = comm::make_shm_group(job, rank, sizes.ranks);
  const auto gloo = comm::make_gloo_group(
      c10::make_intrusive<c10d::FileStore>(store, sizes.ranks), rank, sizes.ranks,
      {.name = "gloo", .interface = comm::find_interface_to("127.0.0.1")});
  if (rank == 0) {
    std::printf(
        "%d ranks, %ld tokens each, D %ld, E %ld, k %ld, fp32, chunks of %ld\n"
        "%5s %9s %9s %8s %9s %9s %7s %7s %8s %8s %8s\n",
        sizes.ranks, static_cast<long>(sizes.S), static_cast<long>(sizes.D),
        static_cast<long>(sizes.E), static_cast<long>(sizes.k), static_cast<long>(sizes.chunk),
        "skew", "there MB", "formula", "ratio", "copies MB", "back MB", "rows", "bound", "ms",
        "x flat", "x Gloo");
  }
  for (const double skew : {1.0, 2.0, 3.0, 5.0}) measure(sizes, skew, *shm, *gloo);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const Sizes sizes{static_cast<int>(argument(1, 2)),
                    argument(2, 15),
                    argument(3, 2048),
                    argument(4, 768),
                    argument(5, 16),
                    argument(6, 2),
                    argument(7, 512)};
  const std::string job = "expert-dispatch-" + std::to_string(getpid());
  const std::string store = "/tmp/" + job;
  std::vector<pid_t> children;
  int rank = 0;
  for (int r = 1; r < sizes.ranks && rank == 0; ++r) {
    const pid_t child = fork();
    if (child == 0) rank = r;
    children.push_back(child);
  }
  run(sizes, job, store, rank);
  if (rank != 0) return 0;
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  unlink(store.c_str());
  return failed;
}
