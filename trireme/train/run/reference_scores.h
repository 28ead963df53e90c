// What the initial model says about every sample, for objectives that compare the trained model
// with it (TaskTraits::num_scores). It is computed before the first step, by the run's own model
// and layout, so that no second copy of the weights is ever in memory, and kept in the run's folder
// for resumes, when the initial weights are gone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/agreement.h"
#include "trireme/dataset/source.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train {

// In the run's folder: tensors "training" and "validation", [samples, num_scores] fp64, and as
// metadata "identity" of data and initial weights and "checksum" of the tensors.
inline constexpr const char* kReferenceFile = "reference.safetensors";

// The samples of another source, each with its scores as the tensor "reference", [num_scores] fp64.
class ReferenceSource : public dataset::Source {
 public:
  // Zeros until use() is called. `source` must outlive it.
  ReferenceSource(const dataset::Source& source, int64_t num_scores);

  // Not while others read.
  void use(at::Tensor scores_NS) { scores_NS_ = std::move(scores_NS); }

  int64_t size() const override { return source_.size(); }
  std::vector<int64_t> shard_sizes() const override { return source_.shard_sizes(); }
  const dataset::Blend* blend() const override { return source_.blend(); }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  const dataset::Source& source_;
  at::Tensor scores_NS_;  // [samples, num_scores] fp64; [1, num_scores] of zeros before use()
};

// What ReferenceScores::find() needs of a run.
struct ReferenceRun {
  ParallelModel& model;
  int64_t step = 0;  // finished; the weights are the initial ones at 0
  const DataIdentity& data;
  const DataIdentity& validation;
  // Asked now and then; must answer the same on every rank.
  std::function<bool()> is_cut{};
  // Lines for the user; those of rank 0 are shown.
  std::function<void(const std::string& line)> tell{};
  checkpoint::OnWait on_wait{};
};

// The sources of a run with their scores. Not thread safe.
class ReferenceScores {
 public:
  // `config`, whose data is open, and `mesh` must outlive it.
  ReferenceScores(const RunConfig& config, const mesh::DeviceMesh& mesh);

  const ReferenceSource& training() const { return training_; }
  const ReferenceSource* validation() const { return validation_ ? &*validation_ : nullptr; }

  // Gives both sources their scores: at step 0 by evaluating every sample, and writes the file;
  // later from the file. Returns whether it did; false: it was cut.
  // Comm:       8 bytes per score all-reduced, and that of ParallelModel::scores(); or the scores
  //             of rank 0 to all
  // Collective: every rank of the mesh's world
  // Throws:     CheckpointError when the file is missing, damaged, or of other data or another
  //             model; ConfigError when a score is not finite; Error when it cannot be written
  bool find(const ReferenceRun& run);

 private:
  std::optional<at::Tensor> score(const ReferenceRun& run, const dataset::Source& source,
                                  const char* name) const;
  std::string identity(const ReferenceRun& run) const;
  std::string read_file_of_root(const ReferenceRun& run) const;
  void load(const ReferenceRun& run);

  const RunConfig& config_;
  const mesh::DeviceMesh& mesh_;
  int64_t num_scores_;
  ReferenceSource training_;
  std::optional<ReferenceSource> validation_;
};

}  // namespace trireme::train
