#include "trireme/train/learner/outer_rule.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::train {
namespace {

constexpr int64_t kElements = 700;

at::Tensor drawn(harness::Draw& draw, at::ScalarType dtype) {
  at::Tensor values = at::empty({kElements}, at::kDouble);
  for (int64_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<double>(draw.below(20001) - 10000) / 3e5;
  }
  return values.to(dtype);
}

std::vector<parallel::Piece> pieces_of(at::ScalarType dtype) {
  const std::vector<parallel::ServedParameter> parameters{{"w", kElements, 1, dtype}};
  return parallel::key_ranges(parameters, std::vector<double>{1}, /*max_piece_bytes=*/1200);
}

TEST(OuterRule, PiecesChangeAsTheWholeDoesByTheOuterOptimizer) {
  for (const auto optimizer : {OuterOptimizer::kNesterov, OuterOptimizer::kSgd}) {
    for (const double momentum : {0.0, 0.9}) {
      OuterConfig outer;
      outer.method = OuterMethod::kDecoupled;
      outer.optimizer = optimizer;
      outer.momentum = momentum;
      harness::Draw draw(1);
      const at::Tensor anchor = drawn(draw, at::kDouble);
      const at::Tensor velocity = momentum == 0 ? at::Tensor() : drawn(draw, at::kDouble);
      const auto pieces = pieces_of(at::kDouble);
      ASSERT_GT(pieces.size(), 3U);
      const auto make = make_outer_pieces(outer, {{anchor, velocity}});
      std::vector<parallel::ServedPiece> made;
      for (size_t i = 0; i < pieces.size(); ++i) {
        made.push_back(make(pieces[i], static_cast<int64_t>(i)));
      }
      const at::Tensor whole = anchor.clone();
      const at::Tensor whole_velocity = velocity.defined() ? velocity.clone() : at::Tensor();
      for (int64_t step = 1; step <= 4; ++step) {
        const at::Tensor mean = drawn(draw, at::kDouble);
        for (size_t i = 0; i < pieces.size(); ++i) {
          const at::Tensor part =
              mean.narrow(0, pieces[i].first_row, pieces[i].rows).clone().view({-1, 1});
          made[i].update->apply(made[i].weights, {.values = part}, 1, step);
        }
        parallel::outer_step(whole, whole_velocity, mean.clone(), outer_options(outer));
      }
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto cut = [&](const at::Tensor& of) {
          return of.narrow(0, pieces[i].first_row, pieces[i].rows);
        };
        harness::assert_same_bits(made[i].weights.view({-1}), cut(whole).clone(), "weights");
        ASSERT_EQ(made[i].update->states().size(), velocity.defined() ? 1U : 0U);
        if (!velocity.defined()) continue;
        harness::assert_same_bits(made[i].update->states()[0].values, cut(whole_velocity).clone(),
                                  "momentum");
      }
      harness::assert_same_bits(anchor, drawn(*std::make_unique<harness::Draw>(1), at::kDouble),
                                "what they were made from");
    }
  }
}

TEST(OuterRule, WhatAPieceReadsAndTheResidualAreTheDifference) {
  for (const auto wire : {parallel::WireCode::kFloat32, parallel::WireCode::kInt8,
                          parallel::WireCode::kInt4, parallel::WireCode::kTwoBits}) {
    for (const double kept : {1.0, 0.25}) {
      OuterConfig outer;
      outer.method = OuterMethod::kDecoupled;
      outer.wire = wire;
      outer.kept = kept;
      harness::Draw draw(2);
      const auto pieces = pieces_of(at::kFloat);
      const auto make = make_outer_pieces(outer, {{drawn(draw, at::kFloat), {}}});
      const at::Tensor difference = drawn(draw, at::kFloat);
      const at::Tensor before = loses(outer) ? drawn(draw, at::kFloat) : at::Tensor();
      const at::Tensor residual = before.defined() ? before.clone() : at::Tensor();
      for (size_t i = 0; i < pieces.size(); ++i) {
        const parallel::Piece& piece = pieces[i];
        const auto made = make(piece, static_cast<int64_t>(i));
        const at::Tensor payload =
            outer_payload(outer, difference, residual, piece.first_row, piece.rows);
        const auto cut = [&](const at::Tensor& of) {
          return of.narrow(0, piece.first_row, piece.rows);
        };
        const at::Tensor read = made.update->read_difference(piece, payload).view({-1});
        if (!loses(outer)) {
          harness::assert_same_bits(read, cut(difference).clone(), "read");
        } else {
          EXPECT_LT(payload.numel(), piece.num_bytes());
          harness::assert_close(read + cut(residual), cut(difference) + cut(before), 1e-6, 1e-7,
                                "read and left");
        }
        EXPECT_THROW((void)made.update->read_difference(piece, payload.narrow(0, 1, 3)),
                     ConfigError);
        EXPECT_THROW((void)made.update->read_difference(piece, at::Tensor()), ConfigError);
        const at::Tensor bad = at::full_like(payload, 255);  // NaN in fp32, and as a scale
        EXPECT_THROW((void)made.update->read_difference(piece, bad), ConfigError);
      }
    }
  }
}

TEST(OuterRule, OnlyMethodsWithAnOptimizerHaveOne) {
  OuterConfig outer;
  outer.method = OuterMethod::kAverage;
  EXPECT_EQ(outer_options(outer).learning_rate, 1);
  EXPECT_EQ(outer_options(outer).momentum, 0);
  outer.method = OuterMethod::kDecoupled;
  EXPECT_EQ(outer_options(outer).learning_rate, 0.7);
  EXPECT_EQ(outer_options(outer).momentum, 0.9);
  EXPECT_TRUE(outer_options(outer).nesterov);
}

}  // namespace
}  // namespace trireme::train
