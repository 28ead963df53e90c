#include "trireme/cli/plan/serve.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/plan/cost/serving.h"
#include "trireme/tasks/language/language.h"

namespace trireme::cli {
namespace {

constexpr Range kBytes{.minimum = 0.25, .maximum = 8};
constexpr int64_t kMostSequences = int64_t{1} << 24;

// A model on a cluster, with the defaults of the arguments filled in.
struct ServingCase {
  const model::ModelConfig& model;
  const plan::Cluster& cluster;
  plan::ServingOptions options{};
  plan::Serving serving;
  plan::ServingMemory memory{};

  int64_t replicas() const { return cluster.num_devices() / options.tensor; }
};

plan::ServingOptions options_of(const model::ModelConfig& model, const plan::Cluster& cluster,
                                const ServeArguments& arguments) {
  plan::ServingOptions options{
      .tensor = arguments.tensor,
      .context = arguments.context > 0 ? arguments.context : model.sequence_length,
      .weight_size = arguments.weight_bytes,
      .cache_size = arguments.cache_bytes};
  if (options.tensor > 0) return options;
  options.tensor = plan::fewest_tensor_ranks(model, cluster, options);
  TRIREME_CHECK(options.tensor > 0, "the weights and one sequence of ", options.context,
                " tokens do not fit in ", describe(cluster),
                ", however they are divided; use more devices, a shorter --serve-context, or "
                "fewer --serve-weight-bytes");
  return options;
}

ServingCase make_case(const PlanningCase& planning, const ServeArguments& arguments) {
  const model::ModelConfig& model = tasks::language_of(planning.config).model;
  model::validate(model);
  const plan::ServingOptions options = options_of(model, planning.cluster, arguments);
  plan::Serving serving(model, planning.cluster, options);
  const plan::ServingMemory memory = serving.memory();
  TRIREME_CHECK(memory.for_cache > 0, "--serve-tensor is ", options.tensor,
                ", with which a device needs ", human_bytes(memory.weights),
                " for weights; it has ", human_bytes(planning.cluster.device.memory_bytes),
                ": use more tensor ranks");
  TRIREME_CHECK(std::max<int64_t>(1, arguments.batch) <= memory.largest_batch, "--serve-batch is ",
                std::max<int64_t>(1, arguments.batch), " with ", options.context,
                " tokens a sequence; ", memory.largest_batch,
                " fit beside the weights: use fewer, a shorter --serve-context, or more "
                "--serve-tensor");
  return {model, planning.cluster, options, std::move(serving), memory};
}

// 1, 4, 16, ... and the largest.
std::vector<int64_t> batches_of(const ServingCase& serving, int64_t given) {
  if (given > 0) return {given};
  std::vector<int64_t> batches;
  const int64_t most = std::min(serving.memory.largest_batch, kMostSequences);
  for (int64_t batch = 1; batch < most; batch *= 4) batches.push_back(batch);
  batches.push_back(most);
  return batches;
}

const char* bound_of(const plan::ServingSeconds& seconds) {
  if (seconds.tensor > std::max(seconds.compute, seconds.memory)) return "tensor all-reduces";
  return seconds.compute > seconds.memory ? "computation" : "memory bandwidth";
}

nlohmann::json seconds_to_json(const plan::ServingSeconds& seconds) {
  return {{"seconds", seconds.total()},
          {"compute_seconds", seconds.compute},
          {"memory_seconds", seconds.memory},
          {"tensor_seconds", seconds.tensor}};
}

nlohmann::json case_to_json(const ServingCase& serving, const std::vector<int64_t>& batches) {
  const plan::ServingMemory& memory = serving.memory;
  nlohmann::json all{{"tensor", serving.options.tensor},
                     {"replicas", serving.replicas()},
                     {"context", serving.options.context},
                     {"weight_bytes", memory.weights},
                     {"cache_bytes_per_token", memory.cache_per_token},
                     {"cache_bytes_per_sequence", memory.cache_per_sequence},
                     {"available_cache_bytes", memory.for_cache},
                     {"largest_batch", memory.largest_batch},
                     {"prefill", seconds_to_json(serving.serving.prefill())},
                     {"decode", nlohmann::json::array()}};
  for (const int64_t batch : batches) {
    const plan::ServingSeconds seconds = serving.serving.decode(batch);
    nlohmann::json one = seconds_to_json(seconds);
    one["batch"] = batch;
    one["tokens_per_second_of_sequence"] = 1 / seconds.total();
    one["tokens_per_second"] = static_cast<double>(batch) / seconds.total();
    if (serving.model.sparse.experts > 0) {
      one["expected_experts"] =
          plan::expected_experts(serving.model.sparse, static_cast<double>(batch));
    }
    all["decode"].push_back(one);
  }
  return all;
}

void print(const ServingCase& serving, const PlanningCase& planning,
           const std::vector<int64_t>& batches) {
  const plan::ServingMemory& memory = serving.memory;
  const plan::ServingSeconds prefill = serving.serving.prefill();
  const auto context = static_cast<double>(serving.options.context);
  const auto replicas = static_cast<double>(serving.replicas());
  std::printf("model    %s, %s parameters\n", planning.config.task->model().traits().name.c_str(),
              human_count(static_cast<double>(model::num_parameters(serving.model))).c_str());
  std::printf("cluster  %s: %ld replicas of %ld tensor rank%s\n", describe(serving.cluster).c_str(),
              static_cast<long>(serving.replicas()), static_cast<long>(serving.options.tensor),
              serving.options.tensor > 1 ? "s" : "");
  std::printf("memory   per device %s of weights, and %s of keys and values per token\n",
              human_bytes(memory.weights).c_str(), human_bytes(memory.cache_per_token).c_str());
  std::printf("         sequences of %ld tokens need %s each: %ld fit per replica\n",
              static_cast<long>(serving.options.context),
              human_bytes(memory.cache_per_sequence).c_str(),
              static_cast<long>(memory.largest_batch));
  std::printf("prompt   of %ld tokens: at least %.3f s, %s tokens/s per replica (%s)\n",
              static_cast<long>(serving.options.context), prefill.total(),
              human_count(context / prefill.total()).c_str(), bound_of(prefill));
  std::printf("decode   %8s %12s %14s %14s %14s  bound by\n", "batch", "ms a token",
              "tokens/s each", "per replica", "of the cluster");
  for (const int64_t batch : batches) {
    const plan::ServingSeconds seconds = serving.serving.decode(batch);
    const double rate = static_cast<double>(batch) / seconds.total();
    std::printf("         %8ld %12.3f %14.1f %14s %14s  %s", static_cast<long>(batch),
                1e3 * seconds.total(), 1 / seconds.total(), human_count(rate).c_str(),
                human_count(rate * replicas).c_str(), bound_of(seconds));
    if (serving.model.sparse.experts > 0) {
      std::printf(", %.1f of %ld experts",
                  plan::expected_experts(serving.model.sparse, static_cast<double>(batch)),
                  static_cast<long>(serving.model.sparse.experts));
    }
    std::printf("\n");
  }
}

}  // namespace

void add_serve_options(CLI::App& command, ServeArguments& arguments) {
  CLI::Option* const serve = command.add_flag(
      "--serve", arguments.serve,
      "predict the cost of serving the trained model, instead of a training step: memory for "
      "weights and KV cache, and lower bounds of the time per prompt and per token");
  for (const char* const other :
       {"--timeline", "--trace", "--svg", "--sweep", "--csv", "--measured"}) {
    serve->excludes(other);
  }
  command
      .add_option(
          "--serve-batch", arguments.batch,
          "concurrent sequences per replica. Default: several values, up to what fits in memory")
      ->needs(serve)
      ->check(within({1, static_cast<double>(kMostSequences)}));
  command
      .add_option("--serve-context", arguments.context,
                  "tokens per sequence, including the prompt. Default: model.sequence_length")
      ->needs(serve)
      ->check(within({1, static_cast<double>(kMaxSequence)}));
  command
      .add_option("--serve-tensor", arguments.tensor,
                  "tensor-parallel devices per replica. Default: the fewest that hold the model")
      ->needs(serve)
      ->check(within({1, static_cast<double>(kMaxRanks)}));
  command
      .add_option("--serve-weight-bytes", arguments.weight_bytes,
                  "bytes per weight: 2 in bf16, 1 in fp8 or int8, 0.5 in int4")
      ->needs(serve)
      ->capture_default_str()
      ->check(within(kBytes));
  command
      .add_option("--serve-cache-bytes", arguments.cache_bytes, "bytes per number in the KV cache")
      ->needs(serve)
      ->capture_default_str()
      ->check(within(kBytes));
}

void serve(const PlanningCase& planning, const ServeArguments& arguments, bool json) {
  const ServingCase serving = make_case(planning, arguments);
  const std::vector<int64_t> batches = batches_of(serving, arguments.batch);
  if (json) {
    std::printf("%s\n", json_text(case_to_json(serving, batches)).c_str());
  } else {
    print(serving, planning, batches);
  }
}

}  // namespace trireme::cli
