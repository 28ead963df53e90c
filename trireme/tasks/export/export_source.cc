#include "trireme/tasks/export/export_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/tensor_boxes.h"
#include "trireme/model/family/frozen_weights.h"
#include "trireme/model/family/plan.h"
#include "trireme/tasks/language/foreign/peft_form.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/state/run_state.h"

namespace trireme::tasks {
namespace {

using model::HuggingFaceTensor;

// The name that checkpoint_entries() gives a parameter's master weights.
std::string master_of(const std::string& parameter) {
  return concat(train::kOptimizerPrefix, train::kMasterState, ".", parameter);
}

// The shape of its parameter `part`. Of how many slices one is, only `found` says, the
// parameter's own shape.
std::vector<int64_t> parameter_shape(const HuggingFaceTensor& tensor, size_t part,
                                     const std::vector<int64_t>& found) {
  std::vector<int64_t> shape = tensor.shape;
  if (tensor.is_transposed) std::swap(shape.at(shape.size() - 2), shape.back());
  if (tensor.slice >= 0)
    shape.insert(shape.begin(), std::max(found.empty() ? 0 : found[0], tensor.slice + 1));
  int64_t& rows = shape.at(tensor.alternates ? 1 : 0);
  rows = tensor.rows_of(part, rows);
  return shape;
}

// The parts of a tensor's box in its parameters, one after the other.
mesh::Box stored_box(const HuggingFaceTensor& tensor, mesh::Box box) {
  if (tensor.is_transposed) {
    const size_t last = box.size.size() - 1;
    std::swap(box.offset.at(last - 1), box.offset.at(last));
    std::swap(box.size.at(last - 1), box.size.at(last));
  }
  if (tensor.slice >= 0) {
    box.offset.insert(box.offset.begin(), tensor.slice);
    box.size.insert(box.size.begin(), 1);
  }
  return box;
}

}  // namespace

MergedAdapters adapters_of(const model::ModelConfig& config) {
  MergedAdapters adapters;
  if (!config.lora.is_on()) return adapters;
  adapters.base = config.lora.base;
  adapters.scale = config.lora.scale();
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    if (model::is_of_adapter(parameter.name))
      adapters.shapes[parameter.name] = parameter.layout.whole_shape();
  }
  return adapters;
}

ExportSource::ExportSource(std::filesystem::path folder, const checkpoint::Manifest& manifest,
                           c10::ScalarType dtype, train::Weights weights, MergedAdapters adapters)
    : folder_(std::move(folder)),
      manifest_(manifest),
      dtype_(dtype),
      weights_(weights),
      adapters_(std::move(adapters)) {}

bool ExportSource::has_better_master(const std::string& parameter) const {
  if (weights_ == train::Weights::kAverage) return false;  // in fp32 themselves
  const auto found = manifest_.tensors.find(parameter);
  return found != manifest_.tensors.end() && found->second.dtype != dtype_ &&
         manifest_.tensors.contains(master_of(parameter));
}

void ExportSource::check(const HuggingFaceTensor& tensor) const {
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    const std::string stored = stored_name(tensor.parts[i]);
    const std::vector<int64_t> shape = shape_of(stored);
    if (shape.empty())
      throw CheckpointError(concat(folder_.string(), ": there is no tensor \"", stored,
                                   "\" among its ", manifest_.tensors.size()));
    const std::vector<int64_t> expected = parameter_shape(tensor, i, shape);
    if (shape != expected)
      throw CheckpointError(concat(folder_.string(), ": \"", stored, "\" has the shape ",
                                   at::IntArrayRef(shape), " and the model's is ",
                                   at::IntArrayRef(expected), ": use another checkpoint"));
  }
}

at::Tensor ExportSource::read(const HuggingFaceTensor& tensor, const mesh::Box& box) {
  open(tensor);
  const mesh::Box stored = stored_box(tensor, box);
  if (tensor.alternates) return read_alternating(tensor, stored);
  if (tensor.has_adjacent_pairs) return read_paired(tensor, stored);
  const int64_t begin = stored.offset.at(0), end = begin + stored.size.at(0);
  std::vector<at::Tensor> values;
  int64_t first = 0;  // of a parameter, in all of them
  for (const std::string& parameter : tensor.parts) {
    const int64_t rows = shape_of(stored_name(parameter)).at(0);
    mesh::Box own = stored;
    own.offset[0] = std::max(begin - first, int64_t{0});
    own.size[0] = std::min(end - first, rows) - own.offset[0];
    if (own.size[0] > 0) values.push_back(read_parameter(parameter, own));
    first += rows;
  }
  return model::join_parts({.name = tensor.name,
                            .shape = box.size,
                            .parts = std::vector<std::string>(values.size()),
                            .is_transposed = tensor.is_transposed,
                            .slice = tensor.slice < 0 ? -1 : 0},
                           values);
}

at::Tensor ExportSource::read_alternating(const HuggingFaceTensor& tensor, const mesh::Box& box) {
  const int64_t parts = std::ssize(tensor.parts);
  const int64_t begin = box.offset.at(1), end = begin + box.size.at(1);
  mesh::Box own = box;
  own.offset[1] = begin / parts;
  own.size[1] = (end + parts - 1) / parts - own.offset[1];
  std::vector<at::Tensor> values;
  for (const std::string& parameter : tensor.parts) {
    values.push_back(read_parameter(parameter, own));
  }
  const at::Tensor rows =
      at::stack(values, 2).flatten(1, 2).narrow(1, begin - parts * own.offset[1], box.size.at(1));
  return (tensor.is_transposed ? rows.transpose(-2, -1) : rows).contiguous();
}

at::Tensor ExportSource::read_paired(const HuggingFaceTensor& tensor, const mesh::Box& box) {
  const int64_t width = tensor.head_rows;
  const int64_t begin = box.offset.at(0), end = begin + box.size.at(0);
  mesh::Box heads = box;  // those that the rows are of
  heads.offset[0] = begin / width * width;
  heads.size[0] = (end + width - 1) / width * width - heads.offset[0];
  HuggingFaceTensor own = tensor;
  own.shape = heads.size;
  const std::vector<at::Tensor> parts{read_parameter(tensor.parts.at(0), heads)};
  return model::join_parts(own, parts)
      .narrow(0, begin - heads.offset[0], box.size.at(0))
      .contiguous();
}

bool ExportSource::is_frozen(const std::string& parameter) const {
  return has_scales(adapters_.base) && !manifest_.tensors.contains(parameter) &&
         manifest_.tensors.contains(concat(module_of(parameter), model::kWeightCodes));
}

std::vector<int64_t> ExportSource::shape_of(const std::string& stored) const {
  const std::string name =
      is_frozen(stored) ? concat(module_of(stored), model::kWeightCodes) : stored;
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end()) return {};
  std::vector<int64_t> shape = found->second.shape;
  if (name != stored && shape.size() == 2) shape[1] *= numbers_per_code(adapters_.base);
  return shape;
}

std::string ExportSource::stored_name(const std::string& parameter) const {
  if (is_frozen(parameter) || last_.contains(parameter)) return parameter;
  return has_better_master(parameter) ? master_of(parameter)
                                      : train::tensor_of(parameter, weights_);
}

// Closes files opened for other parameters, so that their pages do not accumulate.
void ExportSource::open(const HuggingFaceTensor& tensor) {
  if (shards_ && tensor.parts == opened_for_) return;
  shards_.emplace(folder_, manifest_);
  opened_for_ = tensor.parts;
}

at::Tensor ExportSource::read_frozen(const std::string& parameter, const mesh::Box& box) {
  WeightCodes read{adapters_.base};
  int64_t first = 0;  // column of the box among those that are read
  for (const std::string_view end : {model::kWeightCodes, model::kWeightScales}) {
    const std::string name = concat(module_of(parameter), end);
    const auto part = model::frozen_part(name, adapters_.base);
    const int64_t begin = box.offset.at(1) / kCodesPerScale * kCodesPerScale;
    const int64_t last = box.offset.at(1) + box.size.at(1);
    const int64_t columns = (last - begin + kCodesPerScale - 1) / kCodesPerScale * kCodesPerScale;
    first = box.offset.at(1) - begin;
    (part->is_scales ? read.scales : read.codes) = read_stored(
        name,
        {{box.offset.at(0), begin / part->numbers()}, {box.size.at(0), columns / part->numbers()}});
  }
  return decode(read, at::kFloat).narrow(1, first, box.size.at(1));
}

at::Tensor ExportSource::read_stored(const std::string& stored, const mesh::Box& box) {
  if (is_frozen(stored)) return read_frozen(stored, box);
  const checkpoint::TensorRecord& record = manifest_.tensors.at(stored);
  at::Tensor values = at::empty(box.size, at::TensorOptions().dtype(record.dtype));
  shards_->read_box(stored, record, box, values);
  return values;
}

at::Tensor ExportSource::read_finite(const std::string& stored, const mesh::Box& box) {
  at::Tensor values = read_stored(stored, box);
  if (!train::is_finite(values)) refuse(stored);
  return values;
}

at::Tensor ExportSource::read_parameter(const std::string& parameter, const mesh::Box& box) {
  const std::string stored = stored_name(parameter), layer = module_of(parameter);
  if (!adapters_.shapes.contains(layer + model::kAdapterB))
    return train::in_dtype(read_finite(stored, box), dtype_, stored);
  at::Tensor values = read_sum(parameter, box);
  if (adapters_.shapes.contains(layer + model::kAdapterMagnitude)) {
    const at::Tensor& gains = read_gains(parameter);
    values *= gains.narrow(0, box.offset.at(0), box.size.at(0)).unsqueeze(1);
  }
  return train::in_dtype(values, dtype_, stored);
}

at::Tensor ExportSource::read_sum(const std::string& parameter, const mesh::Box& box) {
  const std::string stack = model::adapted_stack(parameter);
  const std::string a_name = (stack.empty() ? module_of(parameter) : stack) + model::kAdapterA;
  const size_t inputs = box.size.size() - 1, outputs = inputs - 1;
  const int64_t rank = adapters_.shapes.at(a_name).at(outputs);
  mesh::Box of_a = box, of_b = box;
  of_a.offset[outputs] = of_b.offset[inputs] = 0;
  of_a.size[outputs] = of_b.size[inputs] = rank;
  const at::Tensor a = read_exact(a_name, of_a);
  const at::Tensor b = read_exact(module_of(parameter) + model::kAdapterB, of_b);
  return read_finite(stored_name(parameter), box).to(at::kDouble) + adapters_.scale * b.matmul(a);
}

template <typename Read>
at::Tensor ExportSource::lengths_of(const std::vector<int64_t>& shape, const Read& read) {
  at::Tensor squares = at::zeros({shape.at(0)}, at::kDouble);
  const checkpoint::TensorParts parts(shape, sizeof(double));
  for (int64_t i = 0; i < parts.size(); ++i) {
    const mesh::Box box = parts.at(i);
    squares.narrow(0, box.offset.at(0), box.size.at(0)) += read(box).square().sum(1);
  }
  return squares.sqrt_();
}

at::Tensor ExportSource::row_lengths(const std::string& parameter) {
  const std::string stored = stored_name(parameter);
  return lengths_of(shape_of(stored),
                    [&](const mesh::Box& box) { return read_finite(stored, box).to(at::kDouble); });
}

const at::Tensor& ExportSource::read_gains(const std::string& parameter) {
  if (gains_of_ == parameter) return gains_;
  const std::string name = module_of(parameter) + model::kAdapterMagnitude;
  const std::vector<int64_t> shape = shape_of(stored_name(parameter));
  const at::Tensor magnitude =
      read_exact(name, {{0}, adapters_.shapes.at(name)}) + row_lengths(parameter);
  const at::Tensor lengths =
      lengths_of(shape, [&](const mesh::Box& box) { return read_sum(parameter, box); });
  // A row of zeros stays one.
  gains_ = magnitude / lengths.clamp_min(std::numeric_limits<float>::min());
  gains_of_ = parameter;
  return gains_;
}

// Of an adapter, in fp64, from the fp32 weights where the run keeps them.
at::Tensor ExportSource::read_exact(const std::string& parameter, const mesh::Box& box) {
  const std::string master = master_of(parameter);
  const bool has_master =
      weights_ != train::Weights::kAverage && manifest_.tensors.contains(master);
  const std::string stored = has_master ? master : train::tensor_of(parameter, weights_);
  const auto found = manifest_.tensors.find(stored);
  if (found == manifest_.tensors.end() || found->second.shape != adapters_.shapes.at(parameter)) {
    throw CheckpointError(concat(folder_.string(), ": there is no tensor \"", stored,
                                 "\" of the shape ",
                                 at::IntArrayRef(adapters_.shapes.at(parameter)),
                                 ", which is the model's: use another checkpoint"));
  }
  return read_finite(stored, box).to(at::kDouble);
}

void ExportSource::refuse(const std::string& stored) {
  const std::vector<int64_t> shape = shape_of(stored);
  const checkpoint::TensorParts parts(shape, sizeof(double));
  int64_t num_finite = 0;
  for (int64_t i = 0; i < parts.size(); ++i)
    num_finite += at::isfinite(read_stored(stored, parts.at(i))).sum().item<int64_t>();
  const int64_t count = c10::multiply_integers(shape);
  train::require_finite(count - num_finite, count, stored, folder_);
}

}  // namespace trireme::tasks
