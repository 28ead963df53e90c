#include "trireme/parallel/embedding/row_optimizer.h"

#include <cstring>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/gradients.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;
using Rows = std::vector<int64_t>;

constexpr int64_t kRows = 9, kWidth = 5;

// Every row, those without a gradient with zeros: what an update of the whole table is.
void update_whole(RowOptimizer& optimizer, const Rows& rows, const at::Tensor& gradients) {
  Rows every;
  for (int64_t row = 0; row < kRows; ++row) every.push_back(row);
  const at::Tensor whole = at::zeros({kRows, kWidth}, gradients.options());
  whole.index_copy_(0, at::tensor(rows, at::kLong), gradients);
  optimizer.update(every, whole.const_data_ptr());
}

Rows draw_rows(Draw& draw) {
  Rows rows;
  for (int64_t row = 0; row < kRows; ++row) {
    if (draw.below(3) == 0) rows.push_back(row);
  }
  return rows;
}

TEST(RowOptimizer, AdamHasTheBitsOfUpdatesOfTheWholeTable) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Draw draw(1);
    const RowOptimizerConfig config{.rule = RowRule::kAdam};
    const at::Tensor initial = values({kRows, kWidth}, 0.3, 1, dtype);
    const at::Tensor some = initial.clone(), all = initial.clone();
    RowOptimizer by_rows(config, some), whole(config, all);
    for (int step = 0; step < 40; ++step) {
      const double rate = 0.1 / (1 + step);
      by_rows.begin_step(rate);
      whole.begin_step(rate);
      const Rows rows = draw_rows(draw);
      const at::Tensor gradients = values({std::ssize(rows), kWidth}, 0.1 * step + 0.2, 1, dtype);
      by_rows.update(rows, gradients.const_data_ptr());
      update_whole(whole, rows, gradients);
      // Reading a row brings it up to date, no matter how often.
      const Rows read = draw_rows(draw);
      by_rows.catch_up(read);
      for (const int64_t row : read) assert_same_bits(some[row], all[row], "a row that is read");
      if (step % 17 == 16) by_rows.catch_up_all();
    }
    by_rows.catch_up_all();
    assert_same_bits(some, all, "weights");
    for (size_t i = 0; i < 2; ++i) {
      assert_same_bits(by_rows.states()[i].values, whole.states()[i].values, "state");
    }
  }
}

// Also after its states were saved and loaded.
TEST(RowOptimizer, AdamGoesOnFromLoadedStates) {
  const RowOptimizerConfig config{.rule = RowRule::kAdam};
  const at::Tensor w = values({kRows, kWidth}, 0.3);
  RowOptimizer first(config, w);
  const at::Tensor gradients = values({2, kWidth}, 0.7);
  const auto step = [&](RowOptimizer& optimizer, const Rows& rows) {
    optimizer.begin_step(0.1);
    optimizer.update(rows, gradients.const_data_ptr());
  };
  step(first, {0, 4});
  step(first, {4, 7});
  first.catch_up_all();
  const at::Tensor copy = w.clone();
  RowOptimizer second(config, copy);
  for (size_t i = 0; i < 2; ++i) second.states()[i].values.copy_(first.states()[i].values);
  second.set_num_steps(first.num_steps());
  for (const Rows& rows : {Rows{1, 2}, Rows{0, 2}}) {
    step(first, rows);
    step(second, rows);
  }
  first.catch_up_all();
  second.catch_up_all();
  EXPECT_EQ(second.num_steps(), 4);
  assert_same_bits(copy, w, "weights");
}

TEST(RowOptimizer, OtherRulesLeaveUnusedRowsAlone) {
  for (const RowRule rule :
       {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kRowWiseAdaGrad, RowRule::kLazyAdam}) {
    const at::Tensor initial = values({kRows, kWidth}, 0.3), w = initial.clone();
    RowOptimizer optimizer({.rule = rule}, w);
    EXPECT_FALSE(optimizer.catches_up());
    const at::Tensor gradients = values({1, kWidth}, 0.7);
    for (const int64_t row : {3, 5}) {
      optimizer.begin_step(0.1);
      optimizer.update(Rows{row}, gradients.const_data_ptr());
    }
    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(w[row].equal(initial[row]), row != 3 && row != 5);
    }
    EXPECT_EQ(optimizer.num_steps(), 2);
  }
}

TEST(RowOptimizer, KeepsOneNumberPerRowForRowWiseAdaGrad) {
  const at::Tensor w = at::zeros({2, 4});
  RowOptimizer optimizer({.rule = RowRule::kRowWiseAdaGrad, .initial_accumulator = 2}, w);
  ASSERT_EQ(optimizer.states().size(), 1U);
  const at::Tensor sum = optimizer.states()[0].values;
  const at::Tensor gradient = at::tensor({1.f, 3.f, 3.f, 1.f});
  optimizer.begin_step(1);
  optimizer.update(Rows{1}, gradient.const_data_ptr());
  assert_same_bits(sum, at::tensor({2.f, 7.f}), "accumulator");
}

TEST(RowOptimizer, RefusesNumbersOutsideTheirRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  check_optimizer({});
  EXPECT_THROW(check_optimizer({.learning_rate = -1}), ConfigError);
  EXPECT_THROW(check_optimizer({.learning_rate = nan}), ConfigError);
  EXPECT_THROW(check_optimizer({.beta1 = 1}), ConfigError);
  EXPECT_THROW(check_optimizer({.beta2 = nan}), ConfigError);
  EXPECT_THROW(check_optimizer({.epsilon = 0}), ConfigError);
  EXPECT_THROW(check_optimizer({.initial_accumulator = -1}), ConfigError);
}

// Rows that come later have the bits of rows that were there from the start.
TEST(RowOptimizer, MakesRoomForRowsThatComeLater) {
  for (const RowRule rule : {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kRowWiseAdaGrad,
                             RowRule::kLazyAdam, RowRule::kAdam}) {
    const RowOptimizerConfig config{.rule = rule, .initial_accumulator = 0.5};
    const at::Tensor initial = at::arange(kRows * kWidth, at::kFloat).view({kRows, kWidth});
    const at::Tensor whole = initial.clone(), growing = initial.narrow(0, 0, 2).clone();
    RowOptimizer expected(config, whole), actual(config, growing);
    const at::Tensor gradients = initial.sin();
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        actual.resize(kRows);
        std::vector<std::byte> image(static_cast<size_t>(actual.image_bytes()));
        for (int64_t row = 2; row < kRows; ++row) {
          std::memcpy(image.data(), initial[row].const_data_ptr(), kWidth * sizeof(float));
          actual.begin_image(image.data());
          actual.load_row(row, image.data());
        }
      }
      for (RowOptimizer* const each : {&expected, &actual}) {
        each->begin_step(0.1);
        const Rows rows = step < 2 ? Rows{1} : Rows{0, 5, 8};
        each->update(rows, gradients.const_data_ptr());
      }
    }
    expected.catch_up_all();
    actual.catch_up_all();
    assert_same_bits(growing, whole, "weights");
    for (size_t i = 0; i < expected.states().size(); ++i) {
      assert_same_bits(actual.states()[i].values, expected.states()[i].values, "state");
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
