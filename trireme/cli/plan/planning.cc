#include "trireme/cli/plan/planning.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/plan/cost/goodput.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/run/inputs.h"

namespace trireme::cli {
namespace {

std::string bar(double share) {
  constexpr int kWidth = 30;
  return std::string(static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * kWidth)), '#');
}

void add_line(TextWriter& out, const char* name, const std::string& value, double share) {
  out << format("  %-22s %12s  %4.1f %% ", name, value.c_str(), 100 * share) << bar(share) << "\n";
}

std::string shown_seconds(double seconds) {
  return seconds >= 1 ? format("%.2f s", seconds) : format("%.2f ms", 1e3 * seconds);
}

std::string shown_flops(double rate) {
  return rate >= 1e12 ? format("%.1f TFLOP/s", rate / 1e12) : format("%.1f GFLOP/s", rate / 1e9);
}

// A copy of the states into the host's memory, over the link of the device.
double copy_seconds(const plan::StepPrediction& step, const plan::Device& device) {
  return step.memory.model_states() / (device.is_asynchronous ? kHostLinkRate : device.memory_rate);
}

}  // namespace

// Opens the data only when the config leaves the vocabulary, the classes or the number of steps to
// it.
void find_data_sizes(train::RunConfig& config) {
  TRIREME_CHECK(config.task_choice.name == tasks::kLanguage.name, "task.name is \"",
                config.task_choice.name,
                "\"; the cost model of steps knows language models only (`trireme plan` also "
                "places the tables of recommendation models): set it to ",
                tasks::kLanguage.name);
  const model::ModelConfig& model = tasks::language_of(config).model;
  TRIREME_CHECK(!model.has_decoder(), "model.family is \"", model.family,
                "\", whose encoder and decoder the cost model of steps does not know; plan another "
                "family, or measure with `trireme train --train.steps`");
  TRIREME_CHECK(!model.vision.is_on(), "vision.layers is ", model.vision.layers,
                ", and the cost model of steps does not know a vision tower; set it to 0 to plan "
                "the language model alone, or measure with `trireme train --train.steps`");
  const bool needs_vocabulary = model.vocab_size == 0;
  const bool needs_classes =
      tasks::language_of(config).objective.is_classify() && model.classes == 0;
  if (!needs_vocabulary && !needs_classes && config.train.epochs == 0) return;
  try {
    config.task->open(/*evaluates=*/false);
  } catch (const Error& error) {
    throw ConfigError(
        needs_vocabulary
            ? concat("model.vocab_size is 0, and the tokenizer that would say it: ", error.what(),
                     "; set model.vocab_size")
        : needs_classes
            ? concat("model.classes is 0, and the data that would say it: ", error.what(),
                     "; set model.classes")
            : concat("train.epochs is ", config.train.epochs, ", and the data that would say how ",
                     "many steps they take: ", error.what(), "; set train.epochs = 0"));
  }
  train::set_steps(config, {});
}

PlanningCase load_case(const std::string& config, const std::string& cluster,
                       const std::vector<std::string>& overrides) {
  PlanningCase planning = load_files(config, cluster, overrides, tasks::all_tasks());
  find_data_sizes(planning.config);
  return planning;
}

RunForecast forecast(const plan::StepPrediction& step, const plan::Cluster& cluster,
                     int64_t steps) {
  const plan::FailureConfig& failures = cluster.failures;
  const auto devices = static_cast<double>(step.num_devices);
  RunForecast run;
  const double training =
      step.step_seconds() * (1 + failures.straggler_share) * static_cast<double>(steps);
  if (failures.device_mtbf_hours > 0) {
    plan::FailureModel model{.num_devices = step.num_devices,
                             .device_mtbf_seconds = 3600 * failures.device_mtbf_hours,
                             .save_seconds = failures.save_seconds > 0
                                                 ? failures.save_seconds
                                                 : copy_seconds(step, cluster.device),
                             .recovery_seconds = failures.recovery_seconds};
    model.interval_seconds = std::max(plan::best_interval_seconds(model), step.step_seconds());
    run.checkpoint_interval_seconds = model.interval_seconds;
    run.goodput = plan::goodput_of(model);
    run.failures = training / run.goodput / model.mtbf_seconds();
  }
  // A notice leaves time to save: only the recovery is lost.
  run.goodput *=
      std::max(0.0, 1 - failures.preemptions_per_day * failures.recovery_seconds / (24 * 3600));
  const double seconds = training / std::max(run.goodput, 1e-9);
  run.days = seconds / (24 * 3600);
  run.device_hours = devices * seconds / 3600;
  run.kilowatt_hours =
      run.device_hours * cluster.device.watts / 1000 * (1 + cluster.price.overhead_watts);
  run.cost = run.device_hours * cluster.price.device_hour +
             run.kilowatt_hours * cluster.price.kilowatt_hour;
  return run;
}

std::string describe(const plan::Cluster& cluster) {
  const std::string device(cluster.device.name);
  return cluster.nodes == 1
             ? concat(cluster.devices_per_node, " x ", device)
             : concat(cluster.nodes, " nodes of ", cluster.devices_per_node, " x ", device);
}

nlohmann::json to_json(const plan::StepPrediction& step) {
  const plan::StepSeconds& seconds = step.seconds;
  const plan::StepMemory& memory = step.memory;
  const double peak = step.peak;
  return {{"step_seconds", step.step_seconds()},
          {"tokens_per_second", step.tokens_per_second()},
          {"tflops_per_device", step.flops_per_device() / 1e12},
          {"hardware_tflops_per_device", step.hardware_flops_per_device() / 1e12},
          {"mfu", step.flops_per_device() / peak},
          {"hfu", step.hardware_flops_per_device() / peak},
          {"bubble_fraction", step.bubble_fraction},
          {"exposed_communication_fraction", seconds.communication() / step.step_seconds()},
          {"peak_memory_bytes", memory.total()},
          {"fits", step.fits()},
          {"devices", step.num_devices},
          {"seconds",
           {{"compute", seconds.compute},
            {"tensor", seconds.tensor},
            {"context", seconds.context},
            {"expert", seconds.expert},
            {"data", seconds.data},
            {"outer", seconds.outer},
            {"bubble", seconds.bubble},
            {"optimizer", seconds.optimizer},
            {"rest", seconds.rest}}},
          {"memory_bytes",
           {{"states", memory.model_states()},
            {"activations", memory.activations},
            {"temporary", memory.temporary()},
            {"reserved", memory.reserved},
            {"pipeline_rank", memory.pipeline_rank}}}};
}

nlohmann::json to_json(const plan::LearnerPrediction& prediction, const train::RunConfig& config) {
  const auto every = static_cast<double>(config.outer.every);
  return {{"learners", config.parallel.learners},
          {"round_steps", config.outer.every},
          {"inner_step_seconds", prediction.inner.step_seconds()},
          {"bytes_per_round", prediction.round_bytes},
          {"bytes_per_step", prediction.round_bytes / every},
          {"exchange_seconds_per_round", prediction.exchange_seconds},
          {"exposed_seconds_per_round", prediction.exposed_seconds},
          {"round_trips_per_round", prediction.round_trips},
          {"memory_bytes", prediction.all.memory.outer}};
}

nlohmann::json to_json(const RunForecast& run) {
  return {{"days", run.days},
          {"device_hours", run.device_hours},
          {"goodput", run.goodput},
          {"failures", run.failures},
          {"checkpoint_interval_seconds", run.checkpoint_interval_seconds},
          {"kilowatt_hours", run.kilowatt_hours},
          {"cost", run.cost}};
}

std::string show(const plan::StepPrediction& step) {
  TextWriter out;
  const plan::StepSeconds& seconds = step.seconds;
  const double all = step.step_seconds();
  out << "step     " << shown_seconds(all) << ", " << human_count(step.tokens_per_second())
      << " tokens/s, " << shown_flops(step.flops_per_device()) << " per device (MFU "
      << format("%.1f", 100 * step.flops_per_device() / step.peak) << " %, HFU "
      << format("%.1f", 100 * step.hardware_flops_per_device() / step.peak) << " %)\n";
  const std::pair<const char*, double> causes[] = {
      {"computation", seconds.compute},         {"tensor, exposed", seconds.tensor},
      {"context, exposed", seconds.context},    {"expert, exposed", seconds.expert},
      {"data and ZeRO, exposed", seconds.data}, {"learners, exposed", seconds.outer},
      {"pipeline bubble", seconds.bubble},      {"optimizer", seconds.optimizer},
      {"data, norm, logging", seconds.rest}};
  for (const auto& [name, value] : causes) {
    if (value > 0) add_line(out, name, shown_seconds(value), value / all);
  }
  const plan::StepMemory& memory = step.memory;
  out << "memory   " << human_bytes(memory.total()) << " of " << human_bytes(step.available_bytes)
      << (step.fits()
              ? ""
              : concat(": does not fit, by ", human_bytes(memory.total() - step.available_bytes)))
      << "\n";
  const std::pair<const char*, double> uses[] = {{"weights and states", memory.model_states()},
                                                 {"activations", memory.activations},
                                                 {"buffers", memory.temporary()},
                                                 {"driver, fragmentation", memory.reserved}};
  for (const auto& [name, value] : uses) {
    add_line(out, name, human_bytes(value), value / step.available_bytes);
  }
  return out.str();
}

std::string show(const plan::LearnerPrediction& prediction, const train::RunConfig& config) {
  const auto every = static_cast<double>(config.outer.every);
  return concat("learners ", config.parallel.learners, " with steps of ",
                shown_seconds(prediction.inner.step_seconds()), "; each sends ",
                human_bytes(prediction.round_bytes), " in a round of ", config.outer.every,
                " steps, ", human_bytes(prediction.round_bytes / every), " a step\n",
                "         a round exchanges for ", shown_seconds(prediction.exchange_seconds), " (",
                format("%.1f", prediction.round_trips), " round trips), exposed ",
                shown_seconds(prediction.exposed_seconds), "; memory ",
                human_bytes(prediction.all.memory.outer), " of the states\n");
}

std::string describe(const RunForecast& run) {
  const std::string time =
      run.days >= 1 ? format("%.1f days", run.days) : human_duration(run.days * 24 * 3600);
  return concat(time, ", ", human_count(run.device_hours), " device-hours, ",
                human_count(run.kilowatt_hours), " kWh",
                run.cost > 0 ? ", cost " + human_count(run.cost) : "");
}

std::string show(const RunForecast& run, int64_t steps) {
  TextWriter out;
  out << "run      " << human_count(static_cast<double>(steps)) << " steps: " << describe(run)
      << "\n";
  if (run.goodput < 1) {
    out << "         goodput " << format("%.2f", 100 * run.goodput) << " %, "
        << human_count(run.failures) << " failures; best checkpoint interval "
        << human_duration(run.checkpoint_interval_seconds) << " (Daly 2006)\n";
  }
  return out.str();
}

}  // namespace trireme::cli
