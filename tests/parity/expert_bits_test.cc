// What of a sparse model's step has the same bits in several layouts.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

class ExpertBits : public LayoutsTest {
 protected:
  static RunConfig sparse(std::vector<Override> overrides) {
    overrides.insert(overrides.begin(), {{"model.family", "mixtral"},
                                         {"model.experts", "5"},
                                         {"model.expert_width", "12"},
                                         {"model.shared_experts", "1"},
                                         {"model.balance_loss", "0.1"}});
    return config_of(overrides);
  }
};

// One of the experts copied, or all five.
TEST_F(ExpertBits, CopiesOfExpertsChangeNone) {
  struct Case {
    std::vector<Override> overrides;
    int ranks;
  };
  const std::vector<Case> cases = {
      {{{"parallel.expert", "2"}}, 2},
      {{{"parallel.expert", "2"}, {"parallel.zero", "3"}}, 4},
      {{{"parallel.expert", "4"}, {"parallel.zero", "1"}}, 4},
      {{{"parallel.expert", "3"}, {"parallel.expert_chunk", "5"}, {"train.global_batch", "9"}}, 3},
      {{{"parallel.expert", "2"}, {"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}},
       4},
      {{{"parallel.expert", "4"}, {"parallel.context", "2"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}},
       4},
      {{{"parallel.expert", "2"}, {"train.recompute", "full"}, {"model.capacity_factor", "1"}}, 2}};
  for (const char* precision : {"fp64", "fp32"}) {
    for (const Case& each : cases) {
      SCOPED_TRACE(describe(each.overrides) + precision);
      auto overrides = each.overrides;
      overrides.emplace_back("train.precision", precision);
      const StepOutcome expected = run(sparse(overrides), each.ranks);
      for (const char* copies : {"1", "5"}) {
        auto with_copies = overrides;
        with_copies.emplace_back("parallel.expert_replicas", copies);
        const StepOutcome actual = run(sparse(with_copies), each.ranks);
        expect_same_bits(actual, expected);
        EXPECT_NE(actual.counts, expected.counts) << "nothing was copied";
      }
    }
  }
}

// With one microbatch a rank. The rows of an expert are multiplied for each rank they come from,
// and the products added in the order of ranks: what data parallelism does with whole experts. With
// two ranks of four, those of each pair are added first.
TEST_F(ExpertBits, ExpertsOnAllRanksAreThoseOfDataParallelism) {
  for (const char* precision : {"fp64", "fp32"}) {
    for (const int ranks : {2, 3, 4}) {
      const auto at_degree = [&](int degree) {
        return run(sparse({{"train.precision", precision},
                           {"train.global_batch", std::to_string(ranks)},
                           {"parallel.expert", std::to_string(degree)}}),
                   ranks);
      };
      const StepOutcome whole = at_degree(1);
      for (int degree = 2; degree <= ranks; ++degree) {
        if (ranks % degree != 0) continue;
        SCOPED_TRACE(concat(precision, ", expert = ", degree, " on ", ranks, " ranks"));
        StepOutcome split = at_degree(degree);
        EXPECT_EQ(split.loss, whole.loss);
        EXPECT_EQ(split.counts, whole.counts);
        for (const auto& [name, gradient] : whole.gradients) {
          if (degree < ranks && name.find(".experts.") != std::string::npos) continue;
          harness::assert_same_bits(split.gradients.at(name), gradient, name);
        }
      }
    }
  }
}

// What is compressed has the bits of the same rule without the axis; experts that one rank alone
// has are not sent, and so not rounded.
TEST_F(ExpertBits, CompressionIsThatOfDataParallelism) {
  const auto with = [&](const char* rule, const char* degree) {
    return run(sparse({{"train.precision", "fp32"},
                       {"train.global_batch", "4"},
                       {"train.compression", rule},
                       {"parallel.expert", degree}}),
               4);
  };
  for (const char* rule : {"bf16", "fp16", "int8"}) {
    const StepOutcome whole = with(rule, "1"), exact = with("none", "1");
    for (const char* degree : {"2", "4"}) {
      SCOPED_TRACE(concat(rule, ", expert = ", degree));
      const StepOutcome split = with(rule, degree);
      EXPECT_NE(split.norm, exact.norm);
      for (const auto& [name, gradient] : whole.gradients) {
        const bool is_expert = name.find(".experts.") != std::string::npos;
        if (!is_expert) {
          harness::assert_same_bits(split.gradients.at(name), gradient, name);
        } else if (std::string(degree) == "4") {
          harness::assert_same_bits(split.gradients.at(name), exact.gradients.at(name), name);
        } else {
          // Each of two addends and their sum is rounded to 8 bits of a block's largest element,
          // and an addend may be larger than the sum.
          const double largest = exact.gradients.at(name).abs().max().item<double>();
          harness::assert_close(split.gradients.at(name), exact.gradients.at(name), 0,
                                8 * 0x1p-8 * largest, name);
          EXPECT_FALSE(split.gradients.at(name).equal(exact.gradients.at(name)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::train
