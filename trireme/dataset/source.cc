#include "trireme/dataset/source.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"

namespace trireme::dataset {
namespace {

std::string describe(const NamedTensor& tensor, c10::IntArrayRef sizes) {
  TextWriter out;
  out << "\"" << tensor.first << "\" of " << sizes << " " << tensor.second.scalar_type();
  return out.str();
}

}  // namespace

at::Tensor find_tensor(const NamedTensors& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::first);
  return found == tensors.end() ? at::Tensor() : found->second;
}

// Copies by hand, because at::stack() starts a pool of threads for each thread that calls it, and
// several read ahead.
void copy_into_batch(const NamedTensors& sample, NamedTensors& batch, int64_t b) {
  TRIREME_CHECK(sample.size() == batch.size(), "a sample has ", sample.size(),
                " tensors and another of its batch ", batch.size(), "; expected all samples alike");
  for (size_t i = 0; i < sample.size(); ++i) {
    const c10::IntArrayRef sizes = sample[i].second.sizes();
    const c10::IntArrayRef expected = batch[i].second.sizes().slice(1);
    const bool fits = sample[i].first == batch[i].first && sizes == expected &&
                      sample[i].second.scalar_type() == batch[i].second.scalar_type();
    TRIREME_CHECK(fits, "a sample has ", describe(sample[i], sizes), " and another of its batch ",
                  describe(batch[i], expected), "; expected all samples alike");
    const at::Tensor from = sample[i].second.contiguous();
    if (from.nbytes() == 0) continue;
    auto* const to = static_cast<std::byte*>(batch[i].second.mutable_data_ptr());
    std::memcpy(to + b * static_cast<int64_t>(from.nbytes()), from.const_data_ptr(), from.nbytes());
  }
}

void Source::get_into(int64_t index, std::optional<RandomKey> augmentation, NamedTensors& batch,
                      int64_t b) const {
  copy_into_batch(get(index, augmentation), batch, b);
}

double sample_bytes(const Source& source) {
  constexpr int64_t kMostTried = 100;  // a run may skip bad samples
  for (int64_t index = 0;; ++index) {
    try {
      double bytes = 0;
      for (const auto& [name, tensor] : source.get(index, std::nullopt)) {
        bytes += static_cast<double>(tensor.nbytes());
      }
      return bytes;
    } catch (const ConfigError&) {
      if (index + 1 >= std::min(source.size(), kMostTried)) throw;
    }
  }
}

}  // namespace trireme::dataset
