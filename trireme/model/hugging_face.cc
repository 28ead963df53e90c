#include "trireme/model/hugging_face.h"

#include <variant>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/family.h"

namespace trireme::model {
namespace {

using nlohmann::ordered_json;

HuggingFaceForm form_of(const ModelConfig& config) {
  return family_of(config).hugging_face_form(make_plan(config));
}

// Rows 0, 1, 2, 3, ... of each head's rotary ones become 0, 2, ..., 1, 3, ...
at::Tensor with_halves_apart(const HuggingFaceTensor& tensor, const at::Tensor& values) {
  const int64_t plain = tensor.head_rows - tensor.rotary_rows;
  const at::Tensor heads = values.view({-1, tensor.head_rows, values.size(1)});
  const at::Tensor pairs = heads.narrow(1, plain, tensor.rotary_rows).unflatten(1, {-1, 2});
  const at::Tensor halves = pairs.transpose(1, 2).flatten(1, 2);
  return at::cat({heads.narrow(1, 0, plain), halves}, 1).flatten(0, 1);
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config) {
  return form_of(config).tensors;
}

at::Tensor join_parts(const HuggingFaceTensor& tensor, std::span<const at::Tensor> parts) {
  TRIREME_ASSERT(parts.size() == tensor.parts.size(), tensor.name, " of ", parts.size(), " parts");
  at::Tensor joined = parts.size() == 1 ? parts[0] : at::cat({parts.data(), parts.size()}, 0);
  if (tensor.slice >= 0) joined = joined.select(0, tensor.slice);
  if (tensor.is_transposed) joined = joined.t().contiguous();
  TRIREME_ASSERT(joined.sizes() == at::IntArrayRef(tensor.shape), tensor.name, " has shape ",
                 joined.sizes(), ", expected ", at::IntArrayRef(tensor.shape));
  return joined;
}

std::vector<at::Tensor> split_parts(const HuggingFaceTensor& tensor, const at::Tensor& values,
                                    bool adjacent_pairs) {
  TRIREME_ASSERT(values.sizes() == at::IntArrayRef(tensor.shape), tensor.name, " has shape ",
                 values.sizes(), ", expected ", at::IntArrayRef(tensor.shape));
  at::Tensor joined = tensor.is_transposed ? values.t().contiguous() : values;
  if (adjacent_pairs && tensor.rotary_rows > 0) joined = with_halves_apart(tensor, joined);
  if (tensor.parts.size() == 1) return {joined};
  return joined.chunk(std::ssize(tensor.parts), 0);
}

std::string hugging_face_architecture(const ModelConfig& config) {
  return std::string(form_of(config).kind->architecture);
}

std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document) {
  const HuggingFaceKind& kind = *form_of(config).kind;
  ordered_json object = {{"architectures", {kind.architecture}}, {"model_type", kind.type}};
  for (const HuggingFaceKey& key : kind.keys()) {
    if (!key.is_written) continue;
    object[key.name] =
        std::visit([](const auto& value) { return ordered_json(value); }, key.value(config));
  }
  object["initializer_range"] = 0.02;
  // The older of two keys. Every version of transformers reads it.
  object["torch_dtype"] = name_of(kTorchDtypes, dtype);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    object[key] = end_of_document ? ordered_json(*end_of_document) : ordered_json(nullptr);
  }
  object["use_cache"] = true;
  return object.dump(2) + "\n";
}

}  // namespace trireme::model
