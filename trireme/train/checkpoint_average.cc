#include "trireme/train/checkpoint_average.h"

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/state/derived_run.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_form.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::SavedTensors;
using checkpoint::SourceTensor;

constexpr const char* kOpenIds = ".ids";
const std::string kMasterPrefix = concat(kOptimizerPrefix, kMasterState, ".");

bool is_averaged(const std::string& name, const SourceTensor& tensor) {
  if (!c10::isFloatingType(tensor.dtype)) return false;
  if (name.starts_with(kMasterPrefix)) return true;
  return !name.starts_with(kOptimizerPrefix) && !name.starts_with(kCallbackPrefix) &&
         !name.starts_with(kCompressionPrefix) && !name.starts_with(kLearnerPrefix);
}

struct Source {
  fs::path folder;
  std::unique_ptr<SavedTensors> tensors;
};

std::string form_of(const SourceTensor& tensor) {
  return concat(checkpoint::dtype_name(tensor.dtype), " ", checkpoint::shown_shape(tensor.shape));
}

// Row i of two checkpoints is not the row of one id.
void require_no_open_tables(const Source& source) {
  for (const auto& [name, tensor] : source.tensors->tensors()) {
    if (!name.ends_with(kOpenIds) || c10::isFloatingType(tensor.dtype)) continue;
    const std::string table = name.substr(0, name.size() - std::string_view(kOpenIds).size());
    if (!source.tensors->tensors().contains(table + ".weight")) continue;
    throw CheckpointError(concat(source.folder.string(), ": the table \"", shown(table),
                                 "\" has an open vocabulary, whose rows differ from checkpoint to "
                                 "checkpoint; only models without such tables can be averaged"));
  }
}

// Compares what is averaged.
void require_same_model(const Source& last, const Source& other) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> differences;
  const auto& expected = last.tensors->tensors();
  const auto& found = other.tensors->tensors();
  for (const auto& [name, tensor] : expected) {
    if (!is_averaged(name, tensor)) continue;
    const auto it = found.find(name);
    if (it == found.end()) {
      differences.push_back(concat("\"", name, "\" is missing"));
    } else if (it->second.dtype != tensor.dtype || it->second.shape != tensor.shape) {
      differences.push_back(
          concat("\"", name, "\" is ", form_of(it->second), ", expected ", form_of(tensor)));
    }
  }
  for (const auto& [name, tensor] : found) {
    if (is_averaged(name, tensor) && !expected.contains(name))
      differences.push_back(concat("\"", name, "\" is surplus"));
  }
  if (differences.empty()) return;
  std::string text;
  for (size_t i = 0; i < differences.size() && i < kNamed; ++i)
    text += (i == 0 ? ": " : ", ") + differences[i];
  if (differences.size() > kNamed) text += ", ...";
  throw CheckpointError(concat(other.folder.string(), ": is not of the model of ",
                               last.folder.string(), text,
                               "; only checkpoints of one model can be averaged"));
}

// Reads the sources when they are written.
class Averager {
 public:
  Averager(std::vector<Source> sources, const CheckpointAverageOptions& options)
      : sources_(std::move(sources)), on_progress_(options.on_progress) {
    for (size_t i = 0; i < sources_.size(); ++i) {
      factors_.push_back(std::pow(options.decay, static_cast<double>(sources_.size() - 1 - i)));
      sum_of_factors_ += factors_.back();
    }
  }

  const Source& last() const { return sources_.back(); }
  std::vector<double> weights() const {
    std::vector<double> weights;
    for (const double factor : factors_) weights.push_back(factor / sum_of_factors_);
    return weights;
  }

  // The new checkpoint's tensors. This must outlive them.
  std::vector<checkpoint::Entry> entries(CheckpointAverage& counts) {
    std::vector<checkpoint::Entry> entries;
    for (const auto& [name, tensor] : last().tensors->tensors()) {
      if (name.starts_with(kCompressionPrefix)) continue;
      const bool averaged = is_averaged(name, tensor);
      ++(averaged ? counts.num_averaged : counts.num_taken);
      entries.push_back(
          checkpoint::lazy_entry(name, tensor.dtype, mesh::Layout(tensor.shape, {{"tensor", 1}}), 0,
                                 [this, &name, averaged](const mesh::Box& part) {
                                   return averaged ? average(name, part) : read(last(), name, part);
                                 }));
      total_ += num_bytes(name, averaged);
    }
    return entries;
  }

 private:
  // The tensor whose average it is.
  std::string source_of(const std::string& name) const {
    const std::string master = kMasterPrefix + name;
    return last().tensors->tensors().contains(master) ? master : name;
  }

  // To read for a tensor of the new checkpoint.
  int64_t num_bytes(const std::string& name, bool averaged) const {
    if (!averaged) return checkpoint::num_bytes(last().tensors->tensors().at(name));
    return checkpoint::num_bytes(last().tensors->tensors().at(source_of(name))) *
           static_cast<int64_t>(sources_.size());
  }

  at::Tensor read(const Source& source, const std::string& name, const mesh::Box& part) {
    at::Tensor values = source.tensors->read_box(name, part);
    done_ += static_cast<int64_t>(values.nbytes());
    if (on_progress_) on_progress_(done_, total_);
    return values;
  }

  // Divides once, at the end, so that equal values average to the same value.
  at::Tensor average(const std::string& name, const mesh::Box& part) {
    const std::string from = source_of(name);
    const SourceTensor& form = last().tensors->tensors().at(name);
    at::Tensor sum = at::zeros(part.size, at::kDouble);
    for (size_t i = 0; i < sources_.size(); ++i) {
      const at::Tensor values = read(sources_[i], from, part);
      require_finite(values, from, sources_[i].folder);
      sum.add_(values.to(at::kDouble).mul_(factors_[i]));
    }
    return sum.div_(sum_of_factors_).to(form.dtype);
  }

  std::vector<Source> sources_;
  checkpoint::OnProgress on_progress_;
  std::vector<double> factors_;
  double sum_of_factors_ = 0;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

std::vector<Source> open(std::span<const fs::path> paths, CheckpointAverage& result) {
  std::vector<Source> sources;
  std::set<fs::path> known;
  for (const fs::path& path : paths) {
    const fs::path folder = find_checkpoint(path);
    TRIREME_CHECK(known.insert(fs::canonical(folder)).second, folder.string(),
                  " is listed twice; expected checkpoints that differ");
    sources.push_back({folder, std::make_unique<SavedTensors>(folder)});
    result.checkpoints.push_back(folder);
  }
  for (const Source& source : sources) {
    require_no_open_tables(source);
    require_same_model(sources.back(), source);
  }
  return sources;
}

}  // namespace

CheckpointAverage average_checkpoints(std::span<const fs::path> paths, const fs::path& output,
                                      const Offer& offer, const CheckpointAverageOptions& options) {
  TRIREME_CHECK(paths.size() >= 2, "cannot average ", paths.size(),
                " checkpoint; expected at least 2");
  TRIREME_CHECK(options.decay > 0 && options.decay <= 1, "decay is ", options.decay,
                "; expected above 0 and at most 1");
  CheckpointAverage result;
  Averager averager(open(paths, result), options);
  result.weights = averager.weights();
  const SavedTensors& last = *averager.last().tensors;
  const std::string where = averager.last().folder.string();
  RunState state = parse_state(last.state(), where, last.step());
  const RunConfig config = derived_config(state.config, where, offer, output);
  state.config = to_toml(config);
  result.step = state.step;
  const std::vector<checkpoint::Entry> entries = averager.entries(result);
  DerivedRun run(where, output);
  const auto world = comm::make_thread_group(1);
  checkpoint::save(run.checkpoints(), state.step, entries, to_json(state), *world.front());
  run.commit(state.config, config.task->traits().file_names);
  return result;
}

}  // namespace trireme::train
