#include "trireme/parallel/data/gradient_reducer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/partition.h"

namespace trireme::parallel {
namespace {

at::Tensor gradient(int rank, int64_t microbatch, size_t parameter, const at::Tensor& like) {
  const double seed =
      rank * 100 + static_cast<double>(microbatch) * 10 + static_cast<double>(parameter);
  return ((at::arange(like.numel(), at::kDouble) + seed) * 0.7).sin().view(like.sizes()).to(like);
}

// Two microbatches of made-up gradients; parameter 1 gets none in the second.
TEST(GradientReducer, PartsHoldTheSumsOverMicrobatchesAndRanks) {
  for (const bool keep_part : {false, true}) {
    for (const bool tree : {false, true}) {
      harness::run_ranks(3, [&](comm::Communicator& group) {
        std::vector<at::Tensor> parameters = {at::zeros({200, 32}), at::zeros({7}),
                                              at::zeros({64, 64})};
        for (at::Tensor& p : parameters) p.requires_grad_();
        const auto buckets = make_buckets(parameters, 20000);
        ASSERT_EQ(buckets.size(), 2u);
        const auto cuts = partition(buckets, parameters, {.num_ranks = 3});
        std::vector<const Bucket*> pointers;
        for (const Bucket& bucket : buckets) pointers.push_back(&bucket);
        GradientReducer reducer(
            parameters, pointers, cuts, {.shard = &group},
            {.keep_part_alone = keep_part, .tree = tree, .measure_squares = true});
        for (int step = 0; step < 2; ++step) {
          reducer.begin(2);
          double squares = 0;
          for (int64_t microbatch = 0; microbatch < 2; ++microbatch) {
            for (size_t p = 3; p-- > 0;) {
              if (microbatch == 1 && p == 1) continue;
              parameters[p].mutable_grad() =
                  gradient(group.rank(), microbatch, p, parameters[p]).detach();
              squares += parameters[p].grad().to(at::kDouble).square().sum().item<double>();
              reducer.on_gradient(p);
              EXPECT_FALSE(parameters[p].grad().defined());
            }
            reducer.end_microbatch();
          }
          // Norms of up to 6400 elements in fp32.
          EXPECT_NEAR(reducer.microbatch_squares(), squares, 6400 * 6e-8 * squares);
          for (size_t b = 0; b < buckets.size(); ++b) {
            at::Tensor whole = at::zeros({buckets[b].num_elements});
            at::Tensor used = at::zeros_like(whole, at::kBool);  // between them is anything
            const auto views = view_parameters(buckets[b], whole, parameters);
            for (at::Tensor view : view_parameters(buckets[b], used, parameters)) view.fill_(true);
            for (size_t i = 0; i < views.size(); ++i) {
              const size_t p = buckets[b].parameters[i];
              for (int rank = 0; rank < 3; ++rank) {
                views[i].add_(gradient(rank, 0, p, views[i]));
                if (p != 1) views[i].add_(gradient(rank, 1, p, views[i]));
              }
            }
            const auto rank = static_cast<size_t>(group.rank());
            const int64_t begin = cuts[b][rank];
            // Six terms of at most 1 in another order: five roundings of sums up to 6.
            const int64_t size = cuts[b][rank + 1] - begin;
            harness::assert_close(
                reducer.part(b).where(used.narrow(0, begin, size), at::zeros({size})),
                whole.narrow(0, begin, size), 0, 5 * 6 * 6e-8, "part");
          }
        }
        EXPECT_EQ(reducer.resident_bytes() > 30000,
                  !reducer.microbatches_left() && !keep_part && !tree);
      });
    }
  }
}

TEST(GradientReducer, TwoGradientsOfOneParameterInABackwardAreRefused) {
  harness::run_ranks(1, [](comm::Communicator& group) {
    const std::vector<at::Tensor> parameters = {at::zeros({3}).requires_grad_()};
    const auto buckets = make_buckets(parameters, 100);
    const Bucket* bucket = buckets.data();
    GradientReducer reducer(parameters, {&bucket, 1}, {{0, 16}}, {.replica = &group}, {});
    reducer.begin(1);
    const_cast<at::Tensor&>(parameters[0]).mutable_grad() = at::ones({3});
    reducer.on_gradient(0);
    const_cast<at::Tensor&>(parameters[0]).mutable_grad() = at::ones({3});
    EXPECT_THROW(reducer.on_gradient(0), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::parallel
