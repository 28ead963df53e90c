#include "trireme/parallel/data/gradient_reducer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/bucket_plan.h"

namespace trireme::parallel {
namespace {

at::Tensor gradient(int rank, int64_t microbatch, size_t parameter, const at::Tensor& like) {
  const double seed =
      rank * 100 + static_cast<double>(microbatch) * 10 + static_cast<double>(parameter);
  return ((at::arange(like.numel(), at::kDouble) + seed) * 0.7).sin().view(like.sizes()).to(like);
}

// Parameters in 26 buckets of up to 6400 elements, cut among so many ranks.
struct Problem {
  explicit Problem(int num_ranks, at::ScalarType dtype = at::kFloat)
      : parameters{at::zeros({200, 32}, dtype), at::zeros({7}, dtype)} {
    for (int i = 0; i < 25; ++i) parameters.push_back(at::zeros({64, 64}, dtype));
    for (at::Tensor& p : parameters) p.requires_grad_();
    buckets = make_buckets(parameters, 5000 * static_cast<int64_t>(c10::elementSize(dtype)));
    cuts = partition(buckets, parameters, {.num_ranks = num_ranks});
    for (const Bucket& bucket : buckets) pointers.push_back(&bucket);
  }
  std::vector<at::Tensor> parameters;
  std::vector<Bucket> buckets;
  std::vector<std::vector<int64_t>> cuts;
  std::vector<const Bucket*> pointers;
};

// Gives the reducer a microbatch, in which parameter 1 may have no gradient.
void run_microbatch(GradientReducer& reducer, Problem& problem, int rank, int64_t microbatch,
                    bool has_second) {
  reducer.begin_microbatch();
  for (size_t p = 0; p < problem.parameters.size(); ++p) {  // in the order of the buckets
    if (p == 1 && !has_second) continue;
    at::Tensor& parameter = problem.parameters[p];
    parameter.mutable_grad() = gradient(rank, microbatch, p, parameter).detach();
    reducer.on_gradient(p);
    EXPECT_FALSE(parameter.grad().defined());
  }
  reducer.end_microbatch();
}

// In a microbatch a place is given out once, while the bucket holds nothing there. What lies in it
// already is not copied; what comes from elsewhere, as a sum of two uses does, is.
TEST(GradientReducer, AGradientMayBeWrittenToItsPlace) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    Problem problem(1);
    GradientReducer reducer(problem.parameters, problem.pointers, problem.cuts, {nullptr, &group},
                            {});
    reducer.begin(2);
    for (int64_t j = 0; j < 2; ++j) {
      reducer.begin_microbatch();
      for (size_t p = 0; p < problem.parameters.size(); ++p) {
        at::Tensor& parameter = problem.parameters[p];
        const at::Tensor value = gradient(group.rank(), j, p, parameter).detach();
        at::Tensor place = reducer.place_of(p);
        ASSERT_EQ(place.defined(), j == 0);
        EXPECT_FALSE(reducer.place_of(p).defined());
        if (!place.defined() || p == 3) {
          parameter.mutable_grad() = value;
        } else {
          parameter.mutable_grad() = place.copy_(value);
        }
        reducer.on_gradient(p);
        EXPECT_FALSE(reducer.place_of(p).defined());
      }
      reducer.end_microbatch();
    }
    for (size_t b = 0; b < problem.buckets.size(); ++b) {
      const Bucket& bucket = problem.buckets[b];
      const auto sums = view_parameters(bucket, reducer.part(b), problem.parameters);
      for (size_t i = 0; i < sums.size(); ++i) {
        const size_t p = bucket.parameters[i];
        at::Tensor expected = at::zeros_like(sums[i]);
        for (int rank = 0; rank < 2; ++rank) {
          expected += gradient(rank, 0, p, sums[i]) + gradient(rank, 1, p, sums[i]);
        }
        EXPECT_TRUE(at::equal(sums[i], expected)) << p;
      }
    }
  });
}

// Ranks before microbatches: the sum over ranks in rank order, and these sums in their order. The
// oracle adds in this order, so that bits are equal, at any stage.
TEST(GradientReducer, RankFirstAddsInTheOrderOfItsName) {
  constexpr int kRanks = 3;
  for (const auto& [dtype, wide] : {std::pair(at::kDouble, false),
                                    {at::kFloat, false},
                                    {at::kBFloat16, false},
                                    {at::kBFloat16, true}}) {
    for (const bool is_sharded : {false, true}) {
      for (const bool overlap : {false, true}) {
        harness::run_ranks(kRanks, [&](comm::Communicator& group) {
          Problem problem(is_sharded ? kRanks : 1, dtype);
          GradientGroups groups;
          (is_sharded ? groups.shard : groups.replica) = &group;
          GradientReducer reducer(problem.parameters, problem.pointers, problem.cuts, groups,
                                  {.overlap = overlap, .rank_first = true, .add_in_fp32 = wide});
          for (const int64_t microbatches : {1, 3, 4}) {
            // Parameter 1 has no gradient once, and its bucket then holds up those behind it.
            const auto has_second = [&](int64_t j) { return microbatches < 4 || j != 1; };
            reducer.begin(microbatches);
            for (int64_t j = 0; j < microbatches; ++j) {
              run_microbatch(reducer, problem, group.rank(), j, has_second(j));
            }
            for (size_t b = 0; b < problem.buckets.size(); ++b) {
              const Bucket& bucket = problem.buckets[b];
              const auto rank = static_cast<size_t>(groups.shard_rank());
              const int64_t begin = problem.cuts[b][rank];
              at::Tensor mine = at::zeros({bucket.num_elements}, reducer.part(b).options());
              at::Tensor used = at::zeros({bucket.num_elements}, at::kBool);
              const int64_t size = problem.cuts[b][rank + 1] - begin;
              mine.narrow(0, begin, size).copy_(reducer.part(b));
              const auto views = view_parameters(bucket, mine, problem.parameters);
              used.narrow(0, begin, size).fill_(true);
              const auto marks = view_parameters(bucket, used, problem.parameters);
              for (size_t i = 0; i < views.size(); ++i) {
                const size_t p = bucket.parameters[i];
                at::Tensor expected;
                for (int64_t j = 0; j < microbatches; ++j) {
                  // Ranks are summed in fp32 at least, and rounded once to what is sent.
                  const at::Tensor like = problem.parameters[p].detach();
                  at::Tensor sum = at::zeros_like(like, at::promote_types(dtype, at::kFloat));
                  for (int r = 0; r < kRanks && (p != 1 || has_second(j)); ++r) {
                    sum += gradient(r, j, p, like);
                  }
                  sum = sum.to(dtype);
                  if (wide) sum = sum.to(at::kFloat);
                  expected = expected.defined() ? expected + sum : sum;
                }
                EXPECT_TRUE(views[i]
                                .where(marks[i], at::zeros_like(views[i]))
                                .equal(expected.where(marks[i], at::zeros_like(expected))))
                    << p << " of " << dtype << ", sharded " << is_sharded;
              }
            }
            // Three buckets are on their way and one fills, beside the parts that they are summed
            // into; the pool's buffers have up to twice the size. All buckets have 108 thousand
            // elements.
            if (microbatches == 4) continue;
            const int64_t bucket = 6400 * static_cast<int64_t>(c10::elementSize(dtype));
            EXPECT_LE(reducer.peak_transient_bytes(), 2 * (4 * bucket + 4 * bucket / 3));
          }
          EXPECT_EQ(reducer.accumulating_bytes(4), 0);
        });
      }
    }
  }
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
            reducer.begin_microbatch();
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
        // Whole buckets, two sums of them in a tree, and the part unless that lies in them.
        int64_t whole = 0;
        for (const Bucket& bucket : buckets) whole += 4 * bucket.num_elements;
        EXPECT_EQ(reducer.accumulating_bytes(4), tree        ? 2 * whole + reducer.resident_bytes()
                                                 : keep_part ? whole + reducer.resident_bytes()
                                                             : whole);
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
    reducer.begin_microbatch();
    const_cast<at::Tensor&>(parameters[0]).mutable_grad() = at::ones({3});
    reducer.on_gradient(0);
    const_cast<at::Tensor&>(parameters[0]).mutable_grad() = at::ones({3});
    EXPECT_THROW(reducer.on_gradient(0), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::parallel
