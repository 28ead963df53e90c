#include "trireme/train/run/memory_check.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/comm/shared/segment.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
namespace {

std::string gibibytes(double bytes) {
  TextWriter text;
  text << std::setprecision(bytes < 1000.0 * (1 << 30) ? 3 : 15)
       << std::max(bytes / (1 << 30), 0.001) << " GiB";
  return text.str();
}

// On how many machines like this one parallel.zero = 3 makes the states fit. "" if none are enough,
// or if it is not known, as a rank's experts are only some of the model's.
std::string machines_for_states(const RunConfig& config, int num_ranks, double available) {
  if (config.parallel.expert > 1) return "";
  RunConfig whole = config;
  whole.parallel.zero = 0;
  whole.parallel.shard = 1;
  const MemoryNeed need = least_memory(whole);
  const auto parts = static_cast<double>(config.parallel.tensor * config.parallel.pipeline);
  const double room = available - num_ranks * (need.activations + need.samples);
  const double machines = std::ceil(need.states * parts / room);
  if (room <= 0 || machines > 1e6) return "";
  return concat(" on at least ", static_cast<int64_t>(machines), " such machines");
}

std::string advice(const RunConfig& config, const MemoryNeed& need, int num_ranks,
                   double available) {
  const MemoryKeys keys = config.task->model().traits().memory_keys;
  // `part` of the need grows with the key's value.
  const auto lower = [&](const char* key, int64_t value, double part,
                         std::vector<std::string> others) {
    const double room = available / num_ranks - (need.total() - part);
    const auto fitting = static_cast<int64_t>(static_cast<double>(value) * room / part);
    others.insert(others.begin(), concat(key, " (", value, ")",
                                         fitting >= 1 ? concat(" to at most ", fitting) : ""));
    return "lower " + in_words(others);
  };
  if (need.samples >= std::max(need.states, need.activations)) {
    return lower("train.global_batch", config.train.global_batch, need.samples, keys.activations) +
           ", whose samples are most of it";
  }
  if (need.activations >= need.states) {
    const char* const key = config.shares.empty() ? "train.micro_batch" : "train.shares";
    return lower(key, config.largest_micro_batch(), need.activations, keys.activations) +
           ", whose activations are most of it, or set train.recompute = \"full\"";
  }
  const std::string smaller =
      keys.states.empty() ? "make the model smaller" : "lower " + in_words(keys.states);
  return concat(smaller,
                ", whose weights and optimizer states are most of it, or shard them with "
                "parallel.zero = 3",
                config.device.is_cpu() ? machines_for_states(config, num_ranks, available) : "",
                " and more ranks");
}

// Whether messages of learners lose something, which is kept for the next one.
bool is_coded(const OuterConfig& outer) {
  return outer.wire != parallel::WireCode::kFloat32 || outer.kept < 1;
}

// Of a number that learners exchange.
double exchanged_bytes(const RunConfig& config) {
  return config.train.precision == c10::kDouble ? 8 : 4;
}

// Bytes of what a rank keeps of the weights after the last exchange, and of what goes with them.
double common_weights(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.learners == 1) return 0;
  const auto parts = static_cast<double>(parallel.tensor * parallel.pipeline * parallel.shard);
  const OuterConfig& outer = config.outer;
  const bool has_momentum = outer.has_optimizer() && outer.momentum != 0;
  const double tensors =
      1.0 + (outer.is_decoupled() ? 1 : 0) + (has_momentum || outer.corrects() ? 1 : 0);
  const double residual = is_coded(outer) ? sizeof(float) : 0;
  return static_cast<double>(config.task->model().traits().num_parameters) / parts *
         (tensors * exchanged_bytes(config) + residual);
}

// Of an exchange of the smallest possible largest fragment: the difference, and beside it, in whole
// numbers on CPUs, what other ranks send of this rank's share (difference_exchange.h): one share of
// two learners, and of more the terms of the part that it sums and the sums of all parts.
double exchange_of_learners(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const OuterConfig& outer = config.outer;
  const bool is_exchanged = outer.has_common() && (!outer.is_decoupled() || outer.meets());
  if (parallel.learners == 1 || !is_exchanged) return 0;
  const auto parts = static_cast<double>(parallel.tensor * parallel.pipeline * parallel.shard);
  const double fragment = static_cast<double>(config.task->model().traits().num_parameters) /
                          parts / static_cast<double>(outer.fragments) * exchanged_bytes(config);
  if (is_coded(outer) || outer.meets() || !config.device.is_cpu()) return fragment;
  const double others = static_cast<double>(parallel.learners - 1);
  const double shares = parallel.learners == 2 ? 1 : 1 + others / (others + 1);
  return fragment * (1 + shares / static_cast<double>(sample_ranks(parallel) * parallel.context));
}

}  // namespace

MemoryNeed least_memory(const RunConfig& config) {
  MemoryNeed need;
  for (const parallel::LayerCost& layer : config.task->model().layer_costs(config)) {
    need.states += layer.memory;
    need.activations += layer.activations;
  }
  if (const std::optional<RunConfig> teacher = teacher_config(config)) {
    for (const parallel::LayerCost& layer : teacher->task->model().layer_costs(*teacher)) {
      need.states += layer.memory;  // its weights
    }
  }
  const auto stages = static_cast<double>(config.parallel.pipeline);
  need.states /= stages;
  need.activations /= stages;
  need.states += common_weights(config);
  (config.outer.delay > 0 ? need.states : need.exchange) += exchange_of_learners(config);
  need.samples = static_cast<double>(config.train.global_batch) /
                 static_cast<double>(sample_ranks(config.parallel) * config.parallel.learners) *
                 sample_bytes(*config.task);
  return need;
}

double least_teacher_memory(const RunConfig& config) {
  double weights = 0;
  if (const std::optional<RunConfig> teacher = remote_teacher_config(config)) {
    for (const parallel::LayerCost& layer : teacher->task->model().layer_costs(*teacher)) {
      weights += layer.memory;
    }
  }
  return weights;
}

namespace {

// Of the ranks on this machine, which may be some of the run's.
double least_of_all(const RunConfig& config, const MemoryNeed& need, int num_ranks) {
  const int64_t teachers = config.parallel.teachers;
  // Servers of decoupled learners have no model; they may all be here.
  const bool is_decoupled = config.parallel.learners > 1 && config.outer.is_decoupled();
  const int64_t servers = is_decoupled ? config.parallel.servers : 0;
  if (teachers == 0) {
    return need.total() * static_cast<double>(std::max<int64_t>(0, num_ranks - servers));
  }
  const double of_teacher = least_teacher_memory(config);
  const int64_t others = num_ranks - teachers;
  if (others != plan_axes(config.parallel).num_ranks())
    return std::min(need.total(), of_teacher) * num_ranks;
  return need.total() * static_cast<double>(others) + of_teacher * static_cast<double>(teachers);
}

}  // namespace

void check_memory(const RunConfig& config, int num_ranks, int64_t available_bytes) {
  const MemoryNeed need = least_memory(config);
  const auto available = static_cast<double>(available_bytes);
  const double of_all = least_of_all(config, need, num_ranks);
  TRIREME_CHECK(of_all <= available, "the run needs at least ", gibibytes(need.total()),
                " per rank",
                num_ranks > 1 ? concat(", ", gibibytes(of_all), " for ", num_ranks, " ranks") : "",
                "; this machine has ", gibibytes(available), ": ",
                advice(config, need, num_ranks, available));
}

namespace {

constexpr const char* kOffloads =
    "--offload.optimizer=disk (then also --offload.parameters=disk and --offload.gradients=disk)";

// libtorch has a special exception only for GPU memory.
bool is_out_of_memory(const std::string& message) {
  return message.find("can't allocate memory") != std::string::npos ||
         message.find("not enough memory") != std::string::npos;
}

// "you tried to allocate 4096 bytes", without the check that failed.
std::string wish_of(const std::string& message) {
  const size_t begin = message.find("you tried to allocate");
  const size_t end = message.find(" bytes", begin);
  if (begin == std::string::npos || end == std::string::npos) return message;
  return message.substr(begin, end - begin) + " bytes at once";
}

}  // namespace

std::string memory_advice(const RunConfig& config, int num_ranks) {
  const double now = least_memory(config).total();
  std::vector<std::string> options;
  const auto offer = [&](const std::string& option, const auto& change) {
    RunConfig other = config;
    change(other);
    try {
      resolve(other, num_ranks);
      check_layout(other);
    } catch (const ConfigError&) {
      return;
    }
    const double saved = now - least_memory(other).total();
    if (saved < now / 100) return;
    options.push_back(concat("--", option, " (", gibibytes(saved), " less)"));
  };
  offer("parallel.zero=3", [](RunConfig& other) {
    if (other.parallel.zero == 0) other.parallel.shard = 0;
    other.parallel.zero = 3;
  });
  const bool some = config.train.recompute_blocks > 0;
  offer(some ? "train.recompute=full --train.recompute_blocks=0" : "train.recompute=full",
        [](RunConfig& other) {
          other.train.recompute = model::Recompute::kFull;
          other.train.recompute_blocks = 0;
        });
  if (config.train.micro_batch > 1 && config.shares.empty()) {
    const int64_t half = config.train.micro_batch / 2;
    offer(concat("train.micro_batch=", half),
          [=](RunConfig& other) { other.train.micro_batch = half; });
  }
  offer("optimizer.state_dtype=int8",
        [](RunConfig& other) { other.optimizer.state_dtype = StateDtype::kInt8; });
  if (config.parallel.servers == 0) options.emplace_back(kOffloads);
  return concat("; a rank needs at least ", gibibytes(now),
                options.empty() ? "" : ", and less with ", in_words(options));
}

std::string teacher_memory_advice(const RunConfig& config) {
  return concat(
      "; a rank that holds the teacher needs at least ", gibibytes(least_teacher_memory(config)),
      ", and less with a larger --parallel.teacher_tensor (", config.parallel.teacher_tensor,
      ") and more --parallel.teachers (", config.parallel.teachers, ")");
}

std::string shared_memory_advice(const RunConfig& config) {
  if (!config.train.symmetric_memory) return "";
  const char* const kKey = "set train.symmetric_memory = false, which takes longer";
  if (config.parallel.zero > 1) return concat("; or ", kKey);
  const bool in_fp32 = config.train.reduce_dtype == ReduceDtype::kFp32;
  const size_t of_one = in_fp32 ? std::max(c10::elementSize(config.train.precision), size_t{4})
                                : c10::elementSize(config.train.precision);
  const auto parts = static_cast<double>(config.parallel.tensor * config.parallel.pipeline);
  const double bytes = static_cast<double>(of_one) *
                       static_cast<double>(config.task->model().traits().num_parameters) / parts;
  return format("; the gradients take about %.0f MiB of it on each of its ranks; give it more, or ",
                std::ceil(bytes / (1 << 20))) +
         kKey;
}

void rethrow_with_memory_advice(const std::function<std::string()>& advice,
                                std::string_view shared_advice) {
  const auto known = [&] {
    try {
      if (advice) return advice();
    } catch (...) {  // there may be no memory for it either
    }
    return concat(
        "; a rank needs less with --parallel.zero=3 and more ranks, "
        "--train.recompute=full, a smaller --train.micro_batch, "
        "--optimizer.state_dtype=int8, or ",
        kOffloads);
  };
  try {
    throw;
  } catch (const ConfigError& error) {
    if (!comm::is_shared_memory_full(error.what())) throw;
    throw ConfigError(concat(error.what(), shared_advice));
  } catch (const c10::OutOfMemoryError& error) {
    throw ConfigError(
        concat("out of the device's memory: ", error.what_without_backtrace(), known()));
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (!is_out_of_memory(message)) throw;
    throw ConfigError(concat("out of memory: ", wish_of(message), known()));
  } catch (const std::bad_alloc&) {
    throw ConfigError(concat("out of memory", known()));
  }
}

}  // namespace trireme::train
