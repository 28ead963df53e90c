#include "trireme/parallel/embedding/disk/disk_rows.h"

#include <cstring>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"

namespace trireme::parallel::inline internal {
namespace {

// Rows of a number and a pair, first 10 r and (10 r + 1, 10 r + 2).
TEST(StoredImages, AreSomeNumbersOfRowsInAnyOrder) {
  const harness::TemporaryFolder folder;
  constexpr int64_t kBytes = 3 * sizeof(double);
  std::vector<double> slots(2 * 3);
  const auto rows = std::make_shared<DiskRows>(
      DiskRowsOptions{.table = "t", .num_rows = 9, .num_slots = 2, .folder = folder.path()},
      RowImage{.num_bytes = kBytes,
               .save =
                   [&](int64_t slot, std::byte* to) {
                     std::memcpy(to, &slots[3 * static_cast<size_t>(slot)], kBytes);
                   },
               .load =
                   [&](int64_t slot, const std::byte* from) {
                     std::memcpy(&slots[3 * static_cast<size_t>(slot)], from, kBytes);
                   },
               .initial =
                   [](int64_t row, std::byte* to) {
                     for (int64_t i = 0; i < 3; ++i) {
                       const auto value = static_cast<double>(10 * row + i);
                       std::memcpy(to + 8 * i, &value, 8);
                     }
                   }});
  StoredImages numbers(rows, 0, at::empty({}, at::kDouble));
  StoredImages pairs(rows, 8, at::empty({2}, at::kDouble));
  EXPECT_TRUE(at::equal(numbers.read(3, 5), at::tensor({30.0, 40.0})));
  numbers.write(4, at::tensor({-1.0, -2.0}));
  const auto order = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{8, 4, 5});
  StoredImages some(rows, 0, at::empty({}, at::kDouble), order);
  EXPECT_TRUE(at::equal(some.read(0, 3), at::tensor({80.0, -1.0, -2.0})));
  EXPECT_TRUE(at::equal(some.read(1, 2), at::tensor({-1.0})));
  EXPECT_TRUE(at::equal(some.read(std::vector<int64_t>{0, 2}), at::tensor({80.0, -2.0})));
  EXPECT_TRUE(at::equal(pairs.read(std::vector<int64_t>{4, 7}),
                        at::tensor({41.0, 42.0, 71.0, 72.0}).view({2, 2})));
  EXPECT_EQ(pairs.read(2, 2).sizes(), (std::vector<int64_t>{0, 2}));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
