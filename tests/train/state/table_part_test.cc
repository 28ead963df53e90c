#include "trireme/train/state/step_part.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::train {
namespace {

// Each rank has the rule's number for every row. Their parts differ in size, so some ranks have it
// in memory and others on the disk.
TEST(TablePart, ComparesOnlyWhatEveryRankHasInMemory) {
  const harness::TemporaryFolder folder;
  // A row takes 12 bytes with two columns and 8 with one.
  for (const auto& [num_ranks, limit] : {std::pair{2, 900}, {4, 700}}) {
    for (const int64_t memory : {0, limit}) {
      harness::run_ranks(num_ranks, [&](comm::Communicator& group) {
        parallel::EmbeddingTables tables(
            {{.name = "t",
              .rows = 100,
              .width = 3,
              .placement = mesh::Placement::sharded(1),
              .memory_bytes = memory,
              .folder = folder.path().string()}},
            &group, {.optimizer = {.rule = parallel::RowRule::kRowWiseAdaGrad}});
        const std::vector<parallel::EmbeddingTables*> all{&tables};
        const std::vector<NamedTensor> found = replicated_tables(all, group);
        ASSERT_EQ(found.size(), memory == 0 ? 1U : 0U);
        EXPECT_NO_THROW(check_replicas(found, group, group.rank()));
      });
    }
  }
}

}  // namespace
}  // namespace trireme::train
