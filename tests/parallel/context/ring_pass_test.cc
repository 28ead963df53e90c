#include "trireme/parallel/context/ring_attention.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

TEST(RingPass, EveryPieceComesByEveryRank) {
  for (const RingOptions& options :
       {RingOptions{}, RingOptions{.overlap = false}, RingOptions{.symmetric = false}}) {
    for (int p = 1; p <= 5; ++p) {
      harness::run_ranks(p, [&](comm::Communicator& group) {
        std::vector<int64_t> sizes;
        for (int rank = 0; rank < p; ++rank) sizes.push_back((rank * 3) % 4 * 5);  // some empty
        RingPass ring(&group, sizes, at::kDouble, 7, options);
        if (p > 1) ring.room().fill_(group.rank());
        for (int step = 1; step < p; ++step) {
          ring.start();
          ring.finish();
          const int owner = ring.owner(step);
          EXPECT_EQ(owner, (group.rank() - step + p) % p);
          harness::assert_same_bits(ring.piece(), at::full({sizes[owner]}, owner, at::kDouble),
                                    "piece");
        }
        ring.end();
      });
    }
  }
}

TEST(RingPass, APieceMayBeReplacedBetweenHopsWhileOthersStillReadIt) {
  for (const RingOptions& options :
       {RingOptions{}, RingOptions{.overlap = false}, RingOptions{.symmetric = false}}) {
    for (int p = 2; p <= 5; ++p) {
      harness::run_ranks(p, [&](comm::Communicator& group) {
        // More than a message's buffers, so that it is lent.
        const std::vector<int64_t> sizes(p, 20001);
        RingPass ring(&group, sizes, at::kDouble, 7, options);
        ring.room().fill_(1 << group.rank());
        for (int step = 1; step < 3 * p; ++step) {
          ring.start();
          ring.finish();
          const at::Tensor in = ring.piece();
          EXPECT_EQ(in.min().item<double>(), in.max().item<double>());
          at::Tensor out = ring.room();
          at::add_out(out, in, at::ones({}, at::kDouble));
        }
        EXPECT_EQ(ring.piece()[20000].item<double>(), (1 << ring.owner(3 * p - 1)) + 3 * p - 1);
        ring.end();
      });
    }
  }
}

TEST(RingPass, WithoutAGroupIsARingOfOne) {
  const RingPass ring(nullptr, {4}, at::kFloat, 0, {});
  EXPECT_EQ(ring.size(), 1);
  EXPECT_EQ(ring.owner(0), 0);
}

TEST(RingPass, ARankThatFailsBetweenHopsTakesTheOthersWithIt) {
  EXPECT_THROW(harness::run_ranks(3,
                                  [](comm::Communicator& group) {
                                    RingPass ring(&group, {8, 8, 8}, at::kFloat, 0, {});
                                    ring.room().zero_();
                                    ring.start();
                                    if (group.rank() == 1) throw ConfigError("mine");
                                    ring.finish();
                                    ring.start();
                                    ring.finish();
                                  }),
               Error);
}

}  // namespace
}  // namespace trireme::parallel
