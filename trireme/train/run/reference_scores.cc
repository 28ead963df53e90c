#include "trireme/train/run/reference_scores.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/train/config/read_sections.h"
#include "trireme/train/run/bad_samples.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kProgressInterval{10};

// Whether this rank's scores count: of ranks with the same samples, the first one's do.
bool is_first_with_its_samples(const mesh::DeviceMesh& mesh) {
  return mesh.coordinate("tensor") == 0 && mesh.coordinate("context") == 0;
}

std::string checksum_of(const std::map<std::string, at::Tensor>& tensors) {
  std::string all;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor values = tensor.contiguous();
    all += checksum(std::as_bytes(
        std::span(values.const_data_ptr<double>(), static_cast<size_t>(values.numel()))));
  }
  return all;
}

// Through a name of its own: a killed process leaves no half file.
void write_reference(const fs::path& folder, const std::map<std::string, at::Tensor>& tensors,
                     std::map<std::string, std::string> metadata) {
  metadata["checksum"] = checksum_of(tensors);
  const fs::path temporary = folder / (std::string(".") + kReferenceFile + ".tmp");
  checkpoint::write_safetensors(temporary, tensors, metadata);
  std::error_code failure;
  fs::rename(temporary, folder / kReferenceFile, failure);
  if (failure) {
    throw Error(concat("cannot rename ", temporary.string(), ": ", failure.message()));
  }
  sync_folder(folder);
}

constexpr const char* kAdvice =
    "; what the initial model says of the samples cannot be computed again after step 0: bring the "
    "file back, or begin a new run, with init.folder for these weights";

}  // namespace

ReferenceSource::ReferenceSource(const dataset::Source& source, int64_t num_scores)
    : source_(source), scores_NS_(at::zeros({1, num_scores}, at::kDouble)) {}

dataset::NamedTensors ReferenceSource::get(int64_t index,
                                           std::optional<RandomKey> augmentation) const {
  dataset::NamedTensors sample = source_.get(index, augmentation);
  const bool is_known = scores_NS_.size(0) == source_.size();
  sample.emplace_back("reference", scores_NS_.select(0, is_known ? index : 0));
  return sample;
}

ReferenceScores::ReferenceScores(const RunConfig& config, const mesh::DeviceMesh& mesh)
    : config_(config),
      mesh_(mesh),
      num_scores_(config.task->traits().num_scores),
      training_(config.task->training(), num_scores_) {
  const dataset::Source* const validation = config.task->validation();
  if (validation != nullptr) validation_.emplace(*validation, num_scores_);
}

// All samples in microbatches of the usual size, so that the bits are those of any data-parallel
// degree. Each rank fills in the rows that it has computed, and the sum adds zeros to each.
std::optional<at::Tensor> ReferenceScores::score(const ReferenceRun& run,
                                                 const dataset::Source& source,
                                                 const char* name) const {
  const dataset::BatchOptions options = validation_batches(config_, mesh_, source.size());
  dataset::BatchReader batches(source, options,
                               read_ahead(config_, run.model.mesh().world(), /*num_steps=*/1));
  BadSamples bad_samples(config_.data.skip_bad_samples);
  const at::Tensor scores_NS = at::zeros({source.size(), num_scores_}, at::kDouble);
  const int64_t at_once = int64_t{16} * run.model.mesh().size("pipeline");
  const int64_t num_microbatches = batches.loader().num_microbatches(0);
  auto told = std::chrono::steady_clock::now();
  run.model.begin_evaluation();
  for (int64_t begin = 0; begin < num_microbatches; begin += at_once) {
    if (run.is_cut()) return std::nullopt;
    const int64_t end = std::min(begin + at_once, num_microbatches);
    const std::vector<dataset::Batch> loaded =
        bad_samples.read(mesh_.world(), batches, 0, begin, end);
    const std::vector<at::Tensor> found = run.model.scores(loaded);
    for (size_t i = 0; i < found.size() && is_first_with_its_samples(mesh_); ++i) {
      scores_NS.narrow(0, loaded[i].first_sample, loaded[i].size()).copy_(found[i]);
    }
    if (std::chrono::steady_clock::now() - told > kProgressInterval) {
      told = std::chrono::steady_clock::now();
      run.tell(concat("reference: the initial model has read ",
                      source.size() * end / num_microbatches, " of ", source.size(), " ", name,
                      " samples"));
    }
  }
  run.model.finish_evaluation();
  mesh_.world().all_reduce(scores_NS)->wait();
  const at::Tensor is_bad_N = scores_NS.isfinite().logical_not_().any(1);
  if (is_bad_N.any().item<bool>()) {
    const auto index = is_bad_N.nonzero()[0].item<int64_t>();
    throw ConfigError(concat("the initial model gives ", name, " sample ", index, " the scores ",
                             scores_NS[index][0].item<double>(),
                             ", ...; expected finite numbers: begin with other weights, or in "
                             "another train.precision"));
  }
  return scores_NS;
}

// What decides the scores: the keys of the model and of its initial weights, and the data.
std::string ReferenceScores::identity(const ReferenceRun& run) const {
  RunConfig copy = config_;
  std::vector<Field> kept;
  for (Field& field : fields_of(copy)) {
    const std::string section = field.section();
    if (section == "model" || section == "lora" || section == "init" || field.key == "train.seed" ||
        field.key == "train.precision") {
      if (field.on_resume == OnResume::kMustStay) kept.push_back(std::move(field));
    }
  }
  std::string text = sections_to_toml(kept);
  // Validation data may come later, or go.
  for (const auto& [name, sum] : run.data.checksums) text += concat(name, " ", sum, "\n");
  return checksum(std::as_bytes(std::span(text)));
}

std::string ReferenceScores::read_file_of_root(const ReferenceRun& run) const {
  const fs::path path = fs::path(config_.output.folder) / kReferenceFile;
  std::optional<checkpoint::SafetensorsReader> file;
  try {
    file.emplace(path);
  } catch (const CheckpointError& error) {
    throw CheckpointError(concat(error.what(), kAdvice));
  }
  std::map<std::string, at::Tensor> tensors;
  const auto take = [&](const char* name, int64_t size) {
    const checkpoint::TensorInfo* const info = file->find(name);
    const bool fits = info != nullptr && info->dtype == at::kDouble &&
                      info->shape == std::vector<int64_t>{size, num_scores_};
    if (!fits) {
      throw CheckpointError(concat(path.string(), " has no \"", name, "\" of ", size,
                                   " samples, which the run now reads", kAdvice));
    }
    tensors[name] = file->read(name);
  };
  take("training", training_.size());
  if (validation_) take("validation", validation_->size());
  std::map<std::string, at::Tensor> all = tensors;
  if (!validation_ && file->find("validation") != nullptr &&
      file->find("validation")->dtype == at::kDouble) {
    all["validation"] = file->read("validation");
  }
  const auto of = [&](const char* name) {
    const auto found = file->metadata().find(name);
    return found == file->metadata().end() ? std::string() : found->second;
  };
  if (of("checksum") != checksum_of(all)) {
    throw CheckpointError(concat(path.string(), " is damaged: its checksum is ", checksum_of(all),
                                 ", and it says ", of("checksum"), kAdvice));
  }
  if (of("identity") != identity(run)) {
    throw CheckpointError(
        concat(path.string(), " belongs to other data, or to another initial model", kAdvice));
  }
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return bytes;
}

void ReferenceScores::load(const ReferenceRun& run) {
  const std::string bytes = checkpoint::from_root(
      mesh_.world(), [&](const checkpoint::Peers&) { return read_file_of_root(run); }, run.on_wait);
  size_t at = 0;
  const auto take = [&](int64_t size) {
    at::Tensor scores_NS = at::empty({size, num_scores_}, at::kDouble);
    TRIREME_ASSERT(at + scores_NS.nbytes() <= bytes.size(), "scores of ", size, " samples");
    std::memcpy(scores_NS.mutable_data_ptr(), bytes.data() + at, scores_NS.nbytes());
    at += scores_NS.nbytes();
    return scores_NS;
  };
  training_.use(take(training_.size()));
  if (validation_) validation_->use(take(validation_->size()));
}

bool ReferenceScores::find(const ReferenceRun& run) {
  if (run.step > 0) {
    load(run);
    return true;
  }
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, at::Tensor> tensors;
  const auto add = [&](ReferenceSource& source, const char* name) {
    const std::optional<at::Tensor> found = score(run, source, name);
    if (!found) return false;
    tensors[name] = *found;
    source.use(*found);
    return true;
  };
  if (!add(training_, "training")) return false;
  if (validation_ && !add(*validation_, "validation")) return false;
  checkpoint::from_root(
      mesh_.world(),
      [&](const checkpoint::Peers&) {
        write_reference(config_.output.folder, tensors, {{"identity", identity(run)}});
        return std::string();
      },
      run.on_wait);
  run.tell(
      format("reference: the initial model has read all samples in %.1f s", seconds_since(start)));
  return true;
}

}  // namespace trireme::train
