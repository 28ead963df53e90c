// Times attention's forward and backward over tokens split between two processes of one thread
// each: ring and all-to-all, zig-zag and contiguous. Compares them with one rank that computes
// everything, and with the limit: two ranks that compute half of the sequences each and never
// communicate.
//   context_attention_benchmark [rounds] [batch] [heads] [kv_heads] [head_width] [T...]
// Every round runs every way once. Prints medians over the rounds of the slower rank's wall time
// and CPU time. Other programs on the machine disturb CPU time less.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/comm/shared/shm_group.h"
#include "trireme/parallel/context/context_attention.h"

namespace {

using namespace trireme;
using namespace trireme::parallel;

constexpr int kRanks = 2;

struct Sizes {
  int64_t rounds = 15;
  int64_t B = 8;
  int64_t N = 4;
  int64_t K = 4;
  int64_t H = 64;
  std::vector<int64_t> lengths;
};

struct Inputs {
  at::Tensor q_BTD, k_BTG, v_BTG;
};

using Attend = std::function<at::Tensor(const Inputs&)>;

struct Way {
  std::string name;
  bool is_alone;  // rank 0 computes, rank 1 waits
  Inputs inputs;
  Attend attend;
  std::vector<double> wall{}, cpu{};
};

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

at::Tensor plain(const Inputs& x, const Sizes& sizes) {
  const auto heads = [&](const at::Tensor& y, int64_t num) {
    return y.unflatten(2, {num, sizes.H}).transpose(1, 2);
  };
  return at::scaled_dot_product_attention(
             heads(x.q_BTD, sizes.N), heads(x.k_BTG, sizes.K), heads(x.v_BTG, sizes.K), {}, 0.0,
             /*is_causal=*/true, std::nullopt, /*enable_gqa=*/sizes.N != sizes.K)
      .transpose(1, 2)
      .flatten(2);
}

void run_once(const Way& way) {
  for (const at::Tensor* x : {&way.inputs.q_BTD, &way.inputs.k_BTG, &way.inputs.v_BTG})
    x->mutable_grad() = at::Tensor();
  const at::Tensor out = way.attend(way.inputs);
  out.backward(out.detach());  // a dense gradient that costs nothing to make
}

std::vector<Way> ways_of(const Sizes& sizes, int64_t T, comm::Communicator& group) {
  const auto make = [&](const std::function<at::Tensor(const at::Tensor&)>& part) {
    const auto leaf = [&](int64_t width) {
      return part(at::randn({sizes.B, T, width})).contiguous().clone().requires_grad_();
    };
    return Inputs{leaf(sizes.N * sizes.H), leaf(sizes.K * sizes.H), leaf(sizes.K * sizes.H)};
  };
  std::vector<Way> ways;
  const auto sdpa = [sizes](const Inputs& x) { return plain(x, sizes); };
  ways.push_back({"two ranks, half of the batch each", false,
                  make([&](const at::Tensor& x) { return x.narrow(0, 0, sizes.B / 2); }), sdpa});
  ways.push_back({"one rank, libtorch", true, make([](const at::Tensor& x) { return x; }), sdpa});
  ways.push_back({"one rank, whole_attention", true, make([](const at::Tensor& x) { return x; }),
                  [sizes](const Inputs& x) {
                    return whole_attention(x.q_BTD, x.k_BTG, x.v_BTG, sizes.N, sizes.K);
                  }});
  const auto add = [&](const char* name, SequenceOrder order, ContextForm form,
                       RingOptions options = {}) {
    const SequenceSplit split(T, kRanks, order);
    ways.push_back({name, false,
                    make([&](const at::Tensor& x) { return split.local(x, 1, group.rank()); }),
                    [sizes, &group, split, form, options](const Inputs& x) {
                      return context_attention(x.q_BTD, x.k_BTG, x.v_BTG, sizes.N, sizes.K,
                                               {group, split, form, options});
                    }});
  };
  add("ring, zig-zag", SequenceOrder::kZigZag, ContextForm::kRing);
  add("ring, zig-zag, no overlap", SequenceOrder::kZigZag, ContextForm::kRing, {.overlap = false});
  add("ring, zig-zag, ordinary memory", SequenceOrder::kZigZag, ContextForm::kRing,
      {.symmetric = false});
  add("ring, contiguous", SequenceOrder::kContiguous, ContextForm::kRing);
  add("all-to-all, zig-zag", SequenceOrder::kZigZag, ContextForm::kAllToAll);
  add("all-to-all, contiguous", SequenceOrder::kContiguous, ContextForm::kAllToAll);
  return ways;
}

void measure(const Sizes& sizes, int64_t T, comm::Communicator& group) {
  std::vector<Way> ways = ways_of(sizes, T, group);
  for (int64_t round = -2; round < sizes.rounds; ++round) {
    for (Way& way : ways) {
      group.barrier()->wait();
      const double wall = now(CLOCK_MONOTONIC);
      const double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
      const bool works = !way.is_alone || group.rank() == 0;
      if (works) run_once(way);
      at::Tensor times = at::zeros({2}, at::kDouble);
      if (works) {
        times[0] = now(CLOCK_MONOTONIC) - wall;
        times[1] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
      }
      group.all_reduce(times, {.operation = comm::ReduceOp::kMax})->wait();
      if (round < 0) continue;
      way.wall.push_back(times[0].item<double>());
      way.cpu.push_back(times[1].item<double>());
    }
  }
  if (group.rank() != 0) return;
  std::printf("\nB %ld T %ld N %ld K %ld H %ld, fp32, %ld rounds\n%-34s %9s %9s %9s %9s\n",
              static_cast<long>(sizes.B), static_cast<long>(T), static_cast<long>(sizes.N),
              static_cast<long>(sizes.K), static_cast<long>(sizes.H),
              static_cast<long>(sizes.rounds), "", "wall ms", "of limit", "CPU ms", "of limit");
  for (const Way& way : ways) {
    std::printf("%-34s %9.2f %9.2f %9.2f %9.2f\n", way.name.c_str(), 1e3 * median(way.wall),
                median(way.wall) / median(ways[0].wall), 1e3 * median(way.cpu),
                median(way.cpu) / median(ways[0].cpu));
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  Sizes sizes{argument(1, 15), argument(2, 8), argument(3, 4), argument(4, 4), argument(5, 64), {}};
  for (int i = 6; i < argc; ++i) sizes.lengths.push_back(std::atoll(argv[i]));
  if (sizes.lengths.empty()) sizes.lengths = {256, 512, 1024, 2048};
  const std::string job = "context-attention-" + std::to_string(getpid());
  const pid_t child = fork();
  const int rank = child == 0 ? 1 : 0;
  at::set_num_threads(1);
  {
    const auto group = comm::make_shm_group(job, rank, kRanks);
    for (const int64_t T : sizes.lengths) measure(sizes, T, *group);
  }
  if (child == 0) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
