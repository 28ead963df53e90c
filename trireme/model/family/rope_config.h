// Rotary positions beside the plain ones: keys of the [model] section. A scaling stretches the
// frequencies for sequences that are longer than those of the pretraining.
// Sources: linear, dynamic: Chen et al. 2023, arXiv:2306.15595; yarn: Peng et al. 2023,
// arXiv:2309.00071; longrope: Ding et al. 2024, arXiv:2402.13753; llama3: Grattafiori et al. 2024,
// arXiv:2407.21783, with the formula of transformers
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"

namespace trireme::model {

enum class RopeScaling { kNone, kLinear, kDynamic, kYarn, kLongRope, kLlama3 };
// As transformers names them, except for "default".
inline constexpr Choice<RopeScaling> kRopeScalings[] = {
    {"none", RopeScaling::kNone},         {"linear", RopeScaling::kLinear},
    {"dynamic", RopeScaling::kDynamic},   {"yarn", RopeScaling::kYarn},
    {"longrope", RopeScaling::kLongRope}, {"llama3", RopeScaling::kLlama3}};

struct ModelConfig;

// Keys that say something of each layer have a letter for each, repeated over the layers.
// letters: not empty; layer: counted from the model's first
inline char letter_of(const std::string& letters, int64_t layer) {
  return letters[static_cast<size_t>(layer % static_cast<int64_t>(letters.size()))];
}

struct RopeConfig {
  TRIREME_KEYS_BEGIN(RopeConfig)
  TRIREME_KEY(RopeScaling, rope_scaling, RopeScaling::kNone, kMustStay,
              "how rotary frequencies are scaled for sequences longer than those of the "
              "pretraining",
              kRopeScalings)
  TRIREME_KEY(double, rope_factor, 1.0, kMustStay,
              "rope_scaling: how many times longer sequences are than in the pretraining",
              Range{1, 1e6})
  TRIREME_KEY(int64_t, rope_original_length, 0, kMustStay,
              "rope_scaling: tokens per sequence in the pretraining; 0 = sequence_length",
              Range{0, kMaxSequence})
  TRIREME_KEY(double, rope_low_factor, 1.0, kMustStay,
              "llama3: wavelengths above rope_original_length divided by this are stretched whole",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(double, rope_high_factor, 4.0, kMustStay,
              "llama3: wavelengths below rope_original_length divided by this stay as they are",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(double, rope_beta_fast, 32.0, kMustStay,
              "yarn: frequencies that turn more often than this over rope_original_length stay",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(double, rope_beta_slow, 1.0, kMustStay,
              "yarn: frequencies that turn less often than this are stretched whole",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(bool, rope_truncate, true, kMustStay,
              "yarn: round the bounds between these to whole frequencies")
  TRIREME_KEY(double, rope_attention_factor, 0.0, kMustStay,
              "yarn, longrope: factor of the rotated queries and keys; 0 = from rope_factor",
              Range{0, 1e6})
  TRIREME_KEY(double, rope_mscale, 0.0, kMustStay,
              "yarn: weight of log(rope_factor) in the attention factor, as in DeepSeek; 0 = none",
              Range{0, 1e6})
  TRIREME_KEY(double, rope_mscale_all_dim, 0.0, kMustStay,
              "yarn: the same for what the attention factor is divided by, and for the scores of "
              "latent attention; 0 = none",
              Range{0, 1e6})
  TRIREME_KEY(std::string, rope_short_factors, "", kMustStay,
              "longrope: by how much each frequency is stretched in sequences of up to "
              "rope_original_length, separated by commas")
  TRIREME_KEY(std::string, rope_long_factors, "", kMustStay,
              "longrope: the same in longer sequences")
  TRIREME_KEY(double, rotary_share, 1.0, kMustStay,
              "share of each head that positions turn, its first part (partial rotary factor)",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(double, rope_local_base, 0.0, kMustStay,
              "rope_base of the layers with a window, whose positions have no scaling, as in Gemma "
              "3; 0 = the positions of the other layers",
              Range{0, 1e12})
  TRIREME_KEY(std::string, rope_layers, "r", kMustStay,
              "which layers have rotary positions: a letter for each layer, r = rotary, n = none, "
              "repeated over the layers, such as \"rrrn\" as in SmolLM3")
  TRIREME_KEYS_END()

  // Whether positions turn the queries and keys of a layer, counted from the model's first.
  bool turns(int64_t layer) const { return letter_of(rope_layers, layer) == 'r'; }
};

// The factors of rope_short_factors or rope_long_factors. Empty where one is not a number above 0.
std::vector<double> rope_factors(const std::string& text);

// Throws: ConfigError with the key, the value found and the value expected
void check_rope(const ModelConfig& config);

// A scaling for sequences of one length.
struct RopeFrequencies {
  std::vector<double> frequencies;  // [R/2], radians per token
  double attention_factor = 1;      // of cosines and sines
};
// width: R, the part of a head that is turned
RopeFrequencies rope_frequencies(const RopeConfig& config, double base, int64_t width,
                                 int64_t sequence_length);

// The factor of latent attention's scores with yarn, mscale^2 by DeepSeek's rope_mscale_all_dim.
double rope_score_factor(const RopeConfig& config);

}  // namespace trireme::model
