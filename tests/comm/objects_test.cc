#include "trireme/comm/objects.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::comm {
namespace {

std::string text_of(int rank, size_t scale) {
  std::string text(static_cast<size_t>(rank) * scale, static_cast<char>('a' + rank));
  if (rank == 2) text += std::string("\0\xff", 2);
  return text;
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

}  // namespace
}  // namespace trireme::comm
