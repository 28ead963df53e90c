#include "trireme/parallel/server/host_sums.h"

#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/server/cluster.h"

namespace trireme::parallel::server_test {
namespace {

constexpr int64_t kSteps = 4;

// `hosts` hosts of `size` ranks; rank r of host h is worker h * size + r of the gradients.
TEST(HostSums, SumInTheHostThenOnTheServers) {
  for (const int hosts : {1, 2}) {
    for (const int size : {1, 3}) {
      Cluster cluster({.servers = 2, .workers = hosts});
      cluster.run_workers([&](uint32_t host, ServerClient& client) {
        harness::run_ranks(size, [&](comm::Communicator& ranks) {
          HostSums sums(ranks, ranks.rank() == 0 ? &client : nullptr);
          const auto worker =
              host * static_cast<uint32_t>(size) + static_cast<uint32_t>(ranks.rank());
          for (int64_t step = 1; step <= kSteps; ++step) {
            auto weights = cluster.empty_weights();
            sums.pull(step, weights);
            std::vector<at::Tensor> gradients;
            for (const auto& weight : weights)
              gradients.push_back(gradient_of(weight, worker, step));
            sums.push(step, gradients, 0.01);
          }
        });
      });
      // Plainly: each host's sum in rank order, then the hosts'.
      const auto& parameters = cluster.parameters();
      const auto actual = cluster.pull_now();
      for (size_t i = 0; i < parameters.size(); ++i) {
        at::Tensor weights = initial_weights(parameters[i], static_cast<int64_t>(i));
        Momentum rule(weights);
        for (int64_t step = 1; step <= kSteps; ++step) {
          at::Tensor all;
          for (int host = 0; host < hosts; ++host) {
            at::Tensor sum;
            for (int rank = 0; rank < size; ++rank) {
              const auto gradient =
                  gradient_of(weights, static_cast<uint32_t>(host * size + rank), step);
              sum = sum.defined() ? sum + gradient : gradient;
            }
            all = all.defined() ? all + sum : sum;
          }
          rule.apply(weights, {.values = all}, 0.01, step);
        }
        harness::assert_same_bits(actual[i], weights, parameters[i].name);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::parallel::server_test
