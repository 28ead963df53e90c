// The tensors of an export, read from a checkpoint of any layout in boxes of any size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/mesh/layout.h"
#include "trireme/model/hugging_face.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

// The adapters of a model, and how it keeps the weights that they are added to.
struct MergedAdapters {
  WeightFormat base = WeightFormat::kRun;                // AdapterConfig::base
  double scale = 0;                                      // AdapterConfig::scale()
  std::map<std::string, std::vector<int64_t>> shapes{};  // of their parameters, by name
};
// Empty when the model has none.
MergedAdapters adapters_of(const model::ModelConfig& config);

// Keeps the files of the last tensor open. Not thread safe.
class ExportSource {
 public:
  // `manifest`, of the checkpoint `folder`, must outlive this. dtype: to which all are converted.
  // adapters: merged into their layers' weights in fp64; weights that are kept as codes are read as
  //           the fp32 numbers that they stand for
  ExportSource(std::filesystem::path folder, const checkpoint::Manifest& manifest,
               c10::ScalarType dtype, train::Weights weights, MergedAdapters adapters = {});

  // Tensors of which no average is kept, such as running statistics: they are those of the last
  // step.
  void take_last(std::set<std::string> names) { last_ = std::move(names); }

  // Whether the optimizer's fp32 weights are more exact, because the dtype differs from the run's.
  bool has_better_master(const std::string& parameter) const;

  // Throws: CheckpointError when a parameter that the tensor is made of is missing, or has another
  //         shape
  void check(const model::HuggingFaceTensor& tensor) const;

  // The box of a tensor that check() has passed. Of a transposed tensor, that of columns reads all
  // of what is stored between them.
  // Shapes: box.size
  // Throws: CheckpointError when bytes are damaged or a value is not finite; ConfigError when a
  //         value is too large for the dtype
  at::Tensor read(const model::HuggingFaceTensor& tensor, const mesh::Box& box);

  // The length of each row of a parameter that is a matrix, as it is stored: [rows], fp64.
  // Throws: as read()
  at::Tensor row_lengths(const std::string& parameter);

 private:
  // The tensor of the checkpoint that has the parameter's values.
  std::string stored_name(const std::string& parameter) const;
  // Whether the checkpoint has the parameter as codes with scales.
  bool is_frozen(const std::string& parameter) const;
  // Empty: the checkpoint does not have it.
  std::vector<int64_t> shape_of(const std::string& stored) const;
  at::Tensor read_frozen(const std::string& parameter, const mesh::Box& box);
  void open(const model::HuggingFaceTensor& tensor);
  at::Tensor read_stored(const std::string& stored, const mesh::Box& box);
  at::Tensor read_finite(const std::string& stored, const mesh::Box& box);
  at::Tensor read_parameter(const std::string& parameter, const mesh::Box& box);
  // A box of a tensor with adjacent pairs, of one parameter as it is.
  at::Tensor read_paired(const model::HuggingFaceTensor& tensor, const mesh::Box& box);
  // A box of a tensor that alternates, before it is transposed.
  at::Tensor read_alternating(const model::HuggingFaceTensor& tensor, const mesh::Box& box);
  // A box of a layer's weight with its adapter, in fp64, before the magnitudes.
  at::Tensor read_sum(const std::string& parameter, const mesh::Box& box);
  // The length of each row of a weight of that shape, read part by part.
  template <typename Read>
  static at::Tensor lengths_of(const std::vector<int64_t>& shape, const Read& read);
  // By what the magnitudes of the layer multiply each row of that sum.
  const at::Tensor& read_gains(const std::string& parameter);
  at::Tensor read_exact(const std::string& parameter, const mesh::Box& box);
  // Throws, with the number of all values that are not finite.
  void refuse(const std::string& stored);

  std::filesystem::path folder_;
  const checkpoint::Manifest& manifest_;
  c10::ScalarType dtype_;
  train::Weights weights_;
  MergedAdapters adapters_;
  std::set<std::string> last_{};
  std::optional<checkpoint::Shards> shards_;
  std::vector<std::string> opened_for_;
  std::string gains_of_{};  // the layer whose gains_ these are
  at::Tensor gains_{};      // [out], fp64
};

}  // namespace trireme::tasks
