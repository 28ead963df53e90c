#include "trireme/parallel/data/part_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"

namespace trireme::parallel {
namespace {

TEST(PartMemory, MappedPartsAreZerosThatLiveAsLongAsTheirTensors) {
  const harness::TemporaryFolder folder;
  std::vector<at::Tensor> parts;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const int64_t elements : {0, 1, 1000, 5000}) {
      const auto home = make_mapped_parts(folder.path(), "weights");
      const at::Tensor part = home->make(elements, dtype);
      EXPECT_EQ(part.scalar_type(), dtype);
      EXPECT_TRUE(part.equal(at::zeros({elements}, dtype)));
      part.copy_(at::arange(elements));
      const at::Tensor half = part.narrow(0, elements / 2, elements - elements / 2);
      home->let_go(half);
      home->will_need(part);
      home->let_go(part);
      parts.push_back(half);
    }
  }
  for (const at::Tensor& half : parts) {  // their homes are gone
    const int64_t elements = half.storage_offset() + half.numel();
    EXPECT_TRUE(half.equal(at::arange(half.storage_offset(), elements).to(half.scalar_type())));
  }
}

}  // namespace
}  // namespace trireme::parallel
