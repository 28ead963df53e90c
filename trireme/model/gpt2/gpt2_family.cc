#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/gpt2/gpt2.h"

namespace trireme::model::inline internal {
namespace {

constexpr std::string_view kQuery = ".attn.q_proj.";

// "transformer.h.0.attn.q_proj.weight" -> the same with `projection` in place of "q_proj".
std::string with_projection(const std::string& query_name, std::string_view projection) {
  const size_t begin = query_name.find(kQuery) + std::string_view(".attn.").size();
  return std::string(query_name).replace(begin, std::string_view("q_proj").size(), projection);
}

// The parameter's tensor in Hugging Face's GPT-2. Its Conv1D stores [in, out], and one matrix holds
// query, key and value. nullopt when the tensor of another parameter contains this one.
std::optional<HuggingFaceTensor> hugging_face_tensor(const ParameterPlan& parameter) {
  const std::string& name = parameter.name;
  const auto is_in = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (is_in(".attn.k_proj.") || is_in(".attn.v_proj.")) return std::nullopt;
  HuggingFaceTensor tensor = own_tensor(parameter);
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

class Gpt2Family : public Family {
 public:
  void check(const ModelConfig& config) const override {
    TRIREME_CHECK(
        config.kv_heads == config.heads, "model.kv_heads = ", config.kv_heads,
        "; expected model.heads = ", config.heads,
        " (gpt2 has no grouped queries): set them equal, or choose a family that has them");
    TRIREME_CHECK(!config.attention.qk_norm && !config.attention.is_latent(), "model.qk_norm is ",
                  config.attention.qk_norm, " and model.kv_lora_rank ",
                  config.attention.kv_lora_rank,
                  "; expected false and 0 (gpt2 has plain attention): set them so, or "
                  "model.family to \"llama\"");
    TRIREME_CHECK(config.sparse.experts == 0, "model.experts = ", config.sparse.experts,
                  "; expected 0 (gpt2 has no sparse blocks): set it to 0, or model.family to "
                  "\"mixtral\"");
    check_experts(config);
  }

  bool has_tied_head(const ModelConfig& /*config*/) const override { return true; }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, F = config.ffn_width, H = config.head_width();
    const auto add_norm = [&](const std::string& name) {
      plan.add_whole(name + ".weight", {D});
      plan.add_whole(name + ".bias", {D});
    };
    plan.add_split("transformer.wte.weight", {config.vocab_size, D}, 0, cuts.vocab);
    plan.add_whole("transformer.wpe.weight", {config.sequence_length, D});
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = concat("transformer.h.", layer, ".");
      add_norm(block + "ln_1");
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
        const auto& heads = name[0] == 'q' ? cuts.heads : cuts.kv_heads;
        plan.add_split(concat(block, "attn.", name, ".weight"), {D, D}, 0, heads, H);
        plan.add_split(concat(block, "attn.", name, ".bias"), {D}, 0, heads, H);
      }
      plan.add_split(block + "attn.c_proj.weight", {D, D}, 1, cuts.heads, H);
      plan.add_whole(block + "attn.c_proj.bias", {D});
      add_norm(block + "ln_2");
      plan.add_split(block + "mlp.c_fc.weight", {F, D}, 0, cuts.ffn);
      plan.add_split(block + "mlp.c_fc.bias", {F}, 0, cuts.ffn);
      plan.add_split(block + "mlp.c_proj.weight", {D, F}, 1, cuts.ffn);
      plan.add_whole(block + "mlp.c_proj.bias", {D});
    }
    add_norm("transformer.ln_f");
    return plan;
  }

  std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                        const ModelPart& part,
                                        at::ScalarType dtype) const override {
    return std::make_shared<Gpt2>(config, axes, part, dtype);
  }

  double matmul_parameters(const ModelConfig& config, bool /*sparse*/) const override {
    const double D = static_cast<double>(config.width);
    const double F = static_cast<double>(config.ffn_width);
    return 4 * D * D + 2 * D * F;
  }

  // A block keeps the feed-forward's tensors before and after the activation.
  KeptByBlock kept_by_block(at::ScalarType /*dtype*/) const override { return {.feed_forward = 2}; }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    const ModelConfig& config = plan.config();
    HuggingFaceForm form{.architecture = "GPT2LMHeadModel",
                         .config = {{"model_type", "gpt2"},
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
                                    {"scale_attn_weights", true}},
                         .tensors = {}};
    for (const ParameterPlan& parameter : plan.parameters()) {
      if (auto tensor = hugging_face_tensor(parameter)) form.tensors.push_back(std::move(*tensor));
    }
    return form;
  }
};

}  // namespace

const Family& gpt2_family() {
  static const Gpt2Family family;
  return family;
}

}  // namespace trireme::model::inline internal
