// How large the numbers are that a gradient is summed from: what its rounding is relative to.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <ATen/ATen.h>

namespace trireme {

// gradient_of(name): of that parameter. A bias's terms are those of its weight, without the input:
// softmax does not see the bias of k, so that its gradient is zero but for their rounding.
template <typename GradientOf>
double gradient_scale(const std::string& name, const GradientOf& gradient_of) {
  const auto largest = [&](const std::string& of) {
    const at::Tensor gradient = gradient_of(of);
    return gradient.abs().max().template item<double>();
  };
  constexpr std::string_view kBias = ".bias";
  // The bias of BERT's logits belongs to the embedding.
  if (!name.ends_with(kBias) || name.ends_with("cls.predictions.bias")) return largest(name);
  return std::max(largest(name), largest(name.substr(0, name.size() - kBias.size()) + ".weight"));
}

}  // namespace trireme
