#include "trireme/train/teacher_ranks.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/memory_check.h"

namespace trireme::train {
namespace {

using Overrides = std::vector<Override>;

const std::vector<std::string> kComputed = {"loss",
                                            "grad_norm",
                                            "cross_entropy",
                                            "divergence",
                                            "validation_loss",
                                            "validation_divergence",
                                            "validation_cross_entropy"};

// A run from which others learn, of another width and depth.
class TeacherRanksTest : public TextRun {
 protected:
  TeacherRanksTest() {
    run(config("teacher", {{"model.width", "24"},
                           {"model.layers", "3"},
                           {"model.kv_heads", "2"},
                           {"model.tied_embedding", "true"},
                           {"train.steps", "2"}}),
        1);
  }

  RunConfig student(const std::string& run, int64_t teachers, const Overrides& overrides) const {
    Overrides all{{"objective.name", "distill"},
                  {"objective.teacher", (folder_ / "teacher").string()},
                  {"objective.temperature", "2"},
                  {"objective.weight", "0.7"},
                  {"model.kv_heads", "2"},
                  {"train.evaluate_interval", "3"},
                  {"parallel.teachers", std::to_string(teachers)}};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config(run, all);
  }

  // Compares teachers on ranks of their own with the one in place.
  // relative: 0: the same bits
  void compare(const std::string& name, int students, int teachers, const Overrides& layout,
               double relative = 0, const Overrides& of_teachers = {}) {
    SCOPED_TRACE(name);
    run(student(name + "-place", 0, layout), students);
    Overrides beside = layout;
    beside.insert(beside.end(), of_teachers.begin(), of_teachers.end());
    EXPECT_EQ(run(student(name, teachers, beside), students + teachers), Outcome::kFinished);
    expect_same(name, name + "-place", relative, kComputed);
    for (const auto& line : metrics(name)) EXPECT_TRUE(line.contains("teacher_wait_seconds"));
    EXPECT_FALSE(metrics(name + "-place").front().contains("teacher_wait_seconds"));
  }

  std::string refusal(const Overrides& overrides, int num_ranks) const {
    return harness::message_of<ConfigError>([&] {
      RunConfig refused = student("refused", 1, overrides);
      resolve(refused, num_ranks);
      refused.task->open(/*evaluates=*/false);
      check_layout(refused);
    });
  }
};

TEST_F(TeacherRanksTest, HaveTheBitsOfATeacherInPlace) {
  for (const int students : {1, 2}) {
    const std::string place = "place-" + std::to_string(students);
    run(student(place, 0, {}), students);
    ASSERT_GT(metrics(place).back()["validation_divergence"].get<double>(), 0);
    for (const int teachers : {1, 2}) {
      const std::string name = place + "-beside-" + std::to_string(teachers);
      run(student(name, teachers, {}), students + teachers);
      expect_same(name, place, 0, kComputed);
    }
  }
}

TEST_F(TeacherRanksTest, ServeStudentsOfEveryLayout) {
  compare("zero3", 2, 1, {{"parallel.zero", "3"}});
  compare("pipeline", 2, 1, {{"parallel.pipeline", "2"}});
  compare("both", 4, 2, {{"parallel.pipeline", "2"}, {"parallel.zero", "1"}});
  compare("uneven", 2, 2, {{"train.uneven_batches", "true"}, {"train.global_batch", "6"}});
  compare("not ahead", 1, 1, {{"data.skip_bad_samples", "1"}});
  // In place, these axes cut the teacher too, so only rounding differs.
  const Override precise = {"train.precision", "fp64"};
  compare("tensor", 2, 1, {{"parallel.tensor", "2"}, precise}, 1e-9);
  compare("sequence", 2, 1,
          {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}, precise}, 1e-9);
  compare("context", 2, 2, {{"parallel.context", "2"}, precise}, 1e-9);
  compare("cut teacher", 2, 2, {precise}, 1e-9, {{"parallel.teacher_tensor", "2"}});
}

TEST_F(TeacherRanksTest, ACheckpointGoesOnWithAnyNumberOfThem) {
  run(student("whole", 0, {}), 2);
  EXPECT_EQ(run(student("run", 2, {}), 4, /*stop_after=*/3), Outcome::kStopped);
  EXPECT_LT(metrics("run").size(), 6U);
  EXPECT_EQ(run(student("run", 1, {}), 3, /*stop_after=*/5), Outcome::kStopped);
  EXPECT_EQ(run(student("run", 0, {}), 2), Outcome::kFinished);
  expect_same("run", "whole", 0, kComputed);
  EXPECT_EQ(run(student("run", 1, {}), 3), Outcome::kFinished) << "again";
}

TEST_F(TeacherRanksTest, AStudentRankHasNoWeightsOfIt) {
  RunConfig place = student("run", 0, {}), beside = student("run", 2, {});
  for (RunConfig* const each : {&place, &beside}) {
    resolve(*each, each == &place ? 1 : 3);
    each->task->open(/*evaluates=*/false);
  }
  const double of_teacher = least_teacher_memory(beside);
  EXPECT_GT(of_teacher, 0);
  EXPECT_EQ(least_teacher_memory(place), 0);
  EXPECT_NEAR(least_memory(place).states - least_memory(beside).states, of_teacher, 1);
  EXPECT_EQ(describe_layout(beside), "data 1 + teachers 2");
  EXPECT_NE(teacher_memory_advice(beside).find("--parallel.teacher_tensor (1)"), std::string::npos);
}

TEST_F(TeacherRanksTest, RefuseWhatDoesNotGoWithThemInOneLine) {
  const std::vector<std::pair<Overrides, std::string>> refused{
      {{{"parallel.servers", "1"}, {"train.gradient_clip", "0"}, {"train.evaluate_interval", "0"}},
       "parallel.teachers is 1 and cannot be combined with parallel.servers = 1"},
      {{{"train.shares_interval", "2"}}, "cannot be combined with train.shares_interval"},
      {{{"parallel.teachers", "4"}}, "parallel.teachers is 4 of 4 ranks, which leaves none"},
      {{{"parallel.teachers", "3"}, {"parallel.teacher_tensor", "2"}},
       "parallel.teacher_tensor is 2, which does not divide parallel.teachers = 3"},
      {{{"parallel.teachers", "0"}, {"parallel.teacher_tensor", "2"}},
       "parallel.teacher_tensor is 2 without parallel.teachers"},
      {{{"train.global_batch", "12"},
        {"objective.name", "next_token"},
        {"objective.teacher", ""},
        {"objective.temperature", "1"},
        {"objective.weight", "0.5"}},
       "parallel.teachers is 1 and objective.name \"next_token\", which has no teacher"},
      {{{"train.global_batch", "12"}, {"objective.teacher", (folder_ / "text.txt").string()}},
       "a file of outputs, which needs"}};
  for (const auto& [overrides, part] : refused) {
    const std::string text = refusal(overrides, 4);
    EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_NE(refusal({{"parallel.teachers", "2"}, {"train.global_batch", "12"}}, 5)
                .find("makes 2 copies of the teacher for 3 data ranks"),
            std::string::npos);
  EXPECT_NE(refusal({{"parallel.teachers", "5"}, {"parallel.teacher_tensor", "5"}}, 6)
                .find("objective.teacher: "),
            std::string::npos);
  EXPECT_EQ(refusal({}, 3), "");
}

}  // namespace
}  // namespace trireme::train
