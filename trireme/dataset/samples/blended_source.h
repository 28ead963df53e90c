// The samples of several sources as those of one, which a run reads in given shares.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/dataset/blend/blend.h"
#include "trireme/dataset/source.h"

namespace trireme::dataset {

// By index, the samples of one source follow those of the other. Training reads them in the order
// of blend(), in which each source has the order, epoch by epoch, that it has alone
// (SampleOrder). Evaluation reads them by index.
class BlendedSource : public Source {
 public:
  struct Part {
    std::string name{};
    std::string about{};  // as BlendPart's
    int64_t weight = 1;
    std::shared_ptr<const Source> samples{};
  };

  // All samples must be alike. The parts may not have shards.
  // Throws: InternalError, as Blend
  BlendedSource(std::vector<Part> parts, bool repeats);

  const Source& part(size_t part) const { return *samples_.at(part); }
  int64_t size() const override { return blend_.size(); }
  const Blend* blend() const override { return &blend_; }
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;
  void get_into(int64_t index, std::optional<RandomKey> augmentation, NamedTensors& batch,
                int64_t b) const override;

 private:
  std::vector<std::shared_ptr<const Source>> samples_;
  Blend blend_;
};

}  // namespace trireme::dataset
