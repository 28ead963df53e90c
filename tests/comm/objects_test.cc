#include "trireme/comm/objects.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

std::string text_of(int rank, size_t scale) {
  std::string text(static_cast<size_t>(rank) * scale, static_cast<char>('a' + rank));
  if (rank == 2) text += std::string("\0\xff", 2);
  return text;
}

TEST(Objects, AllGatherNumbersBringsEveryRanks) {
  for (int size = 1; size <= 4; ++size) {
    harness::run_ranks(size, [&](Communicator& group) {
      const auto numbers = all_gather_numbers(group, 10 - group.rank());
      ASSERT_EQ(numbers.size(), static_cast<size_t>(size));
      for (int r = 0; r < size; ++r) EXPECT_EQ(numbers[static_cast<size_t>(r)], 10 - r);
    });
  }
}

TEST(Objects, AllGatherStringsBringsUnevenAndEmptyTexts) {
  for (int size = 1; size <= 4; ++size) {
    for (const size_t scale : {0, 1, 17, 300000}) {
      harness::run_ranks(size, [&](Communicator& group) {
        const auto texts = all_gather_strings(group, text_of(group.rank(), scale));
        ASSERT_EQ(texts.size(), static_cast<size_t>(group.size()));
        for (int r = 0; r < group.size(); ++r) EXPECT_EQ(texts[r], text_of(r, scale));
      });
    }
  }
}

TEST(Objects, GatherStringsBringsThemToTheRootAlone) {
  for (int size = 1; size <= 4; ++size) {
    harness::run_ranks(size, [&](Communicator& group) {
      for (int root = 0; root < size; ++root) {
        const auto texts = gather_strings(group, text_of(group.rank(), 1000), root);
        ASSERT_EQ(texts.size(), group.rank() == root ? static_cast<size_t>(size) : 0);
        for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], text_of(r, 1000));
      }
    });
  }
}

TEST(Objects, BroadcastStringReplacesLongerShorterAndEmptyTexts) {
  harness::run_ranks(4, [](Communicator& group) {
    for (int root = 0; root < 4; ++root) {
      EXPECT_EQ(broadcast_string(group, text_of(group.rank(), 21), root), text_of(root, 21));
    }
  });
}

TEST(Objects, ALengthThatCannotBeIsAnErrorOfItsRank) {
  for (const int64_t length : {int64_t{-1}, (int64_t{1} << 30) + 1, int64_t{1} << 62}) {
    const std::string expected = concat("rank 1 of group world announces a text of ", length);
    const at::Tensor word = at::full({1}, length, at::kLong);
    harness::run_ranks(2, [&](Communicator& group) {
      if (group.rank() == 0) {
        EXPECT_ERROR(CommError, all_gather_strings(group, "abc"), expected);
      } else {
        group.all_gather({at::zeros({1}, at::kLong), at::zeros({1}, at::kLong)}, word)->wait();
        EXPECT_ERROR(CommError, group.barrier(), expected);
      }
    });
    harness::run_ranks(2, [&](Communicator& group) {
      if (group.rank() == 0) {
        EXPECT_ERROR(CommError, broadcast_string(group, "", 1), expected);
      } else {
        group.broadcast(word.clone(), 1)->wait();
        EXPECT_ERROR(CommError, group.barrier(), expected);
      }
    });
  }
}

}  // namespace
}  // namespace trireme::comm
