// The keys of section [lora]: low-rank adapters, which are trained while the model's own weights
// stay as they are.
// Source: Hu et al. 2021, arXiv:2106.09685; magnitudes: Liu et al. 2024, arXiv:2402.09353; frozen
//         weights in fewer bits: Dettmers et al. 2023, arXiv:2305.14314
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/base/machine/weight_codes.h"

namespace trireme::model {

struct AdapterConfig {
  TRIREME_KEYS_BEGIN(AdapterConfig)
  TRIREME_KEY(
      int64_t, rank, 0, kMustStay,
      "r: rank of the adapters, which are trained in place of the model's weights; 0 = none",
      Range{0, kMaxWidth})
  TRIREME_KEY(double, alpha, 16, kMustStay,
              "an adapter's output is scaled by alpha / rank before it is added", Range{0, 1e6})
  TRIREME_KEY(double, dropout, 0, kMustStay, "dropout probability of an adapter's input",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEY(bool, dora, false, kMustStay,
              "also train a magnitude for each output of an adapted layer, to which its row of the "
              "sum of weight and adapter is scaled (DoRA)")
  TRIREME_KEY(std::string, targets, "*", kMustStay,
              "comma-separated name patterns of the linear layers that get an adapter, among those "
              "of the blocks, such as \"*.q_proj, *.v_proj\"; with .experts. in it, of the stacked "
              "weights of experts, such as \"*.experts.gate_up_proj, *.experts.down_proj\"")
  TRIREME_KEY(std::string, also_train, "", kMustStay,
              "comma-separated name patterns of the model's own parameters to train beside the "
              "adapters, such as \"*norm*, lm_head.*\"")
  TRIREME_KEY(
      WeightFormat, base, WeightFormat::kRun, kMustStay,
      "how the frozen weights of the blocks' linear layers are kept: run = as the others, "
      "bf16, int8 or nf4 = in fewer bits, int8 and nf4 with a scale for 64 numbers of a row "
      "(QLoRA)",
      kWeightFormats)
  TRIREME_KEY(std::string, init, "", kMustStay,
              "folder of an adapter that peft wrote, with whose values a new run begins; its model "
              "is init.folder, a Hugging Face folder")
  TRIREME_KEYS_END()

  bool is_on() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
};

// The parameters of a linear layer's adapter, after the layer's name: A [r, in] and B [out, r], and
// with lora.dora [out], what each magnitude exceeds the length of the weight's own row by. Stacked
// weights of experts have A [E, r, in], after the name of adapted_stack(), and B [E, out, r], after
// their own.
inline constexpr const char* kAdapterA = ".lora_A.weight";
inline constexpr const char* kAdapterB = ".lora_B.weight";
inline constexpr const char* kAdapterMagnitude = ".lora_magnitude";
inline constexpr const char* kAdapterParameters[] = {kAdapterMagnitude, kAdapterA, kAdapterB};

inline bool is_of_adapter(std::string_view parameter) {
  return std::ranges::any_of(kAdapterParameters,
                             [&](const char* end) { return parameter.ends_with(end); });
}

// In the names of all experts' stacks, and in the patterns of lora.targets that name some.
inline constexpr std::string_view kExperts = ".experts.";

// The name by which lora.targets knows a stack of experts' weights; "" for every other
// parameter. Gate and up are one stack to transformers and to peft, with one A.
inline std::string adapted_stack(std::string_view parameter) {
  const size_t experts = parameter.rfind(kExperts);
  if (experts == parameter.npos) return "";
  const std::string_view stack = parameter.substr(experts + kExperts.size());
  if (stack == "down_proj") return std::string(parameter);
  if (stack != "gate_proj" && stack != "up_proj") return "";
  return std::string(parameter.substr(0, experts + kExperts.size())) + "gate_up_proj";
}

}  // namespace trireme::model
