#include "trireme/dataset/samples/blended_source.h"

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

std::vector<BlendPart> blend_parts(const std::vector<BlendedSource::Part>& parts) {
  std::vector<BlendPart> found;
  for (const BlendedSource::Part& part : parts) {
    TRIREME_ASSERT(part.samples->shard_sizes().empty() && part.samples->blend() == nullptr,
                   part.name, " has an order of its own");
    found.push_back({part.name, part.about, part.weight, part.samples->size()});
  }
  return found;
}

}  // namespace

BlendedSource::BlendedSource(std::vector<Part> parts, bool repeats)
    : blend_(blend_parts(parts), repeats) {
  for (Part& part : parts) samples_.push_back(std::move(part.samples));
}

NamedTensors BlendedSource::get(int64_t index, std::optional<RandomKey> augmentation) const {
  const auto [part, own] = blend_.at_index(index);
  return samples_[part]->get(own, augmentation);
}

void BlendedSource::get_into(int64_t index, std::optional<RandomKey> augmentation,
                             NamedTensors& batch, int64_t b) const {
  const auto [part, own] = blend_.at_index(index);
  samples_[part]->get_into(own, augmentation, batch, b);
}

}  // namespace trireme::dataset
