#include "trireme/model/hugging_face.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kQuery = ".attn.q_proj.";

// "transformer.h.0.attn.q_proj.weight" -> the same with `projection` in the place of "q_proj".
std::string with_projection(const std::string& query_name, std::string_view projection) {
  const size_t begin = query_name.find(kQuery) + std::string_view(".attn.").size();
  return std::string(query_name).replace(begin, std::string_view("q_proj").size(), projection);
}

// The parameter's tensor under GPT-2's names; none when another parameter brings it.
std::optional<HuggingFaceTensor> gpt2_tensor(const ParameterPlan& parameter) {
  const std::string& name = parameter.name;
  HuggingFaceTensor tensor{name, parameter.layout.whole_shape(), {name}};
  const auto is_in = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (is_in(".attn.k_proj.") || is_in(".attn.v_proj.")) return std::nullopt;
  if (is_in(kQuery)) {
    tensor.name = with_projection(name, "c_attn");
    for (const char* other : {"k_proj", "v_proj"}) {
      tensor.parts.push_back(with_projection(name, other));
    }
    tensor.shape[0] *= static_cast<int64_t>(tensor.parts.size());
  }
  tensor.is_transposed = tensor.shape.size() == 2 && (is_in(".attn.") || is_in(".mlp."));
  if (tensor.is_transposed) std::swap(tensor.shape[0], tensor.shape[1]);
  return tensor;
}

ordered_json llama_config(const ModelConfig& config) {
  return {{"model_type", "llama"},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.width},
          {"intermediate_size", config.ffn_width},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_width()},
          {"hidden_act", "silu"},
          {"max_position_embeddings", config.sequence_length},
          {"rms_norm_eps", config.norm_epsilon},
          {"rope_theta", config.rope_base},
          {"rope_scaling", nullptr},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false}};
}

ordered_json gpt2_config(const ModelConfig& config) {
  return {{"model_type", "gpt2"},
          {"vocab_size", config.vocab_size},
          {"n_embd", config.width},
          {"n_inner", config.ffn_width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_positions", config.sequence_length},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"embd_pdrop", config.dropout},
          {"resid_pdrop", config.dropout},
          {"attn_pdrop", 0.0},  // see docs/models.md, dropout
          {"scale_attn_weights", true}};
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
  const ModelPlan plan = make_plan(config, 1);
  std::vector<HuggingFaceTensor> tensors;
  for (const ParameterPlan& parameter : plan.parameters()) {
    if (config.family != "gpt2") {
      tensors.push_back({parameter.name, parameter.layout.whole_shape(), {parameter.name}});
    } else if (auto tensor = gpt2_tensor(parameter)) {
      tensors.push_back(std::move(*tensor));
    }
  }
  return tensors;
}

at::Tensor join_parts(const HuggingFaceTensor& tensor, std::span<const at::Tensor> parts) {
  TRIREME_ASSERT(parts.size() == tensor.parts.size(), tensor.name, " of ", parts.size(), " parts");
  at::Tensor joined = parts.size() == 1 ? parts[0] : at::cat({parts.data(), parts.size()}, 0);
  if (tensor.is_transposed) joined = joined.t().contiguous();
  TRIREME_ASSERT(joined.sizes() == at::IntArrayRef(tensor.shape), tensor.name, " has shape ",
                 joined.sizes(), ", expected ", at::IntArrayRef(tensor.shape));
  return joined;
}

std::string hugging_face_architecture(const ModelConfig& config) {
  return config.family == "gpt2" ? "GPT2LMHeadModel" : "LlamaForCausalLM";
}

std::string hugging_face_config(const ModelConfig& config, c10::ScalarType dtype,
                                std::optional<int64_t> end_of_document) {
  ordered_json object = {{"architectures", {hugging_face_architecture(config)}}};
  object.update(config.family == "gpt2" ? gpt2_config(config) : llama_config(config));
  object["initializer_range"] = 0.02;
  object["tie_word_embeddings"] = config.has_tied_head();
  // The older of two keys, which every version of transformers reads.
  object["torch_dtype"] = torch_name(dtype);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    object[key] = end_of_document ? ordered_json(*end_of_document) : ordered_json(nullptr);
  }
  object["use_cache"] = true;
  return object.dump(2) + "\n";
}

}  // namespace trireme::model
