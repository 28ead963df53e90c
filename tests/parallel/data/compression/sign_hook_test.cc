#include "trireme/parallel/data/compression/sign_hook.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/data/compression/hook_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace testing;

constexpr double kBeta = 0.9;
constexpr int kPlainSteps = 2;

std::shared_ptr<GradientHook> gradient_signs() {
  return std::make_shared<SignHook>(SignHookOptions{});
}

// A number that each rank's hook counts for itself.
std::function<bool()> signs_after(int64_t calls_that_are_plain) {
  const auto calls = std::make_shared<int64_t>(0);
  return [calls, calls_that_are_plain] { return (*calls)++ >= calls_that_are_plain; };
}

size_t index_of(const std::string& name) { return std::stoul(name.substr(1)); }

at::Tensor first_momentum(int ranks, size_t parameter) {
  at::Tensor momentum = at::zeros(shapes()[parameter], at::kDouble);
  for (int step = 0; step < kPlainSteps; ++step) {
    momentum =
        kBeta * momentum + (1 - kBeta) * plain_sums(ranks, waves(at::kDouble), step)[parameter];
  }
  return momentum;
}

// C(): blocks of at most 256 of a row, where rows are long enough.
at::Tensor signs_by_definition(const at::Tensor& x) {
  const int64_t numel = x.numel();
  if (numel == 0) return x.clone();
  const bool by_row = x.dim() > 1 && numel / x.size(0) >= 16;
  const int64_t count = by_row ? numel / x.size(0) : numel;
  const int64_t blocks = (count + 255) / 256;
  const int64_t width = ((count + blocks - 1) / blocks + 7) / 8 * 8;
  const at::Tensor from = x.reshape(-1).contiguous(), to = at::zeros_like(from);
  const double* const given = from.const_data_ptr<double>();
  double* const signs = to.data_ptr<double>();
  for (int64_t row = 0; row < numel; row += count) {
    for (int64_t begin = row; begin < row + count; begin += width) {
      const int64_t end = std::min(begin + width, row + count);
      double squares = 0;
      for (int64_t j = begin; j < end; ++j) squares += given[j] * given[j];
      const double scale = std::sqrt(squares / static_cast<double>(end - begin));
      for (int64_t j = begin; j < end; ++j) signs[j] = given[j] < 0 ? -scale : scale;
    }
  }
  return to.view(x.sizes());
}

// The algorithm of the paper, one parameter, without a hook: what each step's sum is.
struct SignOracle {
  SignOracle(int ranks, size_t parameter, double beta)
      : num_ranks(ranks),
        index(parameter),
        decay(beta),
        server(at::zeros(shapes()[parameter], at::kDouble)) {
    for (int r = 0; r < ranks; ++r) errors.push_back(server.clone());
  }

  at::Tensor step(int number) {
    at::Tensor sum = at::zeros_like(server);
    for (int r = 0; r < num_ranks; ++r) {
      at::Tensor& error = errors[static_cast<size_t>(r)];
      at::Tensor mine = (1 - decay) * waves(at::kDouble)(number, r, index) + error;
      if (decay > 0) mine = mine + momentum * (decay / num_ranks);
      const at::Tensor sent = signs_by_definition(mine);
      error = mine - sent;
      sum = sum + sent;
    }
    momentum = signs_by_definition(sum + server);
    server = sum + server - momentum;
    return momentum;
  }

  int num_ranks;
  size_t index;
  double decay;
  at::Tensor server;
  at::Tensor momentum{};
  std::vector<at::Tensor> errors{};
};

at::Tensor server_error(const HookRun& run, size_t step, size_t parameter) {
  std::vector<at::Tensor> rows;
  for (const State& state : run.states[step]) {
    rows.push_back(state.at("server_error." + name_of(parameter)));
  }
  const at::Tensor result = at::empty(shapes()[parameter], rows[0].options());
  SignBlocks(shapes()[parameter], at::kCPU).copy_from_rows(at::cat(rows), result);
  return result;
}

// One bucket a step, so that a step is one call of sends_signs().
TEST(SignHook, AgreesWithThePapersAlgorithm) {
  constexpr int kSteps = 6;
  for (const bool whole : {true, false}) {
    for (const int ranks : {1, 2, 3, 4}) {
      const auto next_rank = std::make_shared<std::atomic<int>>(0);
      const MakeHook make = [&, next_rank] {
        const int number = (*next_rank)++;  // of the parts; whose rank it is does not matter
        return std::make_shared<SignHook>(SignHookOptions{
            .beta = kBeta,
            .sends_signs = signs_after(kPlainSteps),
            .find_momentum = [=](const std::string& name, const at::Tensor& momentum) {
              const at::Tensor all = first_momentum(ranks, index_of(name));
              const at::Tensor owner = at::arange(all.numel()).remainder(ranks).view(all.sizes());
              momentum.copy_(whole ? all : at::where(owner.eq(number), all, at::zeros_like(all)));
              return whole;
            }});
      };
      const HookRun run = run_hook(ranks, make, waves(at::kDouble), {.steps = kSteps});
      for (size_t i = 0; i < shapes().size(); ++i) {
        SCOPED_TRACE(concat(ranks, " ranks, ", name_of(i), whole ? "" : " in parts"));
        SignOracle oracle(ranks, i, kBeta);
        oracle.momentum = first_momentum(ranks, i);
        for (int step = 0; step < kSteps; ++step) {
          const auto at_step = static_cast<size_t>(step);
          if (step < kPlainSteps) {
            harness::assert_same_bits(run.sums[at_step][i],
                                      plain_sums(ranks, waves(at::kDouble), step)[i], "plain");
            continue;
          }
          harness::assert_close(run.sums[at_step][i], oracle.step(step), 1e-12, 1e-13, "momentum");
          harness::assert_close(server_error(run, at_step, i), oracle.server, 1e-12, 1e-12, "sum");
          for (size_t r = 0; r < run.states[at_step].size(); ++r) {
            harness::assert_close(run.states[at_step][r].at("error." + name_of(i)),
                                  oracle.errors[r], 1e-12, 1e-12, "residual");
          }
        }
      }
    }
  }
}

TEST(SignHook, LosesNothingOfGradients) {
  constexpr int kSteps = 6;
  for (const int ranks : {1, 2, 3, 4}) {
    const HookRun run = run_hook(ranks, gradient_signs, waves(at::kDouble), {.steps = kSteps});
    for (size_t i = 0; i < shapes().size(); ++i) {
      at::Tensor given = at::zeros(shapes()[i], at::kDouble);
      at::Tensor kept = server_error(run, kSteps - 1, i);
      for (int step = 0; step < kSteps; ++step) {
        given += plain_sums(ranks, waves(at::kDouble), step)[i];
        kept += run.sums[static_cast<size_t>(step)][i];
      }
      for (const State& state : run.states.back()) kept += state.at("error." + name_of(i));
      const double largest = given.numel() == 0 ? 0 : given.abs().max().item<double>();
      harness::assert_close(kept, given, 0, 1e-12 * std::max(1.0, largest), name_of(i));
    }
  }
}

TEST(SignHook, GradientsAgreeWithTheAlgorithmToo) {
  const HookRun run = run_hook(3, gradient_signs, waves(at::kDouble), {.steps = 3});
  for (size_t i = 0; i < shapes().size(); ++i) {
    SignOracle oracle(3, i, 0);
    for (int step = 0; step < 3; ++step) {
      harness::assert_close(run.sums[static_cast<size_t>(step)][i], oracle.step(step), 1e-12, 1e-13,
                            name_of(i));
    }
  }
}

TEST(SignHook, BucketsAndAResumeChangeNoBit) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_bucketing_and_resume_change_no_bit(gradient_signs, dtype);
  }
}

// The hook that goes on finds the momentum where the optimizer has it: in what it was given.
TEST(SignHook, AResumeFindsTheMomentumInWhatWasDelivered) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto with = [](std::function<at::Tensor(size_t)> momentum) -> MakeHook {
      return [momentum] {
        return std::make_shared<SignHook>(SignHookOptions{
            .beta = kBeta, .find_momentum = [=](const std::string& name, const at::Tensor& to) {
              to.copy_(momentum(index_of(name)));
              return true;
            }});
      };
    };
    const auto zero = [](size_t i) { return at::zeros(shapes()[i]); };
    const HookRun whole = run_hook(3, with(zero), waves(dtype), {.steps = 4});
    std::atomic<int> made{0};
    const MakeHook make = [&] {
      const bool is_resumed = made++ >= 3;  // after all three ranks have their first
      return with([&, is_resumed](size_t i) {
        return is_resumed ? whole.sums[1][i].to(at::kFloat) : at::zeros(shapes()[i]);
      })();
    };
    // The ranks' first hooks are all made before a step ends, which needs every rank.
    const HookRun parts = run_hook(3, make, waves(dtype), {.steps = 4, .resumed_after = 2});
    expect_same_bits(parts.sums, whole.sums);
  }
}

TEST(SignHook, BytesAreThoseOfTheCodes) {
  const HookRun run = run_hook(2, gradient_signs, waves(at::kFloat), {.steps = 1});
  int64_t code = 0;
  for (const auto& shape : shapes()) {
    const SignBlocks blocks(shape, at::kCPU);
    code += blocks.num_blocks() * (4 + blocks.width() / 8);
  }
  // To the other rank half of the codes, rounded down; then its own half of the sums' codes.
  EXPECT_EQ(run.bytes[0] + run.bytes[1], 2 * (code / 2) + code);
}

TEST(SignHook, WhatIsNotFiniteShowsAndLeavesNoResidual) {
  const MakeGradient bad = [](int step, int rank, size_t parameter) {
    const at::Tensor gradient = waves(at::kFloat)(step, rank, parameter);
    if (step == 0 && rank == 1 && gradient.numel() > 0) gradient.view(-1)[0] = NAN;
    return gradient;
  };
  const HookRun run = run_hook(3, gradient_signs, bad, {.steps = 2});
  EXPECT_TRUE(run.sums[0][0].isnan().any().item<bool>());
  for (const Gradients& sums = run.sums[1]; const at::Tensor& sum : sums) {
    EXPECT_TRUE(sum.isfinite().all().item<bool>());
  }
}

TEST(SignHook, RefusesADecayThatForgetsNothing) {
  for (const double beta : {-0.1, 1.0}) EXPECT_THROW(SignHook({.beta = beta}), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
