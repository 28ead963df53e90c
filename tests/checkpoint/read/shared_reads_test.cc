#include "trireme/checkpoint/read/host_reads.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/temporary_folder.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/c10d/gloo_ranks.h"
#endif

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class NobodyIsLost : public Peers {
 public:
  void check() const override {}
};

// A tensor of five chunks in one file, which every rank wants.
class SharedReadsTest : public ::testing::Test {
 protected:
  SharedReadsTest() {
    save_all(root_.path(), 1, {&w_, 1}, 1);
    manifest_ = read_manifest(folder());
  }
  fs::path folder() const { return root_ / "step-000001"; }

  // What rank `world.rank()` of them gets from a checkpoint in `folder`.
  at::Tensor read(const fs::path& folder, comm::Communicator& world, uint64_t batch_bytes) const {
    const mesh::Box whole{{0, 0}, {600, 1024}};
    const std::vector<WantedBoxes> ranks(static_cast<size_t>(world.size()), {{"w", whole}});
    const ReadPlan plan = plan_reads(manifest_, ranks, batch_bytes);
    Shards shards(folder, manifest_);
    const at::Tensor tensor = at::zeros({600, 1024}, at::kLong);
    read_shared(plan, shards, {{"w", {whole, tensor}}}, world, NobodyIsLost());
    return tensor;
  }

  harness::TemporaryFolder root_;
  const Global w_{"w", at::arange(600 * 1024, at::kLong).view({600, 1024}),
                  mesh::Layout({600, 1024}, {})};
  Manifest manifest_;
};

TEST_F(SharedReadsTest, EveryRankGetsTheTensorWhateverTheBatches) {
  const auto expect_w = [&](comm::Communicator& world) {
    for (const uint64_t batch_bytes : {1, 200'000, 1 << 20, 1 << 26})
      harness::assert_same_bits(read(folder(), world, batch_bytes), w_.tensor, "w");
  };
  for (const int size : {2, 3, 4}) harness::run_ranks(size, expect_w);
  harness::run_ranks(2, expect_w, {.zero_copy = false});
#ifdef TRIREME_HAVE_GLOO
  comm::run_gloo_ranks(3, expect_w);
#endif
}

// The rank without files fails, and the others end without waiting for it.
TEST_F(SharedReadsTest, ARankWhoseFileIsMissingStopsNobody) {
  const harness::TemporaryFolder empty;
  for (const int lost : {0, 1, 2}) {
    harness::run_ranks(3, [&](comm::Communicator& world) {
      const bool is_lost = world.rank() == lost;
      const std::string error =
          checkpoint_error([&] { read(is_lost ? empty.path() : folder(), world, 1 << 16); });
      if (is_lost) EXPECT_THAT(error, HasSubstr("No such file"));
      if (!is_lost) EXPECT_EQ(error, "");
      world.barrier()->wait();
    });
  }
}

}  // namespace
}  // namespace trireme::checkpoint
