#include "trireme/checkpoint/write/snapshot.h"

#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/chunk/chunk.h"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OwnPiece piece(const std::string& name, const at::Tensor& tensor) {
  const mesh::Box box{std::vector<int64_t>(tensor.dim(), 0), tensor.sizes().vec()};
  return {.name = name,
          .dtype = tensor.scalar_type(),
          .box = box,
          .chunk_bytes = cut_into_chunks(box, tensor.element_size()),
          .local = tensor};
}

at::Tensor tensor_of(const OwnPiece& piece) {
  const HostBytes host = piece.bytes();
  at::Tensor result = at::empty(piece.box.size, piece.dtype);
  std::memcpy(result.mutable_data_ptr(), host.bytes.data(), host.bytes.size());
  return result;
}

TEST(Snapshot, CopiesKeepTheValuesThatTensorsHad) {
  SnapshotMemory memory;
  for (const int round : {0, 1}) {  // the second in the same memory
    std::vector<at::Tensor> tensors = {
        random_tensor("a", {700, 513}, at::kFloat, round), random_tensor("b", {}, at::kLong, round),
        random_tensor("c", {5, 3}, at::kBFloat16, round),
        random_tensor("d", {40, 30}, at::kInt, round).t()};  // not contiguous
    std::vector<OwnPiece> pieces, plain;
    std::vector<at::Tensor> before;
    for (const at::Tensor& tensor : tensors) {
      before.push_back(tensor.clone());
      pieces.push_back(piece("w", tensor));
      plain.push_back(piece("w", tensor));
    }
    scan_pieces(plain, Scan::kDigests);
    copy_pieces(pieces, memory);
    for (at::Tensor& tensor : tensors) tensor.zero_();
    scan_pieces(pieces, Scan::kDigests);
    for (size_t i = 0; i < pieces.size(); ++i) {
      harness::assert_same_bits(tensor_of(pieces[i]), before[i].contiguous(), "copy");
      EXPECT_EQ(pieces[i].digests, plain[i].digests);
      EXPECT_EQ(pieces[i].digests.size(), pieces[i].chunk_bytes.size());
    }
  }
}

TEST(Snapshot, NonfiniteValuesOfEveryDtypeAreCounted) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const at::Tensor values = at::tensor({1.0, kInf, -kInf, std::nan(""), 0.0, -65504.0, 1e-7});
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor tensor = values.to(dtype);
    const std::span bytes(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
    EXPECT_EQ(count_nonfinite(bytes, dtype), 3) << dtype;
  }
  const at::Tensor ones = at::full({8}, -1, at::kInt);  // the bits of a NaN
  EXPECT_EQ(count_nonfinite({static_cast<const std::byte*>(ones.const_data_ptr()), ones.nbytes()},
                            at::kInt),
            0);
}

TEST(Snapshot, TheFirstPieceWithNonfiniteValuesIsNamed) {
  at::Tensor bad = at::zeros({3, 4});
  bad[1][2] = std::nan("");
  SnapshotMemory memory;
  for (const bool copies : {false, true}) {
    const auto scanned = [&](std::vector<OwnPiece> pieces, Scan scan) {
      if (copies) copy_pieces(pieces, memory);
      scan_pieces(pieces, scan);
      return pieces;
    };
    const auto good = scanned({piece("a", at::zeros({3}))}, Scan::kDigestsAndNonfinite);
    EXPECT_NO_THROW(require_finite_pieces(good));
    const std::vector<OwnPiece> both{piece("a", at::zeros({3})), piece("b", bad)};
    EXPECT_NO_THROW(require_finite_pieces(scanned(both, Scan::kDigests)));
    const auto pieces = scanned(both, Scan::kDigestsAndNonfinite);
    EXPECT_THAT(harness::message_of<ConfigError>([&] { require_finite_pieces(pieces); }),
                AllOf(HasSubstr("1 of the 12 values of \"b\""),
                      HasSubstr("checkpoint.allow_nonfinite = true")));
  }
}

TEST(Snapshot, NonfiniteValuesOfManyChunksAreCounted) {
  at::Tensor values = at::zeros({1001, 997});
  values.view({-1}).slice(0, 5, std::nullopt, 97).fill_(std::nan(""));
  const int64_t expected = (values != values).sum().item<int64_t>();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    std::vector<OwnPiece> pieces{piece("a", values.to(dtype))};
    scan_pieces(pieces, Scan::kDigestsAndNonfinite);
    EXPECT_GT(pieces[0].digests.size(), 1);
    EXPECT_EQ(pieces[0].num_nonfinite, expected) << dtype;
  }
}

}  // namespace
}  // namespace trireme::checkpoint
