#include "trireme/checkpoint/foreign/mxfp4.h"

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr int64_t kBlockBytes = 16;
constexpr int kScaleBias = 127;
constexpr int kNoNumber = 255;

// Of a sign, two bits of exponent and one of mantissa.
constexpr std::array<float, 16> kNumbers = {0.F,  0.5F,  1.F,  1.5F,  2.F,  3.F,  4.F,  6.F,
                                            -0.F, -0.5F, -1.F, -1.5F, -2.F, -3.F, -4.F, -6.F};

// Both numbers of each byte.
at::Tensor pairs_of_bytes() {
  const at::Tensor pairs = at::empty({256, 2}, at::kFloat);
  auto* const out = pairs.mutable_data_ptr<float>();
  for (size_t byte = 0; byte < 256; ++byte) {
    out[2 * byte] = kNumbers[byte & 15];
    out[2 * byte + 1] = kNumbers[byte >> 4];
  }
  return pairs;
}

at::Tensor powers_of_scales() {
  const at::Tensor powers = at::empty({256}, at::kFloat);
  auto* const out = powers.mutable_data_ptr<float>();
  for (int scale = 0; scale < 256; ++scale) out[scale] = std::ldexp(1.F, scale - kScaleBias);
  return powers;
}

at::Tensor looked_up(const at::Tensor& table, const at::Tensor& bytes) {
  return table.index_select(0, bytes.flatten().to(at::kInt));
}

class Mxfp4Source : public TensorSource {
 public:
  Mxfp4Source(std::unique_ptr<TensorSource> source, std::filesystem::path path)
      : source_(std::move(source)), path_(std::move(path)), tensors_(source_->tensors()) {
    for (const auto& [name, tensor] : source_->tensors()) {
      if (name.ends_with(kBlocks) && tensor.dtype == at::kByte) add(name, tensor);
    }
  }

  bool has_some() const { return !packed_.empty(); }
  std::unique_ptr<TensorSource> take_source() { return std::move(source_); }

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  std::string kind() const override { return source_->kind(); }

  at::Tensor read(const std::string& name) const override {
    const auto found = packed_.find(name);
    if (found == packed_.end()) return source_->read(name);
    try {
      return mxfp4_numbers(source_->read(found->second), source_->read(scales_of(name)));
    } catch (const ConfigError& error) {
      throw CheckpointError(concat(path_.string(), ": ", scales_of(name), ": ", error.what()));
    }
  }

 private:
  static std::string scales_of(const std::string& name) { return concat(name, kScales); }

  void add(const std::string& blocks, const SourceTensor& found) {
    const std::string name = blocks.substr(0, blocks.size() - kBlocks.size());
    const auto scales = tensors_.find(scales_of(name));
    if (scales == tensors_.end())
      throw CheckpointError(concat(path_.string(), " has ", blocks, " and no ", scales_of(name),
                                   "; MXFP4 has both: the file is not whole"));
    const std::vector<int64_t>& shape = found.shape;
    const bool is_packed = shape.size() == 4 && shape[3] == kBlockBytes &&
                           scales->second.dtype == at::kByte &&
                           scales->second.shape == std::vector(shape.begin(), shape.end() - 1);
    if (!is_packed)
      throw CheckpointError(concat(
          path_.string(), ": ", blocks, " is ", at::IntArrayRef(shape), " and ", scales_of(name),
          " ", c10::toString(scales->second.dtype), " ", at::IntArrayRef(scales->second.shape),
          "; expected MXFP4's [E, R, G, 16] and uint8 [E, R, G]: the file is damaged"));
    if (tensors_.contains(name))
      throw CheckpointError(concat(path_.string(), " has both ", name, " and ", blocks,
                                   ", the same in MXFP4; save only one of them"));
    tensors_.erase(scales);
    tensors_.erase(blocks);
    tensors_[name] = {at::kBFloat16, {shape[0], 2 * kBlockBytes * shape[2], shape[1]}};
    packed_[name] = blocks;
  }

  std::unique_ptr<TensorSource> source_;
  std::filesystem::path path_;
  std::map<std::string, SourceTensor> tensors_;
  std::map<std::string, std::string> packed_;  // the blocks of each
};

}  // namespace

at::Tensor mxfp4_numbers(const at::Tensor& blocks, const at::Tensor& scales) {
  TRIREME_ASSERT(blocks.dim() == 4 && blocks.size(3) == kBlockBytes &&
                     scales.sizes() == blocks.sizes().slice(0, 3),
                 "MXFP4 of shape ", blocks.sizes(), " and ", scales.sizes());
  const int64_t num_wrong = scales.eq(kNoNumber).sum().item<int64_t>();
  TRIREME_CHECK(num_wrong == 0, num_wrong, " of ", scales.numel(), " scales are ", kNoNumber,
                ", which MXFP4 has for no number; expected at most ", kNoNumber - 1,
                ": use another file");
  const int64_t E = blocks.size(0), R = blocks.size(1), G = blocks.size(2);
  const at::Tensor numbers =
      at::empty({E, 2 * kBlockBytes * G, R}, at::TensorOptions().dtype(at::kBFloat16));
  const at::Tensor pairs = pairs_of_bytes(), powers = powers_of_scales();
  for (int64_t e = 0; e < E; ++e) {
    const at::Tensor values = looked_up(pairs, blocks[e]).view({R * G, 2 * kBlockBytes});
    values.mul_(looked_up(powers, scales[e]).unsqueeze(1));
    numbers[e].copy_(values.view({R, -1}).t());
  }
  return numbers;
}

std::unique_ptr<TensorSource> with_mxfp4(std::unique_ptr<TensorSource> source,
                                         const std::filesystem::path& path) {
  auto read = std::make_unique<Mxfp4Source>(std::move(source), path);
  if (!read->has_some()) return read->take_source();
  return read;
}

}  // namespace trireme::checkpoint
