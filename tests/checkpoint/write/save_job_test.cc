#include "trireme/checkpoint/write/save_job.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What every rank's save threw; "" for none.
std::vector<std::string> errors_of(int ranks,
                                   const std::function<void(comm::Communicator&)>& save_on) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  harness::run_ranks(ranks, [&](comm::Communicator& world) {
    try {
      save_on(world);
    } catch (const Error& error) {
      errors[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return errors;
}

TEST(SaveJob, ReplicasThatDifferAreRefusedNamingTheRank) {
  for (const int bad : {0, 2}) {
    const harness::TemporaryFolder root;
    const auto errors = errors_of(4, [&](comm::Communicator& world) {
      at::Tensor weight = at::arange(6000, at::kFloat).view({60, 100});
      if (world.rank() == bad) weight[59][99] = 7;
      const std::vector<Entry> entries{{"same", at::ones({5}), mesh::Layout({5}, {{"data", 4}})},
                                       {"weight", weight, mesh::Layout({60, 100}, {{"data", 4}})}};
      save(root.path(), 1, entries, "{}", world, kFast);
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, AllOf(HasSubstr("the checkpoint is refused: replicas differ: \"weight\""),
                               HasSubstr(concat("on rank ", bad, ";"))));
    }
    EXPECT_THAT(list(root.path()), IsEmpty());
  }
}

// Two halves of a tensor, each on two ranks.
TEST(SaveJob, ReplicasOfShardsAreComparedWithinTheirBox) {
  const harness::TemporaryFolder root;
  const mesh::Layout layout({4}, {{"shard", 2}, {"data", 2}},
                            {mesh::Placement::sharded(0), mesh::Placement::replicated()});
  const auto save_with = [&](int bad, const SaveOptions& options) {
    return errors_of(4, [&](comm::Communicator& world) {
      at::Tensor half = at::full({2}, world.rank() / 2, at::kFloat);
      if (world.rank() == bad) half[1] = 9;
      const std::vector<Entry> entries{{"w", half, layout}};
      save(root.path(), 1, entries, "{}", world, options);
    });
  };
  EXPECT_THAT(save_with(-1, kFast), ::testing::Each(""));
  EXPECT_THAT(save_with(3, kFast),
              ::testing::Each(AllOf(HasSubstr("\"w\""), HasSubstr("there is no majority"))));
  SaveOptions trusting = kFast;
  trusting.compare_replicas = false;
  EXPECT_THAT(save_with(3, trusting), ::testing::Each(""));
}

TEST(SaveJob, NonfiniteValuesAreRefusedUnlessAllowed) {
  const harness::TemporaryFolder root;
  SaveOptions strict = kFast;
  strict.allow_nonfinite = false;
  const auto save_with = [&](const SaveOptions& options) {
    return errors_of(2, [&](comm::Communicator& world) {
      at::Tensor half = at::ones({2});
      if (world.rank() == 1) half[0] = std::numeric_limits<float>::infinity();
      const mesh::Layout layout({4}, {{"data", 2}}, {mesh::Placement::sharded(0)});
      const std::vector<Entry> entries{{"w", half, layout}};
      save(root.path(), 1, entries, "{}", world, options);
    });
  };
  EXPECT_THAT(save_with(strict), ::testing::Each(AllOf(HasSubstr("rank 1"), HasSubstr("\"w\""),
                                                       HasSubstr("allow_nonfinite"))));
  EXPECT_THAT(list(root.path()), IsEmpty());
  EXPECT_THAT(save_with(kFast), ::testing::Each(""));
}

}  // namespace
}  // namespace trireme::checkpoint
