#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/model/family/branch_plan.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/t5/t5.h"

namespace trireme::model {
namespace {

// Our names of the biases, and those of transformers, where they are in the first block.
constexpr std::pair<std::string_view, std::string_view> kBiases[] = {
    {"encoder.relative_attention_bias.weight",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
    {"decoder.relative_attention_bias.weight",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}};

HuggingFaceKey t5_heads_key() {
  HuggingFaceKey key = mapped("num_heads", &ModelConfig::heads, always(int64_t{8}));
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    model.config.heads = model.config.kv_heads = read_as(found, &ModelConfig::heads);
  };
  return key;
}

// The width of heads is a key of its own, whatever width / heads is.
HuggingFaceKey t5_head_width_key() {
  HuggingFaceKey key = mapped("d_kv", &AttentionConfig::head_width, always(int64_t{64}));
  key.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.head_width(); };
  return key;
}

HuggingFaceKey t5_decoder_layers_key() {
  HuggingFaceKey key = mapped("num_decoder_layers", &EncoderDecoderConfig::decoder_layers);
  key.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.decoder_layers(); };
  key.missing = [](const ModelConfig& config) -> HuggingFaceValue { return config.layers; };
  return key;
}

HuggingFaceKey t5_feed_forward_key() {
  return {.name = "feed_forward_proj",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            return std::string(name_of(kFeedForwardForms, config.seq2seq.feed_forward));
          },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                const std::string name = found.text();
                const auto* const form = find_choice(kFeedForwardForms, name);
                if (form == nullptr) found.fail("\"relu\" or \"gated-gelu\"");
                model.config.seq2seq.feed_forward = form->value;
              },
          .missing = always(std::string("relu"))};
}

// Files that transformers 5 saves say true of every model.
HuggingFaceKey t5_tied_key() {
  HuggingFaceKey key = mapped("tie_word_embeddings", &ModelConfig::tied_embedding, always(true));
  key.is_compared = false;
  return key;
}

// In those files, what the key above says in older ones: whether the logits of a tied head are
// scaled, and so whether the head is tied.
HuggingFaceKey t5_scale_key() {
  return {.name = "scale_decoder_outputs",
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                bool& is_tied = model.config.tied_embedding;
                const bool scales = found.boolean();
                if (scales && !is_tied) found.fail("false, since \"tie_word_embeddings\" is false");
                is_tied = scales;
              },
          .missing = [](const ModelConfig& config) -> HuggingFaceValue {
            return config.tied_embedding;
          },
          .is_written = false};
}

// A key that transformers derives from feed_forward_proj, and saves.
HuggingFaceKey t5_derived_key(std::string name, HuggingFaceValue (*of_form)(bool is_gated)) {
  return {.name = std::move(name),
          .value =
              [of_form](const ModelConfig& config) {
                return of_form(config.seq2seq.feed_forward == FeedForwardForm::kGatedGelu);
              },
          .is_written = false};
}

std::vector<HuggingFaceKey> t5_keys() {
  return {
      mapped("vocab_size", &ModelConfig::vocab_size, always(int64_t{32128})),
      mapped("d_model", &ModelConfig::width, always(int64_t{512})),
      mapped("num_layers", &ModelConfig::layers, always(int64_t{6})),
      t5_decoder_layers_key(),
      t5_heads_key(),
      t5_head_width_key(),
      mapped("d_ff", &ModelConfig::ffn_width, always(int64_t{2048})),
      mapped("relative_attention_num_buckets", &EncoderDecoderConfig::relative_buckets,
             always(int64_t{32})),
      mapped("relative_attention_max_distance", &EncoderDecoderConfig::relative_distance,
             always(int64_t{128})),
      t5_feed_forward_key(),
      mapped("dropout_rate", &ModelConfig::dropout, always(0.1)),
      mapped("layer_norm_epsilon", &ModelConfig::norm_epsilon, always(1e-6)),
      t5_tied_key(),
      t5_scale_key(),
      t5_derived_key("dense_act_fn",
                     [](bool is_gated) -> HuggingFaceValue {
                       return std::string(is_gated ? "gelu_new" : "relu");
                     }),
      t5_derived_key("is_gated_act", [](bool is_gated) -> HuggingFaceValue { return is_gated; }),
      written("decoder_start_token_id", int64_t{0}),
      expected("is_encoder_decoder", true),
      ignored("initializer_factor"),
      ignored("n_positions"),
      ignored("classifier_dropout"),
      ignored("task_specific_params"),
      ignored("output_past")};
}

constexpr std::pair<std::string_view, std::string_view> kT5Copies[] = {
    {"encoder.embed_tokens.weight", "shared.weight"},
    {"decoder.embed_tokens.weight", "shared.weight"}};
// Of older versions, which did not use it.
constexpr std::string_view kT5Unused[] = {
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."};

const HuggingFaceKind kT5Kind{.name = "T5",
                              .type = "t5",
                              .architecture = "T5ForConditionalGeneration",
                              .keys = t5_keys,
                              .begin = [](HuggingFaceModel& model) { model.config.family = "t5"; },
                              .base_prefix = "",
                              .copies = kT5Copies,
                              .other_tasks = kT5Unused,
                              .scales_tied_head = true};

class T5Family : public Family {
 public:
  void check(const ModelConfig& config) const override {
    check_plain_blocks(config);
    const EncoderDecoderConfig& own = config.seq2seq;
    TRIREME_CHECK(own.relative_buckets % 2 == 0, "model.relative_buckets is ", own.relative_buckets,
                  "; expected an even number, half of them for either direction");
    TRIREME_CHECK(own.relative_distance > own.relative_buckets / 2, "model.relative_distance is ",
                  own.relative_distance, " and model.relative_buckets ", own.relative_buckets,
                  ", of which half are for single distances; expected a distance above ",
                  own.relative_buckets / 2);
  }

  bool has_tied_head(const ModelConfig& config) const override { return config.tied_embedding; }
  bool is_causal() const override { return false; }
  bool has_decoder() const override { return true; }
  bool continues_at(const ModelConfig& config, int64_t layer) const override {
    return layer != config.layers;
  }

  std::vector<CarriedTensor> carried(const ModelConfig& config) const override {
    const int64_t L = config.layers, last = config.num_blocks() - 1;
    std::vector<CarriedTensor> tensors = {
        {std::string(kEncoderBias), 0, {L - 1}, /*is_relayed=*/true},
        {std::string(kMemory), L - 1, {last}, /*is_relayed=*/true},
        {std::string(kDecoderBias), L, {last}, /*is_relayed=*/true}};
    if (config.tied_embedding) {
      tensors.push_back({std::string(kHeadWeight), 0, {L, last}});
    } else {
      tensors.push_back({std::string(kEmbedding), 0, {L}});
    }
    return tensors;
  }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, V = config.vocab_size;
    plan.add_split("shared.weight", {V, D}, 0, cuts.vocab);
    add_half(plan, "encoder.", config.layers, /*is_decoder=*/false);
    add_half(plan, "decoder.", config.decoder_layers(), /*is_decoder=*/true);
    if (!config.tied_embedding) plan.add_split("lm_head.weight", {V, D}, 0, cuts.vocab);
    return plan;
  }

  // As T5's own code, where attention divides by nothing and queries are drawn smaller instead.
  Initialiser initialiser_of(const ModelConfig& config, std::string_view name) const override {
    const auto root = [](int64_t width) { return 1 / std::sqrt(static_cast<double>(width)); };
    if (name.ends_with("norm.weight")) return {.value = 1};
    if (name == "shared.weight" || name == "lm_head.weight") return {.std = 1};
    if (name.ends_with(".q.weight")) return {.std = root(config.width * config.head_width())};
    if (name.ends_with(".o.weight")) return {.std = root(config.heads * config.head_width())};
    if (name.ends_with(".wo.weight")) return {.std = root(config.ffn_width)};
    return {.std = root(config.width)};
  }

  std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                        const ModelPart& part,
                                        at::ScalarType dtype) const override {
    return std::make_shared<T5>(config, axes, part, dtype);
  }

  // Of a block of the encoder. One of the decoder has attention twice.
  double matmul_parameters(const ModelConfig& config, bool /*sparse*/) const override {
    return attention_parameters(config) + feed_forward_parameters(config);
  }

  double flops_per_sequence(const ModelConfig& config) const override {
    const auto T = static_cast<double>(config.sequence_length);
    const auto U = static_cast<double>(config.seq2seq.target_length);
    const auto of_encoder = static_cast<double>(config.layers);
    const auto of_decoder = static_cast<double>(config.decoder_layers());
    const double attention = attention_parameters(config), mlp = feed_forward_parameters(config);
    // Across, half of the matrices multiply the encoder's tokens.
    const double products = of_encoder * T * (attention + mlp) +
                            of_decoder * (U * (1.5 * attention + mlp) + T * 0.5 * attention) +
                            U * head_matmul_parameters(config);
    const double scores = static_cast<double>(2 * config.heads * config.head_width()) *
                          (of_encoder * T * T + of_decoder * (U * U + U * T));
    return 6 * (products + scores);
  }

  KeptByBlock kept_by_block(const ModelConfig& /*config*/) const override {
    return {.feed_forward = 2};
  }

  std::span<const HuggingFaceKind* const> hugging_face_kinds() const override {
    static constexpr const HuggingFaceKind* kKinds[] = {&kT5Kind};
    return kKinds;
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    HuggingFaceForm form{.kind = &kT5Kind};
    for (const ParameterPlan& parameter : plan.parameters()) {
      HuggingFaceTensor tensor = own_tensor(parameter);
      for (const auto& [own, name] : kBiases) {
        if (parameter.name == own) tensor.name = name;
      }
      form.tensors.push_back(std::move(tensor));
    }
    return form;
  }

 private:
  static double attention_parameters(const ModelConfig& config) {
    return 4 * static_cast<double>(config.width) *
           static_cast<double>(config.heads * config.head_width());
  }
  static double feed_forward_parameters(const ModelConfig& config) {
    const double matrices = config.seq2seq.feed_forward == FeedForwardForm::kRelu ? 2 : 3;
    return matrices * static_cast<double>(config.width) * static_cast<double>(config.ffn_width);
  }

  static void add_half(ModelPlan& plan, const std::string& half, int64_t layers, bool is_decoder) {
    const ModelConfig& config = plan.config();
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, F = config.ffn_width, H = config.head_width();
    plan.add_split(half + "relative_attention_bias.weight",
                   {config.seq2seq.relative_buckets, config.heads}, 1, cuts.heads);
    const auto attention = [&](const std::string& prefix) {
      for (const char* name : {"q", "k", "v"}) {
        plan.add_split(concat(prefix, name, ".weight"), {config.heads * H, D}, 0, cuts.heads, H);
      }
      plan.add_split(prefix + "o.weight", {D, config.heads * H}, 1, cuts.heads, H);
    };
    const bool is_gated = config.seq2seq.feed_forward == FeedForwardForm::kGatedGelu;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string block = concat(half, "block.", layer, ".layer.");
      attention(block + "0.SelfAttention.");
      plan.add_whole(block + "0.layer_norm.weight", {D});
      if (is_decoder) {
        attention(block + "1.EncDecAttention.");
        plan.add_whole(block + "1.layer_norm.weight", {D});
      }
      const std::string last = block + (is_decoder ? "2." : "1.");
      for (const char* name : {"wi_0", "wi_1"}) {
        if (is_gated)
          plan.add_split(concat(last, "DenseReluDense.", name, ".weight"), {F, D}, 0, cuts.ffn);
      }
      if (!is_gated) plan.add_split(last + "DenseReluDense.wi.weight", {F, D}, 0, cuts.ffn);
      plan.add_split(last + "DenseReluDense.wo.weight", {D, F}, 1, cuts.ffn);
      plan.add_whole(last + "layer_norm.weight", {D});
    }
    plan.add_whole(half + "final_layer_norm.weight", {D});
  }
};

}  // namespace

const Family& t5_family() {
  static const T5Family family;
  return family;
}

}  // namespace trireme::model
