#include "trireme/parallel/learner/wire/index_code.h"

#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/numbers/bit_pack.h"

namespace trireme::parallel {
namespace {

// Of a code for `count` indices below `size`.
struct IndexShape {
  int num_planes = 0;
  int64_t map_bits = 0;
};

IndexShape shape_of(int64_t count, int64_t size) {
  IndexShape shape;
  if (count == 0) return shape;
  while ((size / count) >> (shape.num_planes + 1) > 0) ++shape.num_planes;
  shape.map_bits = ((size - 1) >> shape.num_planes) + count;
  return shape;
}

at::Tensor counted(const at::Tensor& like) {
  return at::arange(like.numel(), like.options().dtype(at::kLong));
}

}  // namespace

at::Tensor choose_largest(const at::Tensor& x, int64_t count) {
  const at::Tensor magnitudes = x.abs();
  if (count == x.numel() || count == 0) return counted(x).narrow(0, 0, count);
  // topk() may take any of equal elements, so it only says how large the chosen ones are.
  const at::Tensor least =
      std::get<0>(magnitudes.topk(count, /*dim=*/0, /*largest=*/true, /*sorted=*/false)).min();
  const at::Tensor above = magnitudes.gt(least).nonzero().view(-1);
  const at::Tensor equal = magnitudes.eq(least).nonzero().view(-1);
  return std::get<0>(at::cat({above, equal.narrow(0, 0, count - above.numel())}).sort());
}

int64_t index_bytes(int64_t count, int64_t size) {
  const IndexShape shape = shape_of(count, size);
  return comm::packed_bytes(shape.map_bits, 1) + shape.num_planes * comm::packed_bytes(count, 1);
}

at::Tensor encode_indices(const at::Tensor& indices, int64_t size) {
  const IndexShape shape = shape_of(indices.numel(), size);
  const at::Tensor map = at::zeros({shape.map_bits}, indices.options().dtype(at::kByte));
  map.index_fill_(0, indices.bitwise_right_shift(shape.num_planes) + counted(indices), 1);
  std::vector<at::Tensor> parts{comm::pack_codes(map, 1)};
  for (int plane = 0; plane < shape.num_planes; ++plane) {
    parts.push_back(
        comm::pack_codes(indices.bitwise_right_shift(plane).bitwise_and_(1).to(at::kByte), 1));
  }
  return at::cat(parts);
}

at::Tensor decode_indices(const at::Tensor& bytes, int64_t count, int64_t size) {
  TRIREME_ASSERT(bytes.numel() == index_bytes(count, size), bytes.numel(), " bytes for ", count,
                 " indices");
  const IndexShape shape = shape_of(count, size);
  int64_t at = comm::packed_bytes(shape.map_bits, 1);
  const at::Tensor places =
      comm::unpack_codes(bytes.narrow(0, 0, at), 1, shape.map_bits).nonzero().view(-1);
  if (places.numel() != count) {
    throw CommError(concat("a sparse difference has ", places.numel(), " indices; expected ", count,
                           "; the message is damaged"));
  }
  at::Tensor indices = (places - counted(places)).bitwise_left_shift_(shape.num_planes);
  for (int plane = 0; plane < shape.num_planes; ++plane) {
    const int64_t num_bytes = comm::packed_bytes(count, 1);
    const at::Tensor bits = comm::unpack_codes(bytes.narrow(0, at, num_bytes), 1, count);
    indices.bitwise_or_(bits.to(at::kLong).bitwise_left_shift_(plane));
    at += num_bytes;
  }
  if (count > 0 &&
      (indices[count - 1].item<int64_t>() >= size || indices.diff().le(0).any().item<bool>())) {
    throw CommError(concat("a sparse difference has indices that do not ascend to at most ",
                           size - 1, "; the message is damaged"));
  }
  return indices;
}

}  // namespace trireme::parallel
