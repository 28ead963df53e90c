#include "tests/parallel/data/compression/hook_runs.h"

#include <cmath>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/bucket_plan.h"

namespace trireme::parallel::testing {
namespace {

// Buckets of `size` parameters each, in order.
std::vector<Bucket> buckets_of(const Gradients& gradients, size_t size) {
  std::vector<Bucket> result;
  for (size_t begin = 0; begin < gradients.size(); begin += size) {
    const size_t end = std::min(gradients.size(), begin + size);
    result.push_back(make_buckets(std::span(gradients).subspan(begin, end - begin), 1 << 30)[0]);
    for (size_t& index : result.back().parameters) index += begin;
  }
  return result;
}

void load(GradientHook& hook, const State& state) {
  for (const HookState& entry : hook.state()) entry.tensor.copy_(state.at(entry.name));
}

State copy_state(const GradientHook& hook) {
  State state;
  for (const HookState& entry : hook.state()) state[entry.name] = entry.tensor.clone();
  return state;
}

// One rank's run.
HookRun run_rank(comm::Communicator& inner, const MakeHook& make_hook, const MakeGradient& gradient,
                 const HookRunOptions& options) {
  harness::CountingCommunicator group(inner);
  HookRun run;
  std::shared_ptr<GradientHook> hook;
  const auto start_hook = [&] {
    hook = make_hook();
    std::vector<GradientSpec> specs;
    for (size_t i = 0; i < shapes().size(); ++i) {
      specs.push_back(
          {name_of(i), shapes()[i], gradient(0, 0, i).options(), group.size(), group.rank()});
    }
    hook->prepare(specs);
  };
  start_hook();
  for (int step = 0; step < options.steps; ++step) {
    if (options.resumed_after > 0 && step == options.resumed_after) {
      const State state = copy_state(*hook);
      start_hook();
      load(*hook, state);
    }
    Gradients gradients, sums;
    for (size_t i = 0; i < shapes().size(); ++i) {
      gradients.push_back(gradient(step, group.rank(), i));
    }
    group.ledger().clear();
    int64_t num_bytes = 0;
    size_t index = 0;
    hook->begin_step();
    for (const Bucket& bucket : buckets_of(gradients, options.parameters_per_bucket)) {
      const at::Tensor flat = at::full({bucket.num_elements}, std::nan(""), bucket.options);
      const std::vector<at::Tensor> views = view_parameters(bucket, flat, gradients);
      std::vector<std::string> names;
      for (size_t i = 0; i < views.size(); ++i) {
        views[i].copy_(gradients[bucket.parameters[i]]);
        names.push_back(name_of(bucket.parameters[i]));
      }
      num_bytes += hook->all_reduce({index++, flat, views, names}, group);
      for (const at::Tensor& view : views) sums.push_back(view.clone());
    }
    EXPECT_EQ(num_bytes, group.ledger().of(group.name()).bytes) << "step " << step;
    run.bytes = {num_bytes};
    run.sums.push_back(std::move(sums));
    run.states.push_back({copy_state(*hook)});
  }
  return run;
}

}  // namespace

const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> kShapes = {{37, 29}, {7}, {},           {0, 3},
                                                            {256, 5}, {1}, {6, 5, 3, 3}, {2, 2}};
  return kShapes;
}

std::string name_of(size_t parameter) { return "p" + std::to_string(parameter); }

MakeGradient waves(at::ScalarType dtype) {
  return [dtype](int step, int rank, size_t parameter) {
    const auto& shape = shapes()[parameter];
    const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
    const double seed = 0.7 * step + 1.9 * rank + 3.1 * static_cast<double>(parameter);
    const double size = std::exp(static_cast<double>(parameter) - 3 * rank);
    return ((index * 1.7 + seed).sin() * (index * 0.37 - seed).cos() * size).to(dtype);
  };
}

HookRun run_hook(int ranks, const MakeHook& make_hook, const MakeGradient& gradient,
                 const HookRunOptions& options) {
  std::mutex mutex;
  std::vector<HookRun> runs(static_cast<size_t>(ranks));
  harness::run_ranks(ranks, [&](comm::Communicator& group) {
    HookRun run = run_rank(group, make_hook, gradient, options);
    const std::lock_guard lock(mutex);
    runs[static_cast<size_t>(group.rank())] = std::move(run);
  });
  HookRun result = runs[0];
  for (size_t r = 1; r < runs.size(); ++r) {
    expect_same_bits(runs[r].sums, result.sums);
    result.bytes.push_back(runs[r].bytes[0]);
    for (size_t step = 0; step < result.states.size(); ++step) {
      result.states[step].push_back(runs[r].states[step][0]);
    }
  }
  return result;
}

Gradients plain_sums(int ranks, const MakeGradient& gradient, int step) {
  Gradients sums;
  for (size_t i = 0; i < shapes().size(); ++i) {
    const at::Tensor first = gradient(step, 0, i);
    at::Tensor sum = first.to(at::promote_types(first.scalar_type(), at::kFloat));
    for (int rank = 1; rank < ranks; ++rank) sum = sum + gradient(step, rank, i);
    sums.push_back(sum);
  }
  return sums;
}

void expect_same_bits(const std::vector<Gradients>& actual,
                      const std::vector<Gradients>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    for (size_t i = 0; i < expected[step].size(); ++i) {
      harness::assert_same_bits(actual[step][i], expected[step][i],
                                concat("step ", step, ", ", name_of(i)));
    }
  }
}

void expect_bucketing_and_resume_change_no_bit(const MakeHook& make_hook, at::ScalarType dtype) {
  const HookRun expected = run_hook(3, make_hook, waves(dtype));
  for (const HookRunOptions& options :
       {HookRunOptions{.parameters_per_bucket = 1}, HookRunOptions{.parameters_per_bucket = 3},
        HookRunOptions{.resumed_after = 1}, HookRunOptions{.resumed_after = 2}}) {
    SCOPED_TRACE(concat(options.parameters_per_bucket, " parameters a bucket, resumed after ",
                        options.resumed_after));
    expect_same_bits(run_hook(3, make_hook, waves(dtype), options).sums, expected.sums);
  }
}

void expect_error_feedback_keeps_everything(const MakeHook& make_hook) {
  constexpr int kSteps = 6;
  for (const int ranks : {1, 2, 3, 4}) {
    const MakeGradient gradient = waves(at::kDouble);
    const HookRun run = run_hook(ranks, make_hook, gradient, {.steps = kSteps});
    for (size_t i = 0; i < shapes().size(); ++i) {
      at::Tensor given = at::zeros(shapes()[i], at::kDouble);
      at::Tensor kept = given.clone();
      for (int step = 0; step < kSteps; ++step) {
        given += plain_sums(ranks, gradient, step)[i];
        kept += run.sums[static_cast<size_t>(step)][i];
      }
      for (const State& state : run.states.back()) {
        const auto residual = state.find("error." + name_of(i));
        if (residual != state.end()) kept += residual->second;
      }
      // Products of PowerSGD's projection also round, by C * 2^-53 of the largest element.
      const double largest = given.numel() == 0 ? 0 : given.abs().max().item<double>();
      harness::assert_close(kept, given, 0,
                            kSteps * ranks * 64 * std::numeric_limits<double>::epsilon() * largest,
                            concat(ranks, " ranks, ", name_of(i)));
    }
  }
}

}  // namespace trireme::parallel::testing
