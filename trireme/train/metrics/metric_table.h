// The metrics of a step, each declared once: the table from which metrics.jsonl, TensorBoard, the
// exchange between ranks, callbacks and docs/reference/metrics.md come. A new metric is a field of
// StepMetrics, a line here, and the place that sets it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/base/machine/memory_ledger.h"

namespace trireme::train {

// A task's or a callback's metric and its value.
using MetricValue = std::pair<std::string, double>;
using NamedNumbers = std::pair<std::string, std::vector<double>>;

// A step's values under their names in the program. The table below has their units and meanings.
struct StepMetrics {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  std::string unit = "tokens";  // what units_per_second counts
  double units_per_second = 0;
  double step_seconds = 0;
  double data_seconds = 0;
  std::optional<double> communication_fraction = 0;
  std::optional<double> teacher_wait_seconds = std::nullopt;
  int64_t peak_rss_bytes = 0;
  int64_t gradient_bytes = 0;
  std::optional<int64_t> peak_device_bytes = std::nullopt;
  std::optional<int64_t> memory_weights_bytes = std::nullopt;
  std::optional<int64_t> memory_gradients_bytes = std::nullopt;
  std::optional<int64_t> memory_states_bytes = std::nullopt;
  std::optional<int64_t> memory_activations_bytes = std::nullopt;
  std::optional<int64_t> memory_gathered_bytes = std::nullopt;
  std::optional<int64_t> memory_buckets_bytes = std::nullopt;
  std::optional<int64_t> memory_other_bytes = std::nullopt;
  std::optional<double> mfu = std::nullopt;
  bool skipped = false;
  std::optional<int64_t> bad_samples = std::nullopt;
  std::vector<MetricValue> others{};  // the task's and callbacks', over the step's samples
  std::vector<NamedNumbers> lists{};  // such as the tokens of each expert
  std::vector<double> counts{};       // of ModelTraits::num_counts, for callbacks; not written
  std::optional<double> validation_loss = std::nullopt;
  std::vector<MetricValue> validation_others{};  // when there is a validation_loss
  std::optional<double> noise_scale = std::nullopt;
  std::optional<int64_t> learners = std::nullopt;
  std::optional<double> learner_loss = std::nullopt;
  std::optional<double> learner_spread = std::nullopt;
  std::optional<int64_t> staleness = std::nullopt;
  std::optional<int64_t> outer_bytes = std::nullopt;
  std::optional<double> outer_wait_seconds = std::nullopt;
  std::optional<int64_t> epoch = std::nullopt;
  std::optional<double> time = std::nullopt;
};

// The bytes of each MemoryKind.
inline constexpr std::array<std::optional<int64_t> StepMetrics::*, kNumMemoryKinds> kMemoryFields =
    {&StepMetrics::memory_weights_bytes,  &StepMetrics::memory_gradients_bytes,
     &StepMetrics::memory_states_bytes,   &StepMetrics::memory_activations_bytes,
     &StepMetrics::memory_gathered_bytes, &StepMetrics::memory_buckets_bytes,
     &StepMetrics::memory_other_bytes};

// How the ranks' values become one value.
enum class Across {
  kSame,  // every rank has computed it from the same numbers
  kMax,   // the largest, found in the exchange at the end of the step
  kRoot,  // rank 0's own; the other ranks' values differ
};

struct MetricKind {
  enum class Text {
    kWhole,         // all digits of a whole number
    kShort,         // six digits
    kSameBits,      // 17 digits, which are read back with the same bits
    kMilliseconds,  // three digits after the point
    kFlag,          // true, or nothing
  };
  // What a line of metrics.jsonl has where there is no value.
  enum class Absent { kNothing, kNull };
  using Field =
      std::variant<int64_t StepMetrics::*, double StepMetrics::*, bool StepMetrics::*,
                   std::optional<int64_t> StepMetrics::*, std::optional<double> StepMetrics::*>;

  std::string_view name;  // in metrics.jsonl; "*" stands for StepMetrics::unit
  Field field;
  std::string_view unit;  // "": a plain number
  Across across = Across::kSame;
  Text text = Text::kShort;
  bool is_charted = false;  // also a scalar of TensorBoard
  Absent absent = Absent::kNothing;
  std::string_view meaning;  // for the docs, a sentence without its full stop
};

// In the order of a line's fields. The metrics of tasks and callbacks and the lists come between
// `kBeforeOthers` and the rest.
std::span<const MetricKind> metric_kinds();
inline constexpr std::string_view kBeforeOthers = "validation_loss";

std::string name_of(const MetricKind& kind, const StepMetrics& metrics);
// Empty without a value, such as `skipped` in a step that was not.
std::optional<double> value_of(const MetricKind& kind, const StepMetrics& metrics);
// Throws: InternalError when a value that must be there is empty
void set_value(const MetricKind& kind, std::optional<double> value, StepMetrics& metrics);

// JSON's text of a value. Null when it is not finite: JSON has no other way to write it.
std::string text_of(MetricKind::Text text, double value);

// The metrics of tasks and callbacks under their names in metrics.jsonl.
std::vector<MetricValue> other_metrics(const StepMetrics& metrics);

// The value of any metric that is the same on every rank, by its name in metrics.jsonl; empty when
// the step has none of that name.
std::optional<double> find_metric(const StepMetrics& metrics, std::string_view name);

}  // namespace trireme::train
