#include "trireme/verify/recorded_run.h"

#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/callbacks/activation_record.h"
#include "trireme/train/callbacks/gradient_record.h"
#include "trireme/train/metrics/logged_step.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/verify/learner_tensors.h"

namespace trireme::verify {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostRanks = 1 << 20;

fs::path gradients_of(const fs::path& folder, int64_t step) {
  return folder / train::kGradientFolder / checkpoint::folder_name(step);
}
fs::path checkpoint_of(const fs::path& folder, int64_t step) {
  return folder / "checkpoints" / checkpoint::folder_name(step);
}

std::vector<std::string> names_in(const JsonView& list) {
  std::vector<std::string> names;
  for (const JsonView& name : list.elements()) names.push_back(name.word());
  return names;
}

// {"loss": 1.5, "grad_norm": null}
std::map<std::string, double> numbers_of(const checkpoint::SavedTensors& record,
                                         const fs::path& where) {
  const nlohmann::json state = parse_json(record.state(), where.string());
  std::map<std::string, double> numbers;
  for (const auto& [name, value] :
       JsonView(state, where.string()).at(train::kRecordedNumbers).members()) {
    if (!value.value().is_null()) numbers[name] = value.number();
  }
  return numbers;
}

std::vector<std::string> parameters_of(const checkpoint::SavedTensors& record,
                                       const fs::path& where) {
  const std::string source = where.string();
  const nlohmann::json state = parse_json(record.state(), source);
  return names_in(JsonView(state, source).at(train::kRecordedParameters));
}

// {"NAME": {"ranks": [1], "absolute": 0.5, "relative": null}}
std::map<std::string, ReplicaDifference> replicas_in(const JsonView& object) {
  std::map<std::string, ReplicaDifference> replicas;
  for (const auto& [name, replica] : object.members()) {
    ReplicaDifference& one = replicas[name];
    for (const int64_t rank : replica.at("ranks").integers(0, kMostRanks)) {
      one.ranks.push_back(static_cast<int>(rank));
    }
    const double infinite = std::numeric_limits<double>::infinity();
    const auto number = [&](const char* key) {
      const JsonView value = replica.at(key);
      return value.value().is_null() ? infinite : value.number(0);
    };
    one.absolute = number("absolute");
    one.relative = number("relative");
  }
  return replicas;
}

}  // namespace

StepNumbers read_step_numbers(const fs::path& folder) {
  const fs::path path = folder / train::kMetricsName;
  if (!is_file(path)) throw Error(concat("cannot read ", path.string(), ": there is none"));
  StepNumbers numbers;
  train::for_each_step(folder, [&numbers](const train::LoggedStep& step) {
    for (const auto& [name, value] : step.values) {
      if (!std::isnan(value)) numbers[step.step][name] = value;
    }
  });
  return numbers;
}

RecordedRun::RecordedRun(fs::path folder, std::optional<int> learner)
    : folder_(std::move(folder)),
      learner_(learner),
      records_(learner ? train::folder_of_learner(folder_, *learner) : folder_) {
  const std::vector<fs::path> recorded = checkpoint::list(records_ / train::kGradientFolder);
  TRIREME_CHECK(!recorded.empty(), records_.string(),
                " has no gradients of step 1; expected a new run with record.gradients above 0");
  const checkpoint::SavedTensors first(recorded.front());
  parameters_ = parameters_of(first, recorded.front());
  first_step_ = first.step();
  while (fs::exists(gradients_of(records_, first_step_ + num_steps_)) &&
         fs::exists(checkpoint_of(folder_, first_step_ + num_steps_))) {
    ++num_steps_;
  }
  TRIREME_CHECK(num_steps_ > 0, folder_.string(), " has no checkpoint of step ", first_step_,
                "; expected checkpoint.interval=1 and a checkpoint.keep of all recorded steps");
  if (!learner_) {
    metrics_ = read_step_numbers(folder_);
    return;
  }
  for (int64_t step = first_step_; step < first_step_ + num_steps_; ++step)
    metrics_[step] = numbers_of(*gradients(step), gradients_of(records_, step));
}

std::optional<RecordedActivations> RecordedRun::activations(int64_t step) const {
  const fs::path where = records_ / train::kActivationFolder / checkpoint::folder_name(step);
  if (!fs::exists(where)) return std::nullopt;
  RecordedActivations found{.tensors = std::make_unique<checkpoint::SavedTensors>(where)};
  const std::string source = where.string();
  const nlohmann::json state = parse_json(found.tensors->state(), source);
  const JsonView view(state, source);
  found.order = names_in(view.at(train::kRecordedProbes));
  found.left_out = names_in(view.at(train::kPartialProbes));
  found.replicas = replicas_in(view.at(train::kDifferingProbes));
  return found;
}

std::unique_ptr<checkpoint::SavedTensors> RecordedRun::gradients(int64_t step) const {
  return std::make_unique<checkpoint::SavedTensors>(gradients_of(records_, step));
}

std::map<std::string, ReplicaDifference> RecordedRun::gradient_replicas(int64_t step) const {
  const fs::path where = gradients_of(records_, step);
  const checkpoint::SavedTensors record(where);
  const nlohmann::json state = parse_json(record.state(), where.string());
  const auto found = JsonView(state, where.string()).find(train::kDifferingGradients);
  return found ? replicas_in(*found) : std::map<std::string, ReplicaDifference>();
}

std::unique_ptr<checkpoint::TensorSource> RecordedRun::checkpoint(int64_t step) const {
  auto saved = std::make_unique<checkpoint::SavedTensors>(checkpoint_of(folder_, step));
  if (!learner_) return saved;
  return std::make_unique<LearnerTensors>(std::move(saved), *learner_);
}

double RecordedRun::metric(int64_t step, const std::string& name) const {
  const auto line = metrics_.find(step);
  if (line != metrics_.end()) {
    const auto value = line->second.find(name);
    if (value != line->second.end()) return value->second;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace trireme::verify
