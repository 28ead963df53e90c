#include "trireme/model/gpt2/gpt2.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/model/family/branch_plan.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/layers/linear.h"

namespace trireme::model {
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

// Every head has its own keys and values.
HuggingFaceKey heads_key() {
  HuggingFaceKey key = mapped("n_head", &ModelConfig::heads);
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    model.config.heads = model.config.kv_heads = read_as(found, &ModelConfig::heads);
  };
  return key;
}

// transformers drops after the embedding and in the residual stream at rates of their own.
HuggingFaceKey embedding_dropout_key() {
  HuggingFaceKey key = mapped("embd_pdrop", &ModelConfig::dropout);
  key.take = nullptr;
  key.is_compared = false;
  return key;
}

HuggingFaceKey tied_key() {
  return {
      .name = "tie_word_embeddings",
      .value = [](const ModelConfig& config) -> HuggingFaceValue { return !config.separate_head; },
      .take = [](const JsonView& found,
                 HuggingFaceModel& model) { model.config.separate_head = !found.boolean(); },
      .missing = always(true)};
}

// transformers takes both names, and the value of the second if a file has both.
HuggingFaceKey also_named(HuggingFaceKey key, std::string other_name) {
  key.other_name = std::move(other_name);
  return key;
}

std::vector<HuggingFaceKey> gpt2_keys() {
  std::vector<HuggingFaceKey> keys = {
      mapped("vocab_size", &ModelConfig::vocab_size),
      also_named(mapped("n_embd", &ModelConfig::width), "hidden_size"),
      mapped("n_inner", &ModelConfig::ffn_width,
             [](const ModelConfig& config) -> HuggingFaceValue { return 4 * config.width; }),
      also_named(mapped("n_layer", &ModelConfig::layers), "num_hidden_layers"),
      also_named(heads_key(), "num_attention_heads"),
      also_named(mapped("n_positions", &ModelConfig::sequence_length), "max_position_embeddings"),
      fixed("activation_function", std::string("gelu_new")),
      mapped("layer_norm_epsilon", &ModelConfig::norm_epsilon, always(1e-5)),
      embedding_dropout_key(),
      mapped("resid_pdrop", &ModelConfig::dropout, always(0.1)),
      written("attn_pdrop", 0.0),  // see docs/reference/models.md, dropout
      fixed("scale_attn_weights", true),
      tied_key(),
      expected("scale_attn_by_inverse_layer_idx", false),
      expected("add_cross_attention", false)};
  // A second name of n_positions, the order of roundings, and the heads of other tasks.
  for (const char* name :
       {"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj"}) {
    keys.push_back(ignored(name));
  }
  return keys;
}

const HuggingFaceKind kGpt2Kind{
    .name = "GPT-2",
    .type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .keys = gpt2_keys,
    .begin = [](HuggingFaceModel& model) { model.config.family = "gpt2"; },
    .base_prefix = "transformer."};

class Gpt2Family : public Family {
 public:
  void check(const ModelConfig& config) const override { check_plain_attention(config); }

  bool has_tied_head(const ModelConfig& config) const override { return !config.separate_head; }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, F = config.ffn_width, H = config.head_width();
    plan.add_split("transformer.wte.weight", {config.vocab_size, D}, 0, cuts.vocab);
    plan.add_whole("transformer.wpe.weight", {config.sequence_length, D});
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = concat("transformer.h.", layer, ".");
      add_layer_norm(plan, block + "ln_1");
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
        const auto& heads = name[0] == 'q' ? cuts.heads : cuts.kv_heads;
        add_columns(plan, concat(block, "attn.", name), {D, D}, heads, H);
      }
      add_rows(plan, block + "attn.c_proj", {D, D}, cuts.heads, H);
      add_layer_norm(plan, block + "ln_2");
      add_columns(plan, block + "mlp.c_fc", {F, D}, cuts.ffn);
      add_rows(plan, block + "mlp.c_proj", {D, F}, cuts.ffn);
    }
    add_layer_norm(plan, "transformer.ln_f");
    if (config.separate_head)
      plan.add_split("lm_head.weight", {config.vocab_size, D}, 0, cuts.vocab);
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
  KeptByBlock kept_by_block(const ModelConfig& /*config*/) const override {
    return {.feed_forward = 2};
  }

  std::span<const HuggingFaceKind* const> hugging_face_kinds() const override {
    static constexpr const HuggingFaceKind* kKinds[] = {&kGpt2Kind};
    return kKinds;
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    HuggingFaceForm form{.kind = &kGpt2Kind};
    for (const ParameterPlan& parameter : plan.parameters()) {
      if (auto tensor = hugging_face_tensor(parameter)) form.tensors.push_back(std::move(*tensor));
    }
    return form;
  }
};

}  // namespace

Gpt2Block::Gpt2Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                     int64_t layer)
    : TransformerBlock(config, layer) {
  const AttentionOptions options{.bias = true, .output = "c_proj"};
  ln_1_ = register_module("ln_1", std::make_shared<LayerNorm>(config, axes, dtype));
  attn_ = register_attention("attn", std::make_shared<Attention>(config, axes, dtype, options));
  ln_2_ = register_module("ln_2", std::make_shared<LayerNorm>(config, axes, dtype));
  mlp_ = register_feed_forward("mlp", std::make_shared<GeluFeedForward>(config, axes, dtype));
}

at::Tensor Gpt2Block::compute(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor attended = attend(*attn_, ln_1_->forward(x), x, batch);
  return feed_forward(*mlp_, ln_2_->forward(attended), attended, batch);
}

Gpt2::Gpt2(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
           at::ScalarType dtype)
    : Network(part), dropout_(config.dropout, "embedding") {
  const auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    wte_ =
        transformer->register_module("wte", std::make_shared<TokenEmbedding>(config, axes, dtype));
    wpe_ = transformer->register_module("wpe",
                                        std::make_shared<PositionEmbedding>(config, axes, dtype));
    add_embedding("embeddings", {wte_->weight_VD, wpe_->weight_TD});
    if (!config.separate_head) tie_head(wte_->weight_VD);
  }
  add_blocks<Gpt2Block>(*transformer, "h", config, axes, dtype);
  if (!part.has_head) return;
  ln_f_ = transformer->register_module("ln_f", std::make_shared<LayerNorm>(config, axes, dtype));
  add_norm("ln_f", ln_f_->parameters());
  if (!config.separate_head) return;
  const int64_t v = TensorCuts(config, axes.tensor.size()).vocab_of(axes.tensor.rank()).size;
  const auto lm_head =
      register_module("lm_head", std::make_shared<Linear>(config.width, v, false, dtype));
  add_head("lm_head", lm_head->weight);
}

at::Tensor Gpt2::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  return dropout_.forward(wpe_->forward(wte_->forward(tokens_BT), batch), batch);
}

at::Tensor Gpt2::last_norm(const at::Tensor& x, const TokenBatch& /*batch*/) {
  return ln_f_->forward(x);
}

const Family& gpt2_family() {
  static const Gpt2Family family;
  return family;
}

}  // namespace trireme::model
