#include "trireme/train/task/running_statistics.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

namespace trireme::train {
namespace {

template <typename Impl>
bool keeps_statistics(const torch::nn::Module& module) {
  const auto* const norm = dynamic_cast<const Impl*>(&module);
  return norm != nullptr && norm->options.track_running_stats();
}

}  // namespace

std::optional<std::string> norm_with_own_statistics(const torch::nn::Module& module,
                                                    const std::string& name) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): six of its names
  std::optional<std::string> found;
  module.apply(
      [&](const std::string& path, const Module& each) {
        const bool is_torch_norm =
            keeps_statistics<BatchNorm1dImpl>(each) || keeps_statistics<BatchNorm2dImpl>(each) ||
            keeps_statistics<BatchNorm3dImpl>(each) || keeps_statistics<InstanceNorm1dImpl>(each) ||
            keeps_statistics<InstanceNorm2dImpl>(each) ||
            keeps_statistics<InstanceNorm3dImpl>(each);
        if (is_torch_norm && !found) found = path;
      },
      name);
  return found;
}

}  // namespace trireme::train
