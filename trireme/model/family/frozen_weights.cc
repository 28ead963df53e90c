#include "trireme/model/family/frozen_weights.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::model {

mesh::Box FrozenPart::weight_box(const mesh::Box& box) const {
  mesh::Box result = box;
  const int64_t begin = box.offset.at(1) * numbers(), end = begin + box.size.at(1) * numbers();
  result.offset[1] = begin / kCodesPerScale * kCodesPerScale;
  result.size[1] = (end + kCodesPerScale - 1) / kCodesPerScale * kCodesPerScale - result.offset[1];
  return result;
}

at::Tensor FrozenPart::of(const at::Tensor& weights, const mesh::Box& box) const {
  const WeightCodes codes = encode(weights, format);
  const int64_t skipped = box.offset.at(1) - weight_box(box).offset.at(1) / numbers();
  return (is_scales ? codes.scales : codes.codes).narrow(1, skipped, box.size.at(1));
}

std::optional<FrozenPart> frozen_part(std::string_view parameter, WeightFormat format) {
  for (const std::string_view end : {kWeightCodes, kWeightScales}) {
    if (has_scales(format) && parameter.ends_with(end)) {
      return FrozenPart{concat(parameter.substr(0, parameter.size() - end.size()), ".weight"),
                        format, end == kWeightScales};
    }
  }
  return std::nullopt;
}

}  // namespace trireme::model
