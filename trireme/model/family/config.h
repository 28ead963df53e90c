// The shape of a model: the [model] section of a config. All of it is validated before the first
// allocation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/model/family/attention_config.h"
#include "trireme/model/family/expert_config.h"

namespace trireme::model {

// The allowed values of model.family.
std::vector<std::string> family_names();

// The letters L, D, N, ... are those of docs/shapes.md.
struct ModelConfig {
  TRIREME_KEYS_BEGIN(ModelConfig)
  TRIREME_KEY(std::string, family, "llama", kMustStay, "architecture", family_names)
  TRIREME_KEY(int64_t, layers, 6, kMustStay, "L: transformer blocks", Range{1, kMaxLayers})
  TRIREME_KEY(int64_t, width, 256, kMustStay, "D: width of the residual stream",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, heads, 4, kMustStay,
              "N: attention heads; must divide the width, without head_width", Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, kv_heads, 4, kMustStay, "K: key and value heads; must divide the heads",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, ffn_width, 704, kMustStay, "F: width of the feed-forward",
              Range{1, kMaxFfnWidth})
  TRIREME_KEY(int64_t, sequence_length, 256, kMustStay, "T: tokens per sequence",
              Range{1, kMaxSequence})
  TRIREME_KEY(int64_t, vocab_size, 0, kMustStay, "V: size of the vocabulary; 0 = the tokenizer's",
              Range{0, kMaxVocabulary})
  TRIREME_KEY(double, norm_epsilon, 1e-5, kMustStay, "added to the variance in norms",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(double, rope_base, 10000.0, kMustStay,
              "base of the rotary angles, in families that have them",
              Range{.minimum = 1, .maximum = 1e12, .above_minimum = true})
  TRIREME_KEY(bool, tied_embedding, false, kMustStay,
              "the output shares the embedding's weight, in families that leave the choice")
  TRIREME_KEY(double, dropout, 0.0, kMustStay,
              "share of elements dropped in training after embedding, attention and feed-forward",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEYS_END()
  // Further keys of the section.
  AttentionConfig attention{};
  ExpertConfig sparse{};

  int64_t head_width() const {  // H
    return attention.head_width > 0 ? attention.head_width : width / heads;
  }
  // The width in which a head's queries meet its keys.
  int64_t core_width() const {
    return attention.is_latent() ? attention.core_width() : head_width();
  }
  int64_t expert_width() const {  // the width of an expert's feed-forward
    return sparse.expert_width > 0 ? sparse.expert_width : ffn_width;
  }
  // The width of the feed-forward that the shared experts are together.
  int64_t shared_width() const { return sparse.shared_experts * expert_width(); }
  // True when the head shares the embedding's weight.
  // Throws: ConfigError on an unknown family
  bool has_tied_head() const;
};

// Throws: ConfigError with the key, the value found and the value expected
void validate(const ModelConfig& config);

// Number of parameters of one dense or sparse block.
int64_t block_parameters(const ModelConfig& config, bool sparse);
int64_t num_sparse_blocks(const ModelConfig& config);
// Number of parameters of the whole model. A tied weight counts once.
int64_t num_parameters(const ModelConfig& config);
// Floating-point operations of forward and backward per token: 6 per matmul parameter that the
// token meets, plus attention.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 5.1 (causal attention counted in full)
double flops_per_token(const ModelConfig& config);

}  // namespace trireme::model
