#include "trireme/parallel/data/compression/narrow_hooks.h"

#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/numbers/row_code.h"
#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {

CastHook::CastHook(at::ScalarType wire) : wire_(wire) {
  TRIREME_CHECK(wire == at::kBFloat16 || wire == at::kHalf, "the wire's dtype is ", wire,
                "; expected bf16 or fp16");
}

int64_t CastHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  // Each element is coded independently, so the bucket may be cut among the ranks anywhere.
  const at::Tensor rows = bucket.flat.to(at::kFloat).view({-1, 1});
  const RowCode code{
      .dtype = wire_,
      .encode = [](const at::Tensor& x, const at::Tensor& coded) { coded.copy_(x.view(-1)); },
      .decode =
          [](const at::Tensor& coded) {
            return coded.to(at::kFloat).view({-1, 1});
          }};
  const int64_t num_bytes = coded_all_reduce(rows, code, group);
  if (!rows.is_alias_of(bucket.flat)) bucket.flat.copy_(rows.view(-1));
  return num_bytes;
}

namespace {

constexpr int kLargest = 127;
constexpr int64_t kScaleBytes = sizeof(float);
constexpr int64_t kCodeBytes = kScaleBytes + kInt8Block;

// A part's code: its scales, then its elements.
struct PartCode {
  at::Tensor scales;  // [b, 1] fp32
  at::Tensor values;  // [b, 256] int8
};
PartCode view_code(const at::Tensor& code) {
  const int64_t num_blocks = code.numel() / kCodeBytes;
  return {code.narrow(0, 0, num_blocks * kScaleBytes).view(at::kFloat).view({num_blocks, 1}),
          code.narrow(0, num_blocks * kScaleBytes, num_blocks * kInt8Block)
              .view(at::kChar)
              .view({num_blocks, kInt8Block})};
}

void encode(const at::Tensor& rows, const at::Tensor& code) {
  if (rows.size(0) == 0) return;
  const PartCode part = view_code(code);
  // The largest value of a block maps to 127, so no value is cut off.
  const at::Tensor scales = comm::scales_of_largest(rows, kLargest);
  part.scales.copy_(scales);
  // A block whose scale is not finite decodes to NaN anyway.
  part.values.copy_(comm::nearest_whole(rows, scales, kLargest));
}

at::Tensor decode(const at::Tensor& code) {
  if (code.numel() == 0) return at::empty({0, kInt8Block}, code.options().dtype(at::kFloat));
  const PartCode part = view_code(code);
  return part.values.to(at::kFloat).mul_(part.scales);
}

}  // namespace

int64_t Int8Hook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  std::vector<int64_t> first_blocks{0};
  // Blocks begin with each parameter, so one with large gradients does not coarsen its neighbours.
  for (const at::Tensor& gradient : bucket.gradients) {
    first_blocks.push_back(first_blocks.back() + (gradient.numel() + kInt8Block - 1) / kInt8Block);
  }
  const at::Tensor blocks =
      at::zeros({first_blocks.back(), kInt8Block}, bucket.flat.options().dtype(at::kFloat));
  const auto place_of = [&](size_t i) {
    return blocks.view(-1)
        .narrow(0, first_blocks[i] * kInt8Block, bucket.gradients[i].numel())
        .view(bucket.gradients[i].sizes());
  };
  for (size_t i = 0; i < bucket.gradients.size(); ++i) place_of(i).copy_(bucket.gradients[i]);
  const RowCode code{.dtype = at::kByte, .width = kCodeBytes, .encode = encode, .decode = decode};
  const int64_t num_bytes = coded_all_reduce(blocks, code, group);
  for (size_t i = 0; i < bucket.gradients.size(); ++i) bucket.gradients[i].copy_(place_of(i));
  return num_bytes;
}

}  // namespace trireme::parallel
