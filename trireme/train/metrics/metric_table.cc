#include "trireme/train/metrics/metric_table.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"

namespace trireme::train {
namespace {

using enum MetricKind::Text;
constexpr auto kNull = MetricKind::Absent::kNull;

// Losses and norms have 17 digits, so that equal bits read equal and a comparison of two runs needs
// no tolerance. Everything else is for people, and short.
constexpr MetricKind kMetrics[] = {
    {.name = "step",
     .field = &StepMetrics::step,
     .unit = "",
     .text = kWhole,
     .meaning = "number of the step, from 1"},
    {.name = "loss",
     .field = &StepMetrics::loss,
     .unit = "nats, of cross-entropies",
     .text = kSameBits,
     .is_charted = true,
     .absent = kNull,
     .meaning =
         "mean over the step's terms, such as tokens; null in a step whose loss is not finite"},
    {.name = "grad_norm",
     .field = &StepMetrics::grad_norm,
     .unit = "",
     .text = kSameBits,
     .is_charted = true,
     .absent = kNull,
     .meaning =
         "L2 norm of the whole model's gradient before clipping; null where it is not finite, "
         "and in synchronous runs with parameter servers"},
    {.name = "learning_rate",
     .field = &StepMetrics::learning_rate,
     .unit = "",
     .is_charted = true,
     .meaning = "rate of this step by the schedule"},
    {.name = "*_per_second",
     .field = &StepMetrics::units_per_second,
     .unit = "1/s",
     .is_charted = true,
     .meaning = "tokens, samples or the task's own unit that all ranks process together"},
    {.name = "step_seconds",
     .field = &StepMetrics::step_seconds,
     .unit = "s",
     .across = Across::kMax,
     .is_charted = true,
     .meaning = "duration of the step on the slowest rank, without evaluations and saves"},
    {.name = "data_seconds",
     .field = &StepMetrics::data_seconds,
     .unit = "s",
     .across = Across::kMax,
     .meaning = "part of it spent waiting for samples, on the rank that waited longest"},
    {.name = "communication_fraction",
     .field = &StepMetrics::communication_fraction,
     .unit = "of the step",
     .across = Across::kMax,
     .is_charted = true,
     .absent = kNull,
     .meaning =
         "share of the step spent waiting for other ranks, the largest of all ranks; null on "
         "GPUs, whose host does not wait"},
    {.name = "teacher_wait_seconds",
     .field = &StepMetrics::teacher_wait_seconds,
     .unit = "s",
     .across = Across::kMax,
     .meaning =
         "part of the step spent waiting for a teacher on ranks of its own, on the rank that "
         "waited longest"},
    {.name = "peak_rss_bytes",
     .field = &StepMetrics::peak_rss_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "peak resident memory of the largest rank since it started"},
    {.name = "gradient_bytes",
     .field = &StepMetrics::gradient_bytes,
     .unit = "bytes",
     .across = Across::kRoot,
     .text = kWhole,
     .meaning = "bytes that rank 0's gradients put on the wire in this step"},
    {.name = "peak_device_bytes",
     .field = &StepMetrics::peak_device_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "peak memory of tensors on the fullest GPU; only on GPUs"},
    {.name = "memory_weights_bytes",
     .field = &StepMetrics::memory_weights_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "at the moment of the run so far when a rank held the most bytes in tensors on the "
                "host: what a rank keeps of the parameters, embedding tables included; the largest "
                "rank's, as those below; not on GPUs"},
    {.name = "memory_gradients_bytes",
     .field = &StepMetrics::memory_gradients_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "at that moment: what it keeps of the gradients from microbatch to microbatch"},
    {.name = "memory_states_bytes",
     .field = &StepMetrics::memory_states_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning =
         "at that moment: optimizer states, master weights, and the buffers of states on a disk"},
    {.name = "memory_activations_bytes",
     .field = &StepMetrics::memory_activations_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "at that moment: what forward and backward had made, single gradients on their way "
                "to a bucket included"},
    {.name = "memory_gathered_bytes",
     .field = &StepMetrics::memory_gathered_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "at that moment: units of parameters that ZeRO-3 had gathered"},
    {.name = "memory_buckets_bytes",
     .field = &StepMetrics::memory_buckets_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "at that moment: gradients on their way between ranks"},
    {.name = "memory_other_bytes",
     .field = &StepMetrics::memory_other_bytes,
     .unit = "bytes",
     .across = Across::kMax,
     .text = kWhole,
     .is_charted = true,
     .meaning = "at that moment: all else that libtorch's allocator gave on the host"},
    {.name = "mfu",
     .field = &StepMetrics::mfu,
     .unit = "of the peak",
     .is_charted = true,
     .meaning =
         "model FLOPs utilisation: the share of all devices' peak that the model's matrix "
         "products take (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); only where the "
         "peak is known"},
    {.name = "skipped",
     .field = &StepMetrics::skipped,
     .unit = "",
     .text = kFlag,
     .meaning = "present in a step that left the weights as they were: a loss or gradient was not "
                "finite or far out, or fp16's loss scale overflowed"},
    {.name = "bad_samples",
     .field = &StepMetrics::bad_samples,
     .unit = "samples",
     .text = kWhole,
     .is_charted = true,
     .meaning = "samples of the run so far that could not be read and were replaced"},
    {.name = kBeforeOthers,
     .field = &StepMetrics::validation_loss,
     .unit = "as loss",
     .text = kSameBits,
     .is_charted = true,
     .meaning = "mean loss over the validation data; in steps with an evaluation"},
    {.name = "noise_scale",
     .field = &StepMetrics::noise_scale,
     .unit = "samples",
     .is_charted = true,
     .meaning = "gradient noise scale, roughly the largest batch that still pays; with "
                "train.measure_noise"},
    {.name = "learners",
     .field = &StepMetrics::learners,
     .across = Across::kRoot,
     .text = kWhole,
     .meaning = "groups of ranks that train by themselves; with parallel.learners. All else in the "
                "line is of the first of them, except where a metric says so. With outer.method = "
                "\"decoupled\", in steps that end an exchange: those with a part in the weights "
                "that it has brought"},
    {.name = "learner_loss",
     .field = &StepMetrics::learner_loss,
     .across = Across::kRoot,
     .text = kSameBits,
     .is_charted = true,
     .meaning =
         "mean of all learners' losses since the last exchange of weights; in steps that end "
         "one"},
    {.name = "learner_spread",
     .field = &StepMetrics::learner_spread,
     .across = Across::kRoot,
     .text = kSameBits,
     .is_charted = true,
     .meaning = "root of the mean square, over learners, of the distance of their weights from the "
                "mean; in steps that end an exchange, of the weights in it"},
    {.name = "staleness",
     .field = &StepMetrics::staleness,
     .across = Across::kRoot,
     .text = kWhole,
     .meaning = "rounds that have ended without the first learner since it took the common weights "
                "before; with outer.method = \"decoupled\", in steps that end an exchange"},
    {.name = "outer_bytes",
     .field = &StepMetrics::outer_bytes,
     .unit = "bytes",
     .across = Across::kRoot,
     .text = kWhole,
     .meaning =
         "bytes of weights, what goes with them and notes that the first learner's ranks "
         "have sent to other learners, or to parameter servers, in the exchange that ends in "
         "this step; a network carries 5 to 6 % more, in headers and acknowledgements of "
         "packets"},
    {.name = "outer_wait_seconds",
     .field = &StepMetrics::outer_wait_seconds,
     .unit = "seconds",
     .across = Across::kRoot,
     .is_charted = true,
     .meaning = "how long rank 0 has waited for that exchange"},
    {.name = "epoch",
     .field = &StepMetrics::epoch,
     .unit = "",
     .text = kWhole,
     .meaning = "number of the job's start or restart that wrote the line, counted over the run's "
                "folder; of two lines of a step, the one of the higher epoch counts"},
    {.name = "time",
     .field = &StepMetrics::time,
     .unit = "s since 1970, UTC",
     .across = Across::kRoot,
     .text = kMilliseconds,
     .meaning = "when the step had ended"}};

std::optional<double> find_value(std::span<const MetricValue> values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &MetricValue::first);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::span<const MetricKind> metric_kinds() { return kMetrics; }

std::string name_of(const MetricKind& kind, const StepMetrics& metrics) {
  return kind.name.starts_with('*') ? concat(metrics.unit, kind.name.substr(1))
                                    : std::string(kind.name);
}

std::optional<double> value_of(const MetricKind& kind, const StepMetrics& metrics) {
  struct Read {
    const StepMetrics& metrics;
    std::optional<double> operator()(int64_t StepMetrics::*field) const {
      return static_cast<double>(metrics.*field);
    }
    std::optional<double> operator()(double StepMetrics::*field) const { return metrics.*field; }
    std::optional<double> operator()(bool StepMetrics::*field) const {
      return metrics.*field ? std::optional(1.0) : std::nullopt;
    }
    std::optional<double> operator()(std::optional<int64_t> StepMetrics::*field) const {
      const std::optional<int64_t>& value = metrics.*field;
      return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
    }
    std::optional<double> operator()(std::optional<double> StepMetrics::*field) const {
      return metrics.*field;
    }
  };
  return std::visit(Read{metrics}, kind.field);
}

void set_value(const MetricKind& kind, std::optional<double> value, StepMetrics& metrics) {
  struct Write {
    std::optional<double> value;
    StepMetrics& metrics;
    double there() const {
      TRIREME_ASSERT(value.has_value(), "a metric without a value");
      return *value;
    }
    void operator()(int64_t StepMetrics::*field) { metrics.*field = static_cast<int64_t>(there()); }
    void operator()(double StepMetrics::*field) { metrics.*field = there(); }
    void operator()(bool StepMetrics::*field) { metrics.*field = value.has_value(); }
    void operator()(std::optional<int64_t> StepMetrics::*field) {
      (metrics.*field).reset();
      if (value) metrics.*field = static_cast<int64_t>(*value);
    }
    void operator()(std::optional<double> StepMetrics::*field) { metrics.*field = value; }
  };
  std::visit(Write{value, metrics}, kind.field);
}

std::string text_of(MetricKind::Text text, double value) {
  if (text == kFlag) return "true";
  if (!std::isfinite(value)) return "null";
  switch (text) {
    case kWhole: return std::to_string(static_cast<int64_t>(value));
    case kSameBits: return format("%.17g", value);
    case kMilliseconds: return format("%.3f", value);
    default: return format("%g", value);
  }
}

std::vector<MetricValue> other_metrics(const StepMetrics& metrics) {
  std::vector<MetricValue> all = metrics.others;
  for (const auto& [name, value] : metrics.validation_others) {
    all.emplace_back("validation_" + name, value);
  }
  return all;
}

std::optional<double> find_metric(const StepMetrics& metrics, std::string_view name) {
  for (const MetricKind& kind : kMetrics) {
    if (kind.across != Across::kRoot && name_of(kind, metrics) == name) {
      return value_of(kind, metrics);
    }
  }
  return find_value(other_metrics(metrics), name);
}

}  // namespace trireme::train
