#include "trireme/train/run/source_use.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::train {

std::vector<SourceUse> source_uses(const dataset::Blend* blend, int64_t num_samples) {
  std::vector<SourceUse> uses;
  for (size_t part = 0; blend != nullptr && part < blend->parts().size(); ++part) {
    const dataset::BlendPart& source = blend->parts()[part];
    uses.push_back({.name = source.name,
                    .about = source.about,
                    .share = blend->share(part),
                    .samples = source.size,
                    .passes = static_cast<double>(blend->count(part, num_samples)) /
                              static_cast<double>(source.size)});
  }
  return uses;
}

void require_fresh_samples(const dataset::Blend* blend, const dataset::BatchLoader& batches,
                           int64_t num_steps) {
  if (blend == nullptr || blend->repeats()) return;
  const auto [most, part] = blend->fresh();
  const int64_t needed = batches.step_sample(num_steps);
  if (needed <= most) return;
  const int64_t beyond = batches.first_step_from(most + 1, num_steps).value();
  const dataset::BlendPart& source = blend->parts()[part];
  throw ConfigError(concat("data.repeat_sources is false and the run has ", num_steps,
                           " steps, which need ", blend->count(part, needed), " samples of ",
                           source.name, ", and it has ", source.size, ", enough for ",
                           std::max<int64_t>(beyond - 1, 0),
                           " steps; make no more steps, give it a smaller weight or more data, or "
                           "set data.repeat_sources to true"));
}

}  // namespace trireme::train
