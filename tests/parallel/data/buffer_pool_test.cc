#include "trireme/parallel/data/buffer_pool.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

at::Tensor ordinary(int64_t elements, const at::TensorOptions& options) {
  return at::empty({elements}, options);
}

TEST(BufferPool, GivesMemoryAgainOnceItsLastViewIsGone) {
  BufferPool pool(ordinary);
  at::Tensor first = pool.take(100, at::kFloat);
  const void* memory = first.data_ptr();
  at::Tensor view = first.narrow(0, 3, 5);
  first.reset();
  EXPECT_NE(pool.take(100, at::kFloat).data_ptr(), memory);
  view.reset();
  // Two are idle now; one of them is the first.
  const at::Tensor a = pool.take(100, at::kFloat);
  const at::Tensor b = pool.take(100, at::kFloat);
  EXPECT_TRUE(a.data_ptr() == memory || b.data_ptr() == memory);
  EXPECT_NE(a.data_ptr(), b.data_ptr());
}

TEST(BufferPool, ASimilarSizeIsReusedAndOtherDtypesAreNot) {
  BufferPool pool(ordinary);
  const at::Tensor large = pool.take(100, at::kFloat);
  pool.take(50, at::kFloat);  // so that 200 bytes may be idle
  const void* memory = pool.take(10, at::kFloat).data_ptr();
  EXPECT_EQ(pool.take(8, at::kInt).scalar_type(), at::kInt);
  const at::Tensor smaller = pool.take(7, at::kFloat);
  EXPECT_EQ(smaller.numel(), 7);
  EXPECT_EQ(smaller.data_ptr(), memory);
  EXPECT_EQ(pool.take(0, at::kFloat).numel(), 0);
}

TEST(BufferPool, NeverHoldsMuchMoreThanWasOutAtOneTime) {
  BufferPool pool(ordinary);
  int64_t most = 0;
  // As a model's units: two at a time, all of other sizes.
  at::Tensor before;
  for (const int64_t elements : {8000, 1000, 3000, 900, 1010, 7000, 100, 500, 8000, 20}) {
    const at::Tensor now = pool.take(elements, at::kFloat);
    most = std::max(most, pool.held_bytes());
    before = now;
  }
  EXPECT_GE(most, pool.peak_bytes());
  EXPECT_LE(most, pool.peak_bytes() * 3 / 2);
}

TEST(BufferPool, CountsWhatIsOutAtOneTime) {
  BufferPool pool(ordinary);
  {
    const at::Tensor a = pool.take(100, at::kFloat);
    const at::Tensor b = pool.take(50, at::kDouble);
  }
  const at::Tensor c = pool.take(100, at::kFloat);
  EXPECT_EQ(pool.peak_bytes(), 800);
}

TEST(BufferPool, TensorsMayOutliveIt) {
  at::Tensor tensor;
  {
    BufferPool pool(ordinary);
    tensor = pool.take(10, at::kFloat);
  }
  EXPECT_EQ(tensor.fill_(2).sum().item<float>(), 20);
}

}  // namespace
}  // namespace trireme::parallel
