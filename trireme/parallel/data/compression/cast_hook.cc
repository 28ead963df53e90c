#include "trireme/parallel/data/compression/cast_hook.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {

CastHook::CastHook(at::ScalarType wire) : wire_(wire) {
  TRIREME_CHECK(wire == at::kBFloat16 || wire == at::kHalf, "the wire's dtype is ", wire,
                "; expected bf16 or fp16");
}

int64_t CastHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  // Each element is coded by itself, so the bucket may be cut among the ranks anywhere.
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

}  // namespace trireme::parallel
