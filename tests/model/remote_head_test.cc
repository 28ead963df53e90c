// The last layer of a teacher that is not where its student is: brought together on the teacher's
// ranks, and taken apart on the student's.
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/model/small_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

const parallel::DistillationOptions kDistill = {.temperature = 2, .weight = 0.6};

ModelConfig teacher_config(const std::string& family) {
  ModelConfig config = small_config(family, 0);
  config.width = 24;
  config.tied_embedding = family == "llama";
  if (family == "llama") config.logits_softcap = 3;
  return config;
}

at::Tensor tokens_BT() { return at::arange(16, at::kLong).remainder(11).view({2, 8}); }
at::Tensor targets_BT() { return tokens_BT().roll(-1, 1); }

// What a student has, on one of the ranks of `axes`.
double loss_beside(const ModelAxes& axes, const parallel::LinearHead& whole) {
  const at::NoGradGuard guard;
  const auto student = make_model(small_config("llama", 0), 3, at::kDouble, axes);
  const at::Tensor hidden = student->forward_part({.tokens_BT = tokens_BT()}).hidden;
  return student->distillation_loss(hidden, targets_BT(), {}, student->own_part(whole), kDistill)
      .sum.item<double>();
}

class RemoteHead : public testing::TestWithParam<const char*> {
 protected:
  RemoteHead() {
    const at::NoGradGuard guard;
    teacher_ = make_model(teacher_config(GetParam()), 4, at::kDouble);
    whole_ = teacher_->whole_head();
    whole_.x = teacher_->forward_part({.tokens_BT = tokens_BT()}).hidden;
  }

  harness::OneThread one_thread_;
  std::unique_ptr<LanguageModel> teacher_;
  parallel::LinearHead whole_;
};

TEST_P(RemoteHead, GivesTheBitsOfTheLayerInItsPlace) {
  const at::NoGradGuard guard;
  const auto student = make_model(small_config("llama", 0), 3, at::kDouble);
  const at::Tensor hidden = student->forward_part({.tokens_BT = tokens_BT()}).hidden;
  double in_place = 0;
  teacher_->run_head(whole_.x, {}, [&](const parallel::LinearHead& head) {
    const auto loss = student->distillation_loss(hidden, targets_BT(), {}, head, kDistill);
    in_place = loss.sum.item<double>();
    EXPECT_GT(loss.divergence.item<double>(), 0);
    return loss.sum;
  });
  EXPECT_EQ(loss_beside({}, whole_), in_place);
}

TEST_P(RemoteHead, IsTakenApartOnTensorAndContextRanks) {
  const double expected = loss_beside({}, whole_);
  for (const bool sequence : {false, true}) {
    harness::run_ranks(2, [&](comm::Communicator& world) {
      EXPECT_NEAR(loss_beside({.tensor = {.group = &world, .sequence = sequence}}, whole_),
                  expected, 1e-10)
          << sequence;
    });
  }
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const at::Tensor sum = at::full({1}, loss_beside({.context = &world}, whole_), at::kDouble);
    world.all_reduce(sum)->wait();
    EXPECT_NEAR(sum.item<double>(), expected, 1e-10);
  });
}

TEST_P(RemoteHead, IsWholeOnEveryTensorRankOfTheTeacher) {
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const at::NoGradGuard guard;
    const auto cut =
        make_model(teacher_config(GetParam()), 4, at::kDouble, {.tensor = {.group = &world}});
    const parallel::LinearHead found = cut->whole_head();
    harness::assert_same_bits(found.w_vD, whole_.w_vD, "weight");
    EXPECT_EQ(found.bias_v.defined(), whole_.bias_v.defined());
    EXPECT_EQ(found.softcap, whole_.softcap);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, RemoteHead, testing::Values("llama", "gpt2", "mixtral"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trireme::model
