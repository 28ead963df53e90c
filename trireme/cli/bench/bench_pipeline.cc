#include "trireme/cli/bench/bench_pipeline.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/console.h"
#include "trireme/cli/profile_table.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/pipeline/run/executor.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"

namespace trireme::cli {
namespace {

using parallel::ActionKind;

std::string percent(double share) { return format("%.1f %%", 100 * share); }

std::string formula_text(const PipelineReport& report) {
  return report.formula_bubble ? percent(*report.formula_bubble) : "-";
}

double largest(const std::vector<double>& values) { return *std::ranges::max_element(values); }

// Explains the letters that occur in the drawing.
std::string legend_of(const PipelineReport& report) {
  bool splits = false;
  for (const auto& actions : report.timeline.ranks) {
    splits |= std::ranges::any_of(actions, [](const parallel::TimedAction& timed) {
      return timed.action.kind == ActionKind::kBackwardInput;
    });
  }
  std::string legend = splits ? "F forward, I and W input and weight part of the backward, . idle"
                              : "F forward, B backward, . idle";
  legend += "; numbers are microbatches";
  return report.num_chunks > 1 ? legend + ", letters a rank's stages" : legend;
}

}  // namespace

PipelineReport plan_pipeline(const PipelineCase& what) {
  parallel::ScheduleOptions options{.num_ranks = what.num_ranks,
                                    .num_microbatches = what.num_microbatches,
                                    .num_chunks = what.num_chunks,
                                    .memory_limit = what.memory_limit};
  options.costs.kept_for_weight = what.kept_for_weight;
  options.costs.communication = what.communication_milliseconds;
  PipelineReport report{.what = what,
                        .schedule = {},
                        .timeline = {},
                        .formula_bubble = {},
                        .peak_until_backward = {},
                        .peak_until_weight = {},
                        .measured = {}};
  report.num_chunks = parallel::num_chunks_of(what.schedule, options);
  const double share = 1.0 / report.num_chunks;
  options.costs.stages = {{share * what.milliseconds.forward,
                           share * what.milliseconds.backward_input,
                           share * what.milliseconds.backward_weight}};
  report.schedule = parallel::make_schedule(what.schedule, options);
  parallel::check_schedule(report.schedule);
  report.timeline = parallel::make_timeline(report.schedule, options.costs);
  report.ideal_milliseconds = what.num_microbatches * what.milliseconds.total();
  report.step_milliseconds = report.timeline.cost();
  report.bubble = report.timeline.bubble();
  const double formula = parallel::bubble_formula(what.schedule, options);
  if (formula >= 0) report.formula_bubble = formula / (formula + report.ideal_milliseconds);
  for (const parallel::PeakActivations& peak : parallel::peak_activations(report.schedule)) {
    report.peak_until_backward.push_back(share * peak.until_backward);
    report.peak_until_weight.push_back(share * peak.until_weight);
  }
  for (const auto& actions : report.schedule.actions) {
    const auto sends = std::ranges::count_if(
        actions, [](const parallel::Action& action) { return is_send(action.kind); });
    report.transfers = std::max(report.transfers, static_cast<int>(sends));
  }
  return report;
}

std::string show_pipeline(const PipelineReport& report, int width, bool color) {
  const PipelineCase& what = report.what;
  std::string text =
      concat(what.schedule, ", ", what.num_ranks, " stages",
             report.num_chunks > 1 ? concat(" of ", report.num_chunks, " chunks") : "", ", ",
             what.num_microbatches, " microbatches\n\n");
  text += draw_text(report.schedule, report.timeline, {.width = width, .color = color});
  text += concat(legend_of(report), "\n\n");
  text += format("step    %.6g ms, without a bubble %.6g ms\n", report.step_milliseconds,
                 report.ideal_milliseconds);
  text += concat("bubble  ", percent(report.bubble), " of the step, ",
                 report.formula_bubble ? "by the formula " + formula_text(report)
                                       : "for which there is no formula",
                 "\n");
  if (report.measured) {
    text += format("run     %.6g ms, bubble %s (stages that sleep, local ranks)\n",
                   report.measured->step_milliseconds, percent(report.measured->bubble).c_str());
  }
  text += format("\n%-6s %8s  %s\n", "", "idle", "activations held, in microbatches");
  for (int rank = 0; rank < what.num_ranks; ++rank) {
    text += format("rank %-2d%8s  %.6g until the backward, %.6g until the weight part\n", rank,
                   percent(report.timeline.idle_share(rank)).c_str(),
                   report.peak_until_backward[rank], report.peak_until_weight[rank]);
  }
  if (report.measured) {
    text += "\nmeasured\n";
    for (const std::string& line : pipeline_table(report.schedule, report.measured->times))
      text += line + "\n";
  }
  return text;
}

std::string compare_pipelines(std::span<const PipelineReport> reports) {
  const bool measured = std::ranges::any_of(
      reports, [](const PipelineReport& report) { return report.measured.has_value(); });
  std::string text = format("%-14s %6s %10s %8s %8s %11s %10s", "schedule", "chunks", "step (ms)",
                            "bubble", "formula", "activations", "transfers");
  if (measured) text += format(" %13s %10s", "measured (ms)", "bubble");
  text += '\n';
  for (const PipelineReport& report : reports) {
    text +=
        format("%-14s %6d %10.1f %8s %8s %11.6g %10d", report.what.schedule.c_str(),
               report.num_chunks, report.step_milliseconds, percent(report.bubble).c_str(),
               formula_text(report).c_str(), largest(report.peak_until_weight), report.transfers);
    if (report.measured) {
      text += format(" %13.1f %10s", report.measured->step_milliseconds,
                     percent(report.measured->bubble).c_str());
    }
    text += '\n';
  }
  return text;
}

std::string json_list(std::span<const PipelineReport> reports) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PipelineReport& report : reports) {
    std::vector<double> idle;
    for (int rank = 0; rank < report.what.num_ranks; ++rank)
      idle.push_back(report.timeline.idle_share(rank));
    nlohmann::ordered_json object{{"schedule", report.what.schedule},
                                  {"stages", report.what.num_ranks},
                                  {"chunks", report.num_chunks},
                                  {"microbatches", report.what.num_microbatches},
                                  {"step_milliseconds", report.step_milliseconds},
                                  {"ideal_milliseconds", report.ideal_milliseconds},
                                  {"bubble", report.bubble},
                                  {"formula_bubble", nullptr},
                                  {"idle_shares", idle},
                                  {"peak_until_backward", report.peak_until_backward},
                                  {"peak_until_weight", report.peak_until_weight},
                                  {"transfers", report.transfers}};
    if (report.formula_bubble) object["formula_bubble"] = *report.formula_bubble;
    if (report.measured) {
      object["measured_step_milliseconds"] = report.measured->step_milliseconds;
      object["measured_bubble"] = report.measured->bubble;
    }
    list.push_back(std::move(object));
  }
  return json_text(list);
}

// run_sleeping(): a pipeline whose stages sleep, so that times hold even with more ranks than
// cores.

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

}  // namespace trireme::cli
