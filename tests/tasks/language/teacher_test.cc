#include "trireme/tasks/language/teacher.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/train/language_config.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/memory_check.h"

namespace trireme::tasks {
namespace {

train::RunConfig student(int64_t zero = 0, int num_ranks = 1) {
  train::RunConfig config = train::parse_config(R"(
[model]
layers = 2
width = 32
heads = 2
kv_heads = 2
ffn_width = 64
sequence_length = 16
vocab_size = 96
[objective]
name = "distill"
teacher = "elsewhere"
)",
                                                "test");
  config.parallel.zero = zero;
  train::resolve(config, num_ranks);
  return config;
}

std::shared_ptr<const Teacher> large_teacher() {
  auto teacher = std::make_shared<Teacher>();
  teacher->model = train::model_of(student());
  teacher->model.layers = 4;
  teacher->model.width = 48;
  teacher->model.sequence_length = 64;
  return teacher;
}

TEST(Teacher, CountsInTheLeastMemoryAndTheFlopsOfARun) {
  const double parameters = static_cast<double>(model::num_parameters(large_teacher()->model));
  for (const int num_ranks : {1, 2}) {
    for (const int64_t zero : {0, 3}) {
      train::RunConfig config = student(zero, num_ranks);
      const double alone = train::least_memory(config).states;
      language_of(config).teacher = large_teacher();
      const double share = zero == 0 ? 1 : num_ranks;
      EXPECT_NEAR(train::least_memory(config).states - alone, 4 * parameters / share, 1);
    }
  }
  train::RunConfig config = student();
  const double alone = config.task->model().traits().flops_per_sample;
  language_of(config).teacher = large_teacher();
  model::ModelConfig at_length = large_teacher()->model;
  at_length.sequence_length = 16;
  EXPECT_DOUBLE_EQ(config.task->model().traits().flops_per_sample - alone,
                   16 * model::flops_per_token(at_length) / 3);
}

TEST(Teacher, ItsConfigTrainsNothingAndHasItsOwnStages) {
  train::RunConfig config = student();
  EXPECT_FALSE(train::teacher_config(config).has_value());
  config.train.freeze = "model.embed_tokens.*";
  config.parallel.stage_layers = "2";
  language_of(config).teacher = large_teacher();
  const auto found = train::teacher_config(config);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->is_frozen);
  EXPECT_EQ(found->train.freeze, "");
  EXPECT_EQ(found->parallel.stage_layers, "");
  EXPECT_EQ(train::model_of(*found).layers, 4);
  EXPECT_EQ(language_of(*found).teacher, nullptr);
  EXPECT_EQ(found->task->model().edges(1).front().outputs, std::vector<std::string>{"teacher"});
  EXPECT_EQ(train::model_of(config).layers, 2);
}

TEST(Teacher, IsIdentifiedByItsConfigAndItsWeightsWhereverItLies) {
  const harness::TemporaryFolder first, second;
  const auto write = [](const std::filesystem::path& folder, const std::string& name,
                        const std::string& text) { std::ofstream(folder / name) << text; };
  const std::string weights(100'000, 'w');
  for (const std::filesystem::path& folder : {first.path(), second.path()}) {
    write(folder, "config.json", "{}");
    write(folder, "model.safetensors", weights);
  }
  const auto identity = [](const std::filesystem::path& folder) {
    return identify_teacher({.model = {}, .folder = folder});
  };
  EXPECT_EQ(identity(first.path()), identity(second.path()));
  // The README says nothing of the model.
  write(second.path(), "README.md", "a teacher");
  EXPECT_EQ(identity(first.path()), identity(second.path()));
  write(second.path(), "model.safetensors", std::string(100'000, 'v'));
  EXPECT_NE(identity(first.path()), identity(second.path()));
  write(second.path(), "model.safetensors", weights + "w");
  EXPECT_NE(identity(first.path()), identity(second.path()));
  write(second.path(), "model.safetensors", weights);
  write(second.path(), "config.json", "{ }");
  EXPECT_NE(identity(first.path()), identity(second.path()));
}

}  // namespace
}  // namespace trireme::tasks
