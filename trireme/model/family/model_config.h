// The shape of a model: the [model] section of a config, with the keys of the forms of attention
// beside the plain one. All of it is validated before the first allocation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/model/family/adapter_config.h"
#include "trireme/model/family/expert_config.h"
#include "trireme/model/family/rope_config.h"
#include "trireme/model/family/vision_config.h"

namespace trireme::model {

struct ModelConfig;

// Of factors of activations.
inline constexpr Range kScale{1e-6, 1e6};

enum class QkNormOver { kHead, kAll };
inline constexpr Choice<QkNormOver> kQkNormsOver[] = {{"head", QkNormOver::kHead},
                                                      {"all", QkNormOver::kAll}};

// The forms of attention beside the plain one.
struct AttentionConfig {
  TRIREME_KEYS_BEGIN(AttentionConfig)
  TRIREME_KEY(bool, qk_norm, false, kMustStay,
              "normalise the queries and keys of each head (RMSNorm), as in Qwen3")
  TRIREME_KEY(
      QkNormOver, qk_norm_over, QkNormOver::kHead, kMustStay,
      "what qk_norm normalises together: head = each head by itself, all = all heads, as in "
      "OLMo 2",
      kQkNormsOver)
  TRIREME_KEY(bool, attention_bias, false, kMustStay,
              "add biases to the query, key and value projections, as in Qwen2")
  TRIREME_KEY(bool, attention_output_bias, false, kMustStay,
              "add a bias to attention's output projection, as in GPT-OSS")
  TRIREME_KEY(int64_t, head_width, 0, kMustStay,
              "H: width of each attention head; 0 = width / heads", Range{0, kMaxWidth})
  TRIREME_KEY(int64_t, window, 0, kMustStay,
              "sliding window: tokens that a token attends to at most, itself included; 0 = all",
              Range{0, kMaxSequence})
  TRIREME_KEY(std::string, window_layers, "w", kMustStay,
              "which layers have the window: a letter for each layer, w = window, f = full "
              "attention, repeated over the layers, such as \"wf\" for every other one")
  TRIREME_KEY(int64_t, query_scalar, 0, kMustStay,
              "attention scores are divided by the square root of this number, as by Gemma's "
              "query_pre_attn_scalar; 0 = the head width",
              Range{0, kMaxWidth})
  TRIREME_KEY(double, attention_softcap, 0.0, kMustStay,
              "soft cap c of the attention scores, which become c tanh(score / c), as in Gemma 2; "
              "0 = none",
              Range{0, 1e6})
  TRIREME_KEY(bool, attention_sinks, false, kMustStay,
              "give each head a learned logit that its softmax's divisor has beside those of the "
              "keys, as in GPT-OSS")
  TRIREME_KEY(int64_t, kv_lora_rank, 0, kMustStay,
              "latent attention (DeepSeek): width of the latent vector from which all heads "
              "compute keys and values; 0 = ordinary attention",
              Range{0, kMaxWidth})
  TRIREME_KEY(int64_t, q_lora_rank, 0, kMustStay,
              "latent attention: width of the latent vector from which heads compute queries; 0 = "
              "queries come from the residual stream",
              Range{0, kMaxWidth})
  TRIREME_KEY(int64_t, qk_nope_width, 128, kMustStay,
              "latent attention: width per head of the queries and keys without rotary positions",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, qk_rope_width, 64, kMustStay,
              "latent attention: width per head of the queries and keys with rotary positions; all "
              "heads share these keys",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, v_head_width, 128, kMustStay,
              "latent attention: width per head of the values", Range{1, kMaxWidth})
  TRIREME_KEYS_END()

  bool is_latent() const { return kv_lora_rank > 0; }
  bool norms_all_heads() const { return qk_norm && qk_norm_over == QkNormOver::kAll; }
  // The window of a layer, counted from the model's first; 0: none.
  int64_t window_of(int64_t layer) const {
    return letter_of(window_layers, layer) == 'w' ? window : 0;
  }
  bool has_plain_scores() const {
    return query_scalar == 0 && attention_softcap == 0 && !attention_sinks;
  }
  int64_t qk_width() const { return qk_nope_width + qk_rope_width; }
  // The kernels have one width for queries, keys and values; the narrower ones are padded.
  int64_t core_width() const { return std::max(qk_width(), v_head_width); }
};

// Throws: ConfigError with the key, the value found and the value expected
void check_attention(const ModelConfig& config);

// The check of families whose attention has no form but the plain one, with biases, and whose
// positions are learned. Their blocks are dense.
// Throws: ConfigError with the keys, the values found and the values expected
void check_plain_attention(const ModelConfig& config);
// The same without the rule that heads are width / heads wide.
void check_plain_blocks(const ModelConfig& config);
// The check of families whose embedding, branches and logits have no factors of their own, and
// whose branches have the norms of the family.
// Throws: ConfigError with the keys, the values found and the values expected
void check_unscaled(const ModelConfig& config);

// Where a branch of a block has its norm.
enum class BranchNorms { kBefore, kAfter, kBoth };
inline constexpr Choice<BranchNorms> kBranchNorms[] = {
    {"before", BranchNorms::kBefore}, {"after", BranchNorms::kAfter}, {"both", BranchNorms::kBoth}};

// Models with an encoder and a decoder.
enum class FeedForwardForm { kRelu, kGatedGelu };
inline constexpr Choice<FeedForwardForm> kFeedForwardForms[] = {
    {"relu", FeedForwardForm::kRelu}, {"gated-gelu", FeedForwardForm::kGatedGelu}};

struct EncoderDecoderConfig {
  TRIREME_KEYS_BEGIN(EncoderDecoderConfig)
  TRIREME_KEY(int64_t, decoder_layers, 0, kMustStay,
              "t5: transformer blocks of the decoder, beside model.layers of the encoder; 0 = as "
              "many as the encoder has",
              Range{0, kMaxLayers})
  TRIREME_KEY(int64_t, target_length, 0, kMustStay,
              "t5: tokens of a target sequence; 0 = as many as span corruption of sequence_length "
              "tokens gives",
              Range{0, kMaxSequence})
  TRIREME_KEY(int64_t, relative_buckets, 32, kMustStay,
              "t5: number of learned position biases of each head, each for a range of distances "
              "between two tokens",
              Range{4, kMaxWidth})
  TRIREME_KEY(int64_t, relative_distance, 128, kMustStay,
              "t5: distance from which on all tokens share a position bias", Range{2, kMaxSequence})
  TRIREME_KEY(FeedForwardForm, feed_forward, FeedForwardForm::kRelu, kMustStay,
              "t5: form of the feed-forward, relu or gated-gelu as in T5 1.1", kFeedForwardForms)
  TRIREME_KEYS_END()
};

// The allowed values of model.family.
std::vector<std::string> family_names();

// The letters L, D, N, ... are those of docs/reference/shapes.md.
struct ModelConfig {
  TRIREME_KEYS_BEGIN(ModelConfig)
  TRIREME_KEY(std::string, family, "llama", kMustStay, "model architecture", family_names)
  TRIREME_KEY(int64_t, layers, 6, kMustStay, "L: number of transformer blocks",
              Range{1, kMaxLayers})
  TRIREME_KEY(int64_t, width, 256, kMustStay, "D: width of the residual stream",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, heads, 4, kMustStay,
              "N: number of attention heads; must divide width unless head_width is set",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, kv_heads, 4, kMustStay,
              "K: number of key and value heads (grouped-query attention); must divide heads",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, ffn_width, 704, kMustStay, "F: hidden width of the feed-forward",
              Range{1, kMaxFfnWidth})
  TRIREME_KEY(int64_t, sequence_length, 256, kMustStay, "T: tokens per sequence",
              Range{1, kMaxSequence})
  TRIREME_KEY(int64_t, vocab_size, 0, kMustStay, "V: vocabulary size; 0 = the tokenizer's",
              Range{0, kMaxVocabulary})
  TRIREME_KEY(double, norm_epsilon, 1e-5, kMustStay,
              "epsilon added to the variance in normalisation layers", kEpsilon)
  TRIREME_KEY(double, rope_base, 10000.0, kMustStay,
              "base of the rotary position embedding (RoPE theta), for families that use it",
              Range{.minimum = 1, .maximum = 1e12, .above_minimum = true})
  TRIREME_KEY(
      bool, tied_embedding, false, kMustStay,
      "share one weight between embedding and output head; llama, gemma and t5 families only")
  TRIREME_KEY(bool, separate_head, false, kMustStay,
              "give the output head its own weight instead of the embedding's; gpt2 only")
  TRIREME_KEY(int64_t, token_types, 2, kMustStay,
              "rows of the table of token types, of which every token has the first; bert only",
              Range{1, kMaxWidth})
  TRIREME_KEY(
      int64_t, classes, 0, kMustStay,
      "C: classes between which the head decides for a whole text, in place of the head that "
      "predicts tokens; 0 = none, or with objective.name = \"classify\" those of the data; "
      "bert only",
      Range{0, kMaxClasses})
  TRIREME_KEY(double, logits_softcap, 0.0, kMustStay,
              "soft cap c of the logits, which become c tanh(logit / c), as in Gemma 2; 0 = none",
              Range{0, 1e6})
  TRIREME_KEY(double, embedding_scale, 1.0, kMustStay,
              "factor of what the embedding looks up, as by Granite's embedding_multiplier; llama "
              "and mixtral families only",
              kScale)
  TRIREME_KEY(double, residual_scale, 1.0, kMustStay,
              "factor of what each branch adds to the residual stream, as by Granite's "
              "residual_multiplier; llama and mixtral families only",
              kScale)
  TRIREME_KEY(double, logits_divisor, 1.0, kMustStay,
              "number by which the logits are divided, as by Granite's logits_scaling; llama and "
              "mixtral families only",
              kScale)
  TRIREME_KEY(BranchNorms, branch_norms, BranchNorms::kBefore, kMustStay,
              "where a block's branches have their norms: before = of the input, after = of the "
              "output, as in OLMo 2, both = of both, as in GLM-4; llama and mixtral families only",
              kBranchNorms)
  TRIREME_KEY(double, dropout, 0.0, kMustStay,
              "dropout probability after the embedding, the attention and the feed-forward",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEYS_END()
  // Further keys of the section.
  AttentionConfig attention{};
  RopeConfig rope{};
  ExpertConfig sparse{};
  EncoderDecoderConfig seq2seq{};
  AdapterConfig lora{};   // section [lora]
  VisionConfig vision{};  // section [vision]

  // True when a factor of activations is none but 1.
  bool is_unscaled() const {
    return embedding_scale == 1 && residual_scale == 1 && logits_divisor == 1;
  }
  int64_t head_width() const {  // H
    return attention.head_width > 0 ? attention.head_width : width / heads;
  }
  // R: the part of a head that rotary positions turn.
  int64_t rotary_width() const {
    if (attention.is_latent()) return attention.qk_rope_width;
    // As transformers rounds.
    return static_cast<int64_t>(static_cast<double>(head_width()) * rope.rotary_share);
  }
  // The width in which a head's queries meet its keys.
  int64_t core_width() const {
    return attention.is_latent() ? attention.core_width() : head_width();
  }
  // The logits that each token has: none where the head reads one token of a text.
  int64_t logits_per_token() const { return classes > 0 ? 0 : vocab_size; }
  int64_t expert_width() const {  // the width of an expert's feed-forward
    return sparse.expert_width > 0 ? sparse.expert_width : ffn_width;
  }
  // The width of the feed-forward that the shared experts are together.
  int64_t shared_width() const { return sparse.shared_experts * expert_width(); }
  // The model that the adapters are added to, or that they are merged into.
  ModelConfig without_adapters() const {
    ModelConfig base = *this;
    base.lora = {};
    return base;
  }
  // True when `layers` are those of an encoder, and a decoder follows.
  // Throws: ConfigError on an unknown family
  bool has_decoder() const;
  int64_t decoder_layers() const;  // of the decoder; 0: there is none
  int64_t num_blocks() const { return layers + decoder_layers(); }
  // True when the head shares the embedding's weight.
  // Throws: ConfigError on an unknown family
  bool has_tied_head() const;
  // False when a token also reads those behind it. The model is then trained to restore hidden
  // tokens, and generates no text.
  // Throws: ConfigError on an unknown family
  bool is_causal() const;
};

// Throws: ConfigError with the key, the value found and the value expected
void validate(const ModelConfig& config);

// Number of parameters of one dense or sparse block, without adapters.
int64_t block_parameters(const ModelConfig& config, bool sparse);
int64_t num_sparse_blocks(const ModelConfig& config);
// Number of parameters of the whole model, adapters included. A tied weight counts once.
int64_t num_parameters(const ModelConfig& config);
// Of these, the number that is trained: all of them, unless there are adapters.
int64_t num_trained_parameters(const ModelConfig& config);
// Floating-point operations of forward and backward per token: 6 per matmul parameter that the
// token meets, plus attention. Of a weight that is not trained backward computes no gradient: 4.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 5.1 (causal attention counted in full)
double flops_per_token(const ModelConfig& config);
// The same of a sequence, whose tokens may meet different layers.
double flops_per_sequence(const ModelConfig& config);

}  // namespace trireme::model
