// run_sleeping(): a pipeline whose stages sleep, so that times hold even with more ranks than
// cores.
#include <chrono>
#include <exception>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/cli/bench/bench_pipeline.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/pipeline/run/executor.h"

namespace trireme::cli::inline internal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SleepTimes {
  double forward, backward_input, backward_weight;  // milliseconds
};

void sleep_for(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

// Stands for a matmul: takes time in each part, and has one gradient per weight.
class Sleep : public torch::autograd::Function<Sleep> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const SleepTimes& times, parallel::DeferredWork& deferred) {
    sleep_for(times.forward);
    ctx->save_for_backward({weight});
    ctx->saved_data["input"] = times.backward_input;
    ctx->saved_data["weight"] = times.backward_weight;
    ctx->saved_data["deferred"] = reinterpret_cast<int64_t>(&deferred);
    return x.clone();
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    auto* deferred = reinterpret_cast<parallel::DeferredWork*>(ctx->saved_data["deferred"].toInt());
    const auto gradient = [milliseconds = ctx->saved_data["weight"].toDouble()] {
      sleep_for(milliseconds);
      return at::ones({1});
    };
    sleep_for(ctx->saved_data["input"].toDouble());
    at::Tensor weight_gradient;
    if (!deferred->defer(ctx->get_saved_variables()[0], gradient)) weight_gradient = gradient();
    return {gradients[0], weight_gradient, at::Tensor(), at::Tensor()};
  }
};

std::vector<parallel::PipelineStage> sleeping_stages(const PipelineReport& report,
                                                     parallel::DeferredWork& deferred) {
  std::vector<parallel::PipelineStage> stages;
  const int num_stages = report.schedule.num_stages();
  const double share = 1.0 / report.num_chunks;
  const parallel::StageCosts& all = report.what.milliseconds;
  const SleepTimes times{share * all.forward, share * all.backward_input,
                         share * all.backward_weight};
  for (int stage = 0; stage < num_stages; ++stage) {
    const std::string output = stage + 1 == num_stages ? "loss" : concat("x", stage + 1);
    const at::Tensor weight = at::ones({1}).requires_grad_();
    stages.push_back({.name = concat("stage ", stage),
                      .inputs = {concat("x", stage)},
                      .outputs = {output},
                      .forward = [=, &deferred](int64_t, std::vector<at::Tensor> inputs) {
                        return std::vector<at::Tensor>{
                            Sleep::apply(inputs[0], weight, times, deferred)};
                      }});
  }
  return stages;
}

// The best of several runs, because other load on the machine only adds time.
std::vector<parallel::PipelineProfile> run_rank(comm::Communicator& group,
                                                const PipelineReport& report, int num_runs) {
  parallel::DeferredWork deferred;
  parallel::PipelineExecutor pipeline(group, sleeping_stages(report, deferred), report.schedule,
                                      {.fed = {"x0"}, .deferred = &deferred});
  std::vector<parallel::PipelineProfile> profiles;
  for (int run = 0; run < num_runs; ++run) {
    group.barrier()->wait();
    profiles.push_back(
        pipeline.run([](const std::string&, int64_t) { return at::ones({1}); }).profile);
  }
  return profiles;
}

}  // namespace

MeasuredPipeline run_sleeping(const PipelineReport& report, int num_runs) {
  auto groups = comm::make_thread_group(report.what.num_ranks);
  std::vector<std::vector<parallel::PipelineProfile>> profiles(groups.size());
  std::vector<std::exception_ptr> errors(groups.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          profiles[rank] = run_rank(*groups[rank], report, num_runs);
        } catch (...) {
          errors[rank] = std::current_exception();
          groups[rank].reset();  // the others stop waiting
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  MeasuredPipeline best;
  for (int run = 0; run < num_runs; ++run) {
    std::vector<parallel::PipelineProfile> ranks;
    for (const auto& of_rank : profiles) ranks.push_back(of_rank[run]);
    const parallel::Timeline timeline = measured_timeline(ranks).scaled(1e3);
    const double step = timeline.cost();
    if (run > 0 && step >= best.step_milliseconds) continue;
    best = {.timeline = timeline,
            .times = parallel::pipeline_times(report.schedule, {&ranks, 1}),
            .step_milliseconds = step,
            .bubble = timeline.bubble()};
  }
  return best;
}

}  // namespace trireme::cli::inline internal
