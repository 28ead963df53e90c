#include "trireme/model/family/rope_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {
namespace {

double yarn_factor(double factor, double weight = 1) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

double attention_factor(const RopeConfig& config, double original) {
  if (config.rope_attention_factor > 0) return config.rope_attention_factor;
  const double factor = config.rope_factor;
  if (config.rope_scaling == RopeScaling::kLongRope) {
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  }
  if (config.rope_scaling != RopeScaling::kYarn) return 1;
  if (config.rope_mscale == 0 || config.rope_mscale_all_dim == 0) return yarn_factor(factor);
  return yarn_factor(factor, config.rope_mscale) / yarn_factor(factor, config.rope_mscale_all_dim);
}

// Between both factors the stretch passes smoothly from whole to none.
double llama3_frequency(const RopeConfig& config, double frequency, double original) {
  const double low = config.rope_low_factor, high = config.rope_high_factor;
  const double turns = original * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return (1 - kept) * frequency / config.rope_factor + kept * frequency;
}

// The frequencies from `first` on are stretched, whole from `last` on.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& config, double base, int64_t width, double original) {
    const auto index_of = [&](double turns) {
      return static_cast<double>(width) * std::log(original / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(base));
    };
    first_ = index_of(config.rope_beta_fast);
    last_ = index_of(config.rope_beta_slow);
    if (config.rope_truncate) {
      first_ = std::floor(first_);
      last_ = std::ceil(last_);
    }
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, static_cast<double>(width - 1));
    // As transformers does.
    if (first_ == last_) last_ += 0.001;
  }
  double share_stretched(size_t i) const {
    return std::clamp((static_cast<double>(i) - first_) / (last_ - first_), 0.0, 1.0);
  }

 private:
  double first_, last_;
};

}  // namespace

std::vector<double> rope_factors(const std::string& text) {
  std::vector<double> factors;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const char* begin = one.data() + std::min(one.size(), one.find_first_not_of(' '));
    const char* const end = one.data() + one.size();
    double factor = 0;
    const auto [stop, error] = std::from_chars(begin, end, factor);
    const bool is_whole = std::all_of(stop, end, [](char c) { return c == ' '; });
    if (error != std::errc() || !is_whole || !std::isfinite(factor) || factor <= 0) return {};
    factors.push_back(factor);
  }
  return factors;
}

void check_rope(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const std::string scaling = name_of(kRopeScalings, rope.rope_scaling);
  const int64_t R = config.rotary_width();
  TRIREME_CHECK(config.rope_base > 1, "model.rope_base = ", config.rope_base,
                "; expected more than 1, such as 10000");
  TRIREME_CHECK(rope.rope_local_base == 0 || rope.rope_local_base > 1,
                "model.rope_local_base = ", rope.rope_local_base,
                "; expected more than 1, such as 10000, or 0");
  TRIREME_CHECK(rope.rope_local_base == 0 || config.attention.window > 0,
                "model.rope_local_base is ", rope.rope_local_base,
                " and model.window 0, so that no layer uses it; set the window, or leave it out");
  TRIREME_CHECK(
      !rope.rope_layers.empty() && rope.rope_layers.find_first_not_of("rn") == std::string::npos,
      "model.rope_layers is \"", rope.rope_layers,
      "\"; expected letters r and n, such as \"rrrn\"");
  TRIREME_CHECK(rope.rope_layers == "r" || !config.attention.is_latent(), "model.rope_layers is \"",
                rope.rope_layers,
                "\" and attention latent, whose positions every layer has; leave it out");
  TRIREME_CHECK(rope.rotary_share == 1 || !config.attention.is_latent(), "model.rotary_share is ",
                rope.rotary_share,
                " and attention latent, whose turned part is model.qk_rope_width; set it to 1");
  TRIREME_CHECK(R % 2 == 0 && R >= 2, "model.rotary_share = ", rope.rotary_share, " turns ", R,
                " of each head's ", config.head_width(),
                " numbers; expected an even number of at least 2: change it");
  TRIREME_CHECK(rope.rope_scaling != RopeScaling::kNone || rope.rope_factor == 1,
                "model.rope_factor is ", rope.rope_factor,
                " and model.rope_scaling \"none\"; set the scaling, or the factor to 1");
  TRIREME_CHECK(rope.rope_scaling != RopeScaling::kDynamic || R > 2,
                "model.rope_scaling is \"dynamic\" and each head turns one pair of numbers; "
                "expected at least two: set wider heads");
  TRIREME_CHECK(
      rope.rope_scaling != RopeScaling::kLlama3 || rope.rope_high_factor > rope.rope_low_factor,
      "model.rope_high_factor is ", rope.rope_high_factor, " and model.rope_low_factor ",
      rope.rope_low_factor, "; expected a high one above the low one");
  const bool is_long = rope.rope_scaling == RopeScaling::kLongRope;
  const bool is_yarn = rope.rope_scaling == RopeScaling::kYarn;
  const RopeConfig plain;
  const auto check_use = [&](auto member, const char* name, bool is_used) {
    TRIREME_CHECK(is_used || rope.*member == plain.*member, "model.", name, " is ", rope.*member,
                  ", which model.rope_scaling \"", scaling, "\" does not use; leave it out");
  };
  const bool is_llama3 = rope.rope_scaling == RopeScaling::kLlama3;
  const bool is_dynamic = rope.rope_scaling == RopeScaling::kDynamic;
  check_use(&RopeConfig::rope_original_length, "rope_original_length",
            is_long || is_yarn || is_llama3 || is_dynamic);
  check_use(&RopeConfig::rope_low_factor, "rope_low_factor", is_llama3);
  check_use(&RopeConfig::rope_high_factor, "rope_high_factor", is_llama3);
  check_use(&RopeConfig::rope_beta_fast, "rope_beta_fast", is_yarn);
  check_use(&RopeConfig::rope_beta_slow, "rope_beta_slow", is_yarn);
  check_use(&RopeConfig::rope_truncate, "rope_truncate", is_yarn);
  check_use(&RopeConfig::rope_attention_factor, "rope_attention_factor", is_yarn || is_long);
  check_use(&RopeConfig::rope_mscale, "rope_mscale", is_yarn);
  check_use(&RopeConfig::rope_mscale_all_dim, "rope_mscale_all_dim", is_yarn);
  const int64_t original =
      rope.rope_original_length > 0 ? rope.rope_original_length : config.sequence_length;
  TRIREME_CHECK(!is_long || original > 1 || rope.rope_attention_factor > 0,
                "model.rope_original_length is 1 with model.rope_scaling \"longrope\", whose "
                "attention factor divides by its logarithm; expected at least 2");
  for (const auto& [name, text] : {std::pair{"rope_short_factors", rope.rope_short_factors},
                                   std::pair{"rope_long_factors", rope.rope_long_factors}}) {
    TRIREME_CHECK(is_long || text.empty(), "model.", name, " is set and model.rope_scaling is \"",
                  scaling, "\"; it is for \"longrope\": leave it out");
    const auto count = static_cast<int64_t>(rope_factors(text).size());
    TRIREME_CHECK(!is_long || count == R / 2, "model.", name, " has ", count,
                  " numbers above 0; expected ", R / 2,
                  ", separated by commas, one for each pair of ", "numbers that a head turns");
  }
}

RopeFrequencies rope_frequencies(const RopeConfig& config, double base, int64_t width,
                                 int64_t sequence_length) {
  const auto R = static_cast<double>(width), T = static_cast<double>(sequence_length);
  const double factor = config.rope_factor;
  const double original =
      config.rope_original_length > 0 ? static_cast<double>(config.rope_original_length) : T;
  if (config.rope_scaling == RopeScaling::kDynamic) {
    const double stretch = factor * std::max(T, original) / original - (factor - 1);
    base *= std::pow(stretch, R / (R - 2));
  }
  RopeFrequencies result{.attention_factor = attention_factor(config, original)};
  const std::vector<double> factors =
      rope_factors(T > original ? config.rope_long_factors : config.rope_short_factors);
  const YarnRamp ramp(config, base, width, original);
  for (size_t i = 0; i < static_cast<size_t>(width / 2); ++i) {
    const double plain = std::pow(base, -2 * static_cast<double>(i) / R);
    const auto scaled = [&] {
      switch (config.rope_scaling) {
        case RopeScaling::kNone:
        case RopeScaling::kDynamic: return plain;
        case RopeScaling::kLinear: return plain / factor;
        case RopeScaling::kYarn: {
          const double share = ramp.share_stretched(i);
          return plain / factor * share + plain * (1 - share);
        }
        case RopeScaling::kLongRope: return plain / factors[i];
        case RopeScaling::kLlama3: return llama3_frequency(config, plain, original);
      }
      return plain;
    };
    result.frequencies.push_back(scaled());
  }
  return result;
}

double rope_score_factor(const RopeConfig& config) {
  if (config.rope_scaling == RopeScaling::kNone || config.rope_mscale_all_dim == 0) return 1;
  const double mscale = yarn_factor(config.rope_factor, config.rope_mscale_all_dim);
  return mscale * mscale;
}

}  // namespace trireme::model
