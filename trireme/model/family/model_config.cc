#include "trireme/model/family/model_config.h"

#include <string_view>
#include <utility>

#include <c10/util/accumulate.h>

#include "trireme/base/error.h"
#include "trireme/model/family/family.h"

namespace trireme::model {
namespace {

void check_divides(std::string_view part_key, int64_t part, std::string_view whole_key,
                   int64_t whole) {
  TRIREME_CHECK(whole % part == 0, "model.", part_key, " = ", part, " does not divide model.",
                whole_key, " = ", whole, "; expected a divisor: change one of them");
}

// Elements of the same model with `layers` blocks, which are all sparse or all dense.
int64_t elements_with(ModelConfig config, int64_t layers, bool sparse) {
  config.layers = layers;
  config.lora = {};
  config.sparse.dense_layers = sparse ? 0 : layers;
  config.sparse.expert_interval = 1;
  const ModelPlan plan = make_plan(config);
  int64_t elements = 0;
  for (const ParameterPlan& parameter : plan.parameters()) {
    elements += c10::multiply_integers(parameter.layout.shape());
  }
  return elements;
}

// The adapters' elements, and those of the parameters that are trained beside them.
struct AdapterSizes {
  int64_t adapters = 0;
  int64_t others = 0;
  double met = 0;  // the adapters' elements that a token meets: of stacks, those of its experts
};
AdapterSizes adapter_sizes(const ModelConfig& config) {
  AdapterSizes sizes;
  if (!config.lora.is_on()) return sizes;
  const ModelPlan plan = make_plan(config);
  for (const ParameterPlan& parameter : plan.parameters()) {
    if (!parameter.is_trained) continue;
    const int64_t elements = c10::multiply_integers(parameter.layout.shape());
    if (!is_of_adapter(parameter.name)) {
      sizes.others += elements;
      continue;
    }
    sizes.adapters += elements;
    const bool is_of_experts = parameter.layout.shape().size() == 3;
    sizes.met += static_cast<double>(elements) *
                 (is_of_experts ? static_cast<double>(config.sparse.experts_per_token) /
                                      static_cast<double>(config.sparse.experts)
                                : 1);
  }
  return sizes;
}

}  // namespace

namespace {

void check_qk_norm(const AttentionConfig& attention) {
  TRIREME_CHECK(attention.qk_norm || attention.qk_norm_over == QkNormOver::kHead,
                "model.qk_norm_over is \"", name_of(kQkNormsOver, attention.qk_norm_over),
                "\" and model.qk_norm false, so that queries and keys have no norm; set "
                "model.qk_norm to true, or leave it out");
}

}  // namespace

void check_attention(const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  check_qk_norm(attention);
  const std::string& layers = attention.window_layers;
  TRIREME_CHECK(!layers.empty() && layers.find_first_not_of("wf") == layers.npos,
                "model.window_layers is \"", layers,
                "\"; expected letters w and f, such as \"wf\"");
  TRIREME_CHECK(attention.window > 0 || layers == "w", "model.window_layers is \"", layers,
                "\" and model.window 0; set the window, or leave the layers out");
  TRIREME_CHECK(attention.window == 0 || !attention.is_latent(), "model.window is ",
                attention.window, " and attention latent, which has none; set it to 0");
  TRIREME_CHECK(attention.has_plain_scores() || !attention.is_latent(), "model.query_scalar is ",
                attention.query_scalar, ", model.attention_softcap ", attention.attention_softcap,
                ", model.attention_sinks ", attention.attention_sinks,
                " and attention latent, which has none of them; set them to 0, 0 and false");
  if (!attention.is_latent()) {
    TRIREME_CHECK(attention.q_lora_rank == 0, "model.q_lora_rank is ", attention.q_lora_rank,
                  " and model.kv_lora_rank 0, so that attention has no latents; set "
                  "model.kv_lora_rank");
    TRIREME_CHECK(config.head_width() % 2 == 0, "model.heads = ", config.heads,
                  " makes heads of odd width ", config.head_width(),
                  "; expected an even model.width / model.heads (rotary positions turn pairs): "
                  "change one of them, or set model.head_width");
    TRIREME_CHECK(config.heads * config.head_width() <= kMaxWidth, "model.heads x head_width is ",
                  config.heads * config.head_width(), "; expected at most ", kMaxWidth,
                  ": lower one of them");
    return;
  }
  TRIREME_CHECK(!attention.attention_output_bias,
                "model.attention_output_bias is true and model.kv_lora_rank ",
                attention.kv_lora_rank, "; latent attention has no biases: set it to false");
  TRIREME_CHECK(!attention.attention_bias && attention.head_width == 0, "model.attention_bias is ",
                attention.attention_bias, ", model.head_width ", attention.head_width,
                " and model.kv_lora_rank ", attention.kv_lora_rank,
                "; latent attention has widths of its own and no biases: set them to false and 0");
  TRIREME_CHECK(!attention.qk_norm, "model.qk_norm is true and model.kv_lora_rank ",
                attention.kv_lora_rank,
                "; latent attention has norms of its own: set model.qk_norm to false");
  TRIREME_CHECK(config.kv_heads == config.heads, "model.kv_heads is ", config.kv_heads,
                " and model.heads ", config.heads,
                "; latent attention makes keys and values for every head: set model.kv_heads to ",
                config.heads);
  TRIREME_CHECK(attention.qk_rope_width % 2 == 0, "model.qk_rope_width is ",
                attention.qk_rope_width,
                "; expected an even width (rotary positions turn pairs): change it");
}

void check_unscaled(const ModelConfig& config) {
  TRIREME_CHECK(config.is_unscaled(), "model.embedding_scale is ", config.embedding_scale,
                ", model.residual_scale ", config.residual_scale, " and model.logits_divisor ",
                config.logits_divisor, "; expected 1, 1 and 1 (", config.family,
                " has no such factors): set them so, or model.family to \"llama\"");
  TRIREME_CHECK(config.branch_norms == BranchNorms::kBefore, "model.branch_norms is \"",
                name_of(kBranchNorms, config.branch_norms), "\" and model.family \"", config.family,
                "\", whose norms have one place; leave it out, or set model.family to \"llama\"");
}

void check_plain_blocks(const ModelConfig& config) {
  TRIREME_CHECK(config.kv_heads == config.heads, "model.kv_heads = ", config.kv_heads,
                "; expected model.heads = ", config.heads, " (", config.family,
                " has no grouped queries): set them equal, or choose a family that has them");
  const AttentionConfig& attention = config.attention;
  TRIREME_CHECK(!attention.qk_norm && !attention.is_latent() && !attention.attention_bias &&
                    !attention.attention_output_bias && attention.window == 0 &&
                    attention.window_layers == "w",
                "model.qk_norm is ", attention.qk_norm, ", model.kv_lora_rank ",
                attention.kv_lora_rank, ", model.attention_bias ", attention.attention_bias,
                ", model.attention_output_bias ", attention.attention_output_bias,
                ", model.window ", attention.window, "; expected false, 0, false, false and 0 (",
                config.family, " has plain attention): set them so, or model.family to \"llama\"");
  TRIREME_CHECK(attention.has_plain_scores() && config.logits_softcap == 0,
                "model.query_scalar is ", attention.query_scalar, ", model.attention_softcap ",
                attention.attention_softcap, ", model.attention_sinks ", attention.attention_sinks,
                " and model.logits_softcap ", config.logits_softcap,
                "; expected 0, 0, false and 0 (", config.family,
                " has plain scores and logits): set them so, or model.family to \"llama\"");
  check_qk_norm(attention);
  check_unscaled(config);
  bool has_rope = false;
  visit_keys<RopeConfig>(
      [&](const auto& key) { has_rope |= config.rope.*key.member != RopeConfig{}.*key.member; });
  TRIREME_CHECK(!has_rope, "model.rope_scaling is \"",
                name_of(kRopeScalings, config.rope.rope_scaling), "\" and model.rotary_share ",
                config.rope.rotary_share, "; expected \"none\", 1, and no other rope key (",
                config.family, " learns its positions): set them so, or model.family to \"llama\"");
  TRIREME_CHECK(config.sparse.experts == 0, "model.experts = ", config.sparse.experts,
                "; expected 0 (", config.family,
                " has no sparse blocks): set it to 0, or model.family to \"mixtral\"");
  check_experts(config);
}

void check_plain_attention(const ModelConfig& config) {
  check_plain_blocks(config);
  TRIREME_CHECK(config.attention.head_width == 0, "model.head_width is ",
                config.attention.head_width, "; expected 0 (", config.family,
                " has plain attention, with heads of width / heads): set it so, or model.family to "
                "\"llama\"");
}

bool ModelConfig::is_causal() const { return family_of(*this).is_causal(); }

bool ModelConfig::has_decoder() const { return family_of(*this).has_decoder(); }

int64_t ModelConfig::decoder_layers() const {
  if (!has_decoder()) return 0;
  return seq2seq.decoder_layers > 0 ? seq2seq.decoder_layers : layers;
}

bool ModelConfig::has_tied_head() const { return family_of(*this).has_tied_head(*this); }

void validate(const ModelConfig& config) {
  const Family& family = family_of(config);
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"layers", config.layers},       {"width", config.width},
      {"heads", config.heads},         {"kv_heads", config.kv_heads},
      {"ffn_width", config.ffn_width}, {"sequence_length", config.sequence_length}};
  for (const auto& [key, value] : sizes) {
    TRIREME_CHECK(value > 0, "model.", key, " = ", value, "; expected at least 1: set it higher");
  }
  TRIREME_CHECK(config.vocab_size >= 0, "model.vocab_size = ", config.vocab_size,
                "; expected at least 1, or 0 to take it from the data");
  TRIREME_CHECK(config.norm_epsilon > 0, "model.norm_epsilon = ", config.norm_epsilon,
                "; expected a positive number such as 1e-5");
  TRIREME_CHECK(config.dropout >= 0 && config.dropout < 1, "model.dropout = ", config.dropout,
                "; expected at least 0 (none) and below 1, such as 0.1");
  if (config.attention.head_width == 0) {
    check_divides("heads", config.heads, "width", config.width);
  }
  check_divides("kv_heads", config.kv_heads, "heads", config.heads);
  TRIREME_CHECK(config.classes == 0 || family.has_classes(), "model.classes is ", config.classes,
                " and model.family \"", config.family,
                "\", which has no head that classifies texts; set model.classes to 0, or "
                "model.family to \"bert\"");
  TRIREME_CHECK(config.classes != 1,
                "model.classes is 1; expected at least 2, or 0 to take them from the data");
  visit_keys<EncoderDecoderConfig>([&](const auto& key) {
    TRIREME_CHECK(
        family.has_decoder() || config.seq2seq.*key.member == EncoderDecoderConfig{}.*key.member,
        "model.", key.name, " is set and model.family \"", config.family,
        "\", which has no encoder and decoder; leave it out, or set model.family to \"t5\"");
  });
  TRIREME_CHECK(!config.vision.is_on() || family.reads_images(), "vision.layers is ",
                config.vision.layers, " and model.family \"", config.family,
                "\", which reads text only; set vision.layers to 0, or model.family to \"llama\"");
  visit_keys<VisionConfig>([&](const auto& key) {
    TRIREME_CHECK(config.vision.is_on() || config.vision.*key.member == VisionConfig{}.*key.member,
                  "vision.", key.name,
                  " is set and vision.layers 0, so that there is no vision tower; set the layers, "
                  "or leave it out");
  });
  family.check(config);
}

int64_t block_parameters(const ModelConfig& config, bool sparse) {
  return elements_with(config, 1, sparse) - elements_with(config, 0, sparse);
}

int64_t num_sparse_blocks(const ModelConfig& config) {
  return config.sparse.sparse_before(config.layers);
}

int64_t num_parameters(const ModelConfig& config) {
  const int64_t sparse = num_sparse_blocks(config);
  int64_t sum =
      elements_with(config, 0, false) + (config.layers - sparse) * block_parameters(config, false);
  if (sparse > 0) sum += sparse * block_parameters(config, true);
  return sum + adapter_sizes(config).adapters;
}

int64_t num_trained_parameters(const ModelConfig& config) {
  if (!config.lora.is_on()) return num_parameters(config);
  const AdapterSizes sizes = adapter_sizes(config);
  return sizes.adapters + sizes.others;
}

double flops_per_sequence(const ModelConfig& config) {
  return family_of(config).flops_per_sequence(config);
}

double Family::flops_per_sequence(const ModelConfig& config) const {
  return static_cast<double>(config.sequence_length) * flops_per_token(config);
}

std::vector<CarriedTensor> Family::carried(const ModelConfig& config) const {
  if (!has_tied_head(config)) return {};
  return {{std::string(kHeadWeight), 0, {config.num_blocks() - 1}}};
}

double flops_per_token(const ModelConfig& config) {
  const double layers = static_cast<double>(config.layers);
  const Family& family = family_of(config);
  double matmul_parameters = family.head_matmul_parameters(config);
  for (const bool sparse : {false, true}) {
    const int64_t num =
        sparse ? num_sparse_blocks(config) : config.layers - num_sparse_blocks(config);
    if (num > 0)
      matmul_parameters += static_cast<double>(num) * family.matmul_parameters(config, sparse);
  }
  // The scores and their product with v: for each head 2 * T * (Q + V) forward, twice that
  // backward.
  const auto widths = static_cast<double>(
      config.attention.is_latent()
          ? config.heads * (config.attention.qk_width() + config.attention.v_head_width)
          : 2 * config.heads * config.head_width());
  const double scores = 6 * layers * static_cast<double>(config.sequence_length) * widths;
  if (!config.lora.is_on()) return 6 * matmul_parameters + scores;
  return 4 * matmul_parameters + 6 * adapter_sizes(config).met + scores;
}

}  // namespace trireme::model
