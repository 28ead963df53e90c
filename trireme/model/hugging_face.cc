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

std::string torch_name(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return "float64";
    case at::kFloat: return "float32";
    case at::kBFloat16: return "bfloat16";
    case at::kHalf: return "float16";
    default: throw InternalError(concat("weights of dtype ", c10::toString(dtype)));
  }
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

std::string hugging_face_architecture(const ModelConfig& config) {
  return form_of(config).architecture;
}

std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document) {
  const HuggingFaceForm form = form_of(config);
  ordered_json object = {{"architectures", {form.architecture}}};
  for (const auto& [key, value] : form.config) {
    object[key] = std::visit([](const auto& of_type) { return ordered_json(of_type); }, value);
  }
  object["initializer_range"] = 0.02;
  object["tie_word_embeddings"] = config.has_tied_head();
  // The older of two keys. Every version of transformers reads it.
  object["torch_dtype"] = torch_name(dtype);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    object[key] = end_of_document ? ordered_json(*end_of_document) : ordered_json(nullptr);
  }
  object["use_cache"] = true;
  return object.dump(2) + "\n";
}

}  // namespace trireme::model
