// Weights that are frozen as codes with scales, by the names of what holds these: see WeightCodes
// and AdapterConfig::base.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/weight_codes.h"
#include "trireme/mesh/layout.h"

namespace trireme::model {

// What a linear layer has in place of its weight, after the layer's name.
inline constexpr std::string_view kWeightCodes = ".weight_codes";
inline constexpr std::string_view kWeightScales = ".weight_scales";

// The codes or the scales of a weight.
struct FrozenPart {
  std::string weight;  // its name
  WeightFormat format = WeightFormat::kRun;
  bool is_scales = false;

  // Numbers of a row of the weight that share an element.
  int64_t numbers() const { return is_scales ? kCodesPerScale : numbers_per_code(format); }
  // The box of the weight that decides the part's elements in `box`, with all numbers that share
  // their scales.
  mesh::Box weight_box(const mesh::Box& box) const;
  // The elements of `box`.
  // weights: those of weight_box(box)
  // Throws: as encode()
  at::Tensor of(const at::Tensor& weights, const mesh::Box& box) const;
};

// None: the parameter is no such part.
std::optional<FrozenPart> frozen_part(std::string_view parameter, WeightFormat format);

}  // namespace trireme::model
