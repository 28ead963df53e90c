#include "trireme/train/state/resume.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const DataIdentity kData{
    .checksums = {{"index", "index"}, {"tokens", "tokens"}, {"tokenizer", "tokenizer"}},
    .counts = {{"num_documents", 3}, {"num_tokens", 100}}};

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    config_.output.folder = run().string();
    data_of(config_).path = "data/python";
    fs::create_directory(run());
  }
  fs::path run() const { return folder_ / "run"; }

  void save(int64_t step, const DataIdentity& data = kData,
            const DataIdentity& validation = {}) const {
    harness::run_ranks(1, [&](comm::Communicator& world) {
      checkpoint::save(
          run() / "checkpoints", step, {},
          to_json(
              {.step = step, .config = to_toml(config_), .data = data, .validation = validation}),
          world);
    });
  }
  void write_metrics(int64_t last_step) const {
    MetricsWriter writer(run(), 0);
    for (int64_t step = 1; step <= last_step; ++step) writer.write({.step = step});
  }
  // Of a resume that is refused; empty: it is not.
  std::string refusal(const RunConfig& config, const DataIdentity& data = kData) const {
    return harness::message_of<ConfigError>([&] { find_resume_point(config, data); });
  }
  std::string lost() const {
    return harness::message_of<CheckpointError>([&] { find_resume_point(config_, kData); });
  }

  harness::TemporaryFolder folder_;
  RunConfig config_ = language_config();
};

struct Other {
  const Field& field;
  void operator()(const NamedValue& value) const {
    value.assign(value.name() == field.allowed[0] ? field.allowed[1] : field.allowed[0]);
  }
  void operator()(std::string* value) const { *value += "other"; }
  void operator()(bool* value) const { *value = !*value; }
  void operator()(auto* value) const { *value += 1; }
};

TEST_F(ResumeTest, EveryKeyThatMustStayIsRefusedUnlessItIsNamed) {
  save(10);
  RunConfig copy = config_;
  size_t num_fixed = 0;
  for (size_t i = 0; i < fields_of(copy).size(); ++i) {
    RunConfig changed = config_;
    const Field field = fields_of(changed)[i];
    SCOPED_TRACE(field.key);
    std::visit(Other{field}, field.value);
    if (field.key == "output.folder") continue;  // says where to look
    if (field.key == "task.name") {              // has other keys
      EXPECT_THAT(refusal(changed), HasSubstr("another run: task.name 'language' -> "));
      continue;
    }
    if (field.on_resume == OnResume::kNotKept) {
      EXPECT_THAT(find_resume_point(changed, kData).notes, IsEmpty());
    } else if (field.on_resume == OnResume::kMayChange) {
      EXPECT_THAT(
          find_resume_point(changed, kData).notes,
          ElementsAre(AllOf(HasSubstr("changed since then: " + field.key), HasSubstr(" -> "))));
    } else if (field.key != "data.path" && field.key != "data.sources") {  // by its content, below
      ++num_fixed;
      EXPECT_THAT(
          refusal(changed),
          AllOf(HasSubstr("step-000010 belongs to another run: " + field.key), HasSubstr(" -> "),
                AnyOf(HasSubstr("--resume.allow=" + field.key),
                      HasSubstr("size of its weights differs"))));
      changed.resume.allow = "data.seed, " + field.key;
      const ResumePoint point = find_resume_point(changed, kData);
      EXPECT_EQ(point.checkpoint, run() / "checkpoints/step-000010");
      EXPECT_THAT(point.notes, Contains(HasSubstr("resume.allow lets change: " + field.key)));
    }
  }
  EXPECT_GE(num_fixed, 15u);
}

TEST_F(ResumeTest, ItsOwnCheckpointWinsOverInitialWeights) {
  config_.init.folder = "elsewhere";
  save(10);
  EXPECT_THAT(find_resume_point(config_, kData).notes,
              ElementsAre(HasSubstr("init.folder elsewhere is left out")));
}

TEST_F(ResumeTest, WeightsThatNoRunHasTrainedAreForABeginning) {
  save(0);
  EXPECT_THAT(refusal(config_), AllOf(HasSubstr("weights only"), HasSubstr("--init=")));
}

// docs/guide/resume.md lists them in the first row of its table.
TEST(Resume, TheDocsNameEveryKeyThatMustStay) {
  const std::string text = read_file(TRIREME_RESUME_DOC);
  const size_t begin = text.find("| all of `[model]`");
  ASSERT_NE(begin, std::string::npos);
  const std::string row = text.substr(begin, text.find('\n', begin) - begin);
  RunConfig config = language_config();
  for (const Field& field : fields_of(config)) {
    if (field.key.starts_with("model.")) continue;
    if (field.key == "data.path" || field.key == "data.sources") continue;  // rows of their own
    if (field.key == "objective.teacher") continue;                         // in a row of its own
    const std::string section = field.key.substr(0, field.key.find('.'));
    const bool is_named = row.find("`" + field.key + "`") != std::string::npos ||
                          row.find("`[" + section + "]`") != std::string::npos;
    EXPECT_EQ(is_named, field.on_resume == OnResume::kMustStay) << field.key;
  }
}

TEST_F(ResumeTest, SaysOldAndNewValuesOfAllThatIsRefused) {
  save(10);
  RunConfig changed = config_;
  model_of(changed).rope_base = 500;
  changed.data.seed = 7;
  changed.train.steps = 400;
  EXPECT_THAT(
      refusal(changed),
      AllOf(HasSubstr("model.rope_base 10000.0 -> 500.0, data.seed 1 -> 7;"),
            HasSubstr("--resume.allow=model.rope_base,data.seed"), Not(HasSubstr("steps"))));
  changed.resume.allow = "data.seed";
  EXPECT_THAT(refusal(changed),
              AllOf(HasSubstr("model.rope_base 10000.0 -> 500.0;"), Not(HasSubstr("data.seed 1"))));
}

TEST_F(ResumeTest, ValidationDataIsComparedWhereBothEvaluate) {
  DataIdentity validation = kData, other = kData;
  validation.checksums["tokens"] = "to judge by";
  other.checksums["tokens"] = "to judge by another";
  save(10, kData, validation);
  EXPECT_THAT(find_resume_point(config_, kData, validation).notes, IsEmpty());
  EXPECT_THAT(find_resume_point(config_, kData).notes, IsEmpty()) << "no evaluation any more";
  const auto refusal_of = [&](const RunConfig& config) {
    return harness::message_of<ConfigError>([&] { find_resume_point(config, kData, other); });
  };
  EXPECT_THAT(refusal_of(config_),
              AllOf(HasSubstr("'data/python' (validation: tokens to judge by)"),
                    HasSubstr("'data/python' (validation: tokens to judge by another)"),
                    HasSubstr("--resume.allow=data.path")));
  RunConfig allowed = config_;
  allowed.resume.allow = "data.path";
  EXPECT_EQ(refusal_of(allowed), "");
  save(20);
  EXPECT_EQ(refusal_of(config_), "") << "it had none";
}

TEST_F(ResumeTest, OnlyValidationSetsOfBothAreCompared) {
  const auto identity = [](const std::string& name, const std::string& tokens) {
    DataIdentity data, part = kData;
    part.checksums["tokens"] = tokens;
    add_part(data, name, part);
    return data;
  };
  DataIdentity saved = identity("code", "1");
  add_part(saved, "web", kData);
  save(10, kData, saved);
  const auto refusal_of = [&](const DataIdentity& now) {
    return harness::message_of<ConfigError>([&] { find_resume_point(config_, kData, now); });
  };
  EXPECT_EQ(refusal_of(saved), "");
  EXPECT_EQ(refusal_of(identity("code", "1")), "");
  EXPECT_EQ(refusal_of(identity("wiki", "2")), "");
  EXPECT_EQ(refusal_of(kData), "");
  EXPECT_THAT(refusal_of(identity("code", "2")), HasSubstr("validation: "));
}

TEST_F(ResumeTest, SourcesAreTheSameByTheirContent) {
  data_of(config_).path = "";
  data_of(config_).sources = "code=a:0.7,web=b:0.3";
  DataIdentity data;
  add_part(data, "code", kData);
  add_part(data, "web", kData);
  data.checksums["shares"] = "7 3";
  save(10, data);
  RunConfig moved = config_;
  data_of(moved).sources = "code=c:7,web=d:3";
  EXPECT_THAT(find_resume_point(moved, data).notes,
              ElementsAre(AllOf(HasSubstr("data.sources 'code=a:0.7,web=b:0.3' -> "),
                                HasSubstr("the same content"))));
  DataIdentity other = data;
  other.checksums["shares"] = "6 4";
  EXPECT_THAT(refusal(moved, other),
              AllOf(HasSubstr("data.sources 'code=a:0.7,web=b:0.3' (shares 7 3) -> "
                              "'code=c:7,web=d:3' (shares 6 4)"),
                    HasSubstr("--resume.allow=data.sources")));
  RunConfig single = config_;
  data_of(single).sources = "";
  data_of(single).path = "a";
  EXPECT_THAT(refusal(single, kData), AllOf(HasSubstr("data.path"), HasSubstr("data.sources")));
}

TEST_F(ResumeTest, TheStateIsOfTheManifestsStep) {
  harness::run_ranks(1, [&](comm::Communicator& world) {
    checkpoint::save(run() / "checkpoints", 10, {},
                     to_json({.step = 9, .config = to_toml(config_), .data = kData}), world);
  });
  EXPECT_THAT(lost(), AllOf(HasSubstr("of step 9"), HasSubstr("the manifest of step 10")));
}

TEST_F(ResumeTest, DataIsTheSameByItsContent) {
  save(10);
  RunConfig moved = config_;
  data_of(moved).path = "another/place";
  EXPECT_THAT(find_resume_point(moved, kData).notes,
              ElementsAre(AllOf(HasSubstr("data.path 'data/python' -> 'another/place'"),
                                HasSubstr("the same content"))));
  EXPECT_THAT(find_resume_point(config_, kData).notes, IsEmpty());

  DataIdentity other = kData;
  other.counts["num_documents"] = 4;
  other.checksums["index"] = "longer";
  EXPECT_THAT(refusal(config_, other),
              AllOf(HasSubstr("data.path 'data/python' (3 documents, 100 tokens) -> 'data/python' "
                              "(4 documents, 100 tokens)"),
                    HasSubstr("--resume.allow=data.path")));
  for (const char* part : {"index", "tokens", "tokenizer"}) {
    other = kData;
    other.checksums[part] = "of another one";
    EXPECT_THAT(refusal(config_, other), HasSubstr("of another one)"));
    EXPECT_THAT(refusal(moved, other), HasSubstr("-> 'another/place'"));
  }
  config_.resume.allow = "data.path";
  EXPECT_THAT(find_resume_point(config_, other).notes,
              ElementsAre(HasSubstr("resume.allow lets change: data.path")));
}

TEST_F(ResumeTest, ACheckpointThatDoesNotSayItsDataGoesByThePath) {
  save(10, {});
  EXPECT_THAT(find_resume_point(config_, kData).notes, IsEmpty());
  RunConfig moved = config_;
  data_of(moved).path = "another/place";
  EXPECT_THAT(refusal(moved), HasSubstr("data.path 'data/python' -> 'another/place';"));
}

// A new run with ZeRO-3 sums over ranks first. One that continues a run keeps that run's order,
// also at another stage, unless it is told to change it.
TEST_F(ResumeTest, TheOrderOfGradientsIsTheRunsOwn) {
  const auto order_at = [&](int64_t zero, GradientOrder asked) {
    RunConfig config = config_;
    config.parallel.zero = zero;
    config.parallel.gradient_order = asked;
    return find_resume_point(config, kData);
  };
  constexpr auto kMicrobatchFirst = GradientOrder::kMicrobatchFirst;
  constexpr auto kRankFirst = GradientOrder::kRankFirst;
  EXPECT_EQ(order_at(0, GradientOrder::kAuto).gradient_order, kMicrobatchFirst);
  EXPECT_EQ(order_at(3, GradientOrder::kAuto).gradient_order, kRankFirst);

  // Of a version without the key.
  config_.parallel.gradient_order = GradientOrder::kAuto;
  save(5);
  EXPECT_EQ(order_at(3, GradientOrder::kAuto).gradient_order, kMicrobatchFirst);
  config_.parallel.gradient_order = kRankFirst;
  save(10);
  const ResumePoint kept = order_at(0, GradientOrder::kAuto);
  EXPECT_EQ(kept.gradient_order, kRankFirst);
  EXPECT_THAT(kept.notes, Not(Contains(HasSubstr("gradient_order"))));
  // Where the run can no longer have it.
  RunConfig served = config_;
  served.parallel.gradient_order = GradientOrder::kAuto;
  served.parallel.servers = 1;
  const ResumePoint given_up = find_resume_point(served, kData);
  EXPECT_EQ(given_up.gradient_order, kMicrobatchFirst);
  EXPECT_THAT(given_up.notes,
              Contains(HasSubstr("parallel.gradient_order is microbatch-first from here on")));
  const ResumePoint changed = order_at(0, kMicrobatchFirst);
  EXPECT_EQ(changed.gradient_order, kMicrobatchFirst);
  EXPECT_THAT(changed.notes, Contains(HasSubstr("parallel.gradient_order 'rank-first' -> "
                                                "'microbatch-first'")));
}

TEST_F(ResumeTest, ANewRunHasNoCheckpoint) {
  const ResumePoint point = find_resume_point(config_, kData);
  EXPECT_EQ(point.checkpoint, fs::path());
  EXPECT_THAT(point.notes, IsEmpty());
}

TEST_F(ResumeTest, ARunKilledBeforeItsFirstCheckpointBeginsAgain) {
  write_file_atomically(run() / "config.toml", to_toml(config_));  // an interval of 50
  write_metrics(50);
  RunConfig often = config_;
  often.checkpoint.interval = 5;  // from now on
  for (const RunConfig& config : {config_, often}) {
    const ResumePoint point = find_resume_point(config, kData);
    EXPECT_EQ(point.checkpoint, fs::path());
    EXPECT_THAT(point.notes, ElementsAre(HasSubstr("ended at step 50 before its first")));
  }
}

TEST_F(ResumeTest, ARunThatHasLostItsCheckpointsIsNoNewOne) {
  write_metrics(7);
  note_checkpoint(run(), 5);
  EXPECT_THAT(lost(), AllOf(HasSubstr("run has no checkpoint"), HasSubstr("reaches step 7"),
                            HasSubstr("first_checkpoint.json"), HasSubstr("put its checkpoints")));
  fs::remove(run() / "first_checkpoint.json");
  EXPECT_EQ(lost(), "");
  fs::create_directories(run() / "checkpoints/step-000005");  // without a manifest
  EXPECT_THAT(lost(), HasSubstr("checkpoints/step-000005 has no manifest.json"));
  fs::remove_all(run() / "checkpoints");
  EXPECT_EQ(lost(), "");
  // Of a version that took no note: step 7 came after the checkpoint of step 5.
  RunConfig earlier = config_;
  earlier.checkpoint.interval = 5;
  earlier.checkpoint.mode = CheckpointMode::kSync;
  write_file_atomically(run() / "config.toml", to_toml(earlier));
  EXPECT_THAT(lost(), HasSubstr("checkpoint.interval was 5"));
  // In the background it may not have ended before step 10, and with a warning never.
  earlier.checkpoint.mode = CheckpointMode::kAsync;
  write_file_atomically(run() / "config.toml", to_toml(earlier));
  EXPECT_EQ(lost(), "");
  write_metrics(11);
  EXPECT_THAT(lost(), HasSubstr("checkpoint.interval was 5"));
  earlier.checkpoint.on_error = CheckpointOnError::kWarn;
  write_file_atomically(run() / "config.toml", to_toml(earlier));
  EXPECT_EQ(lost(), "");
  std::ofstream(run() / "config.toml") << "[trian]";
  EXPECT_EQ(lost(), "");
}

TEST_F(ResumeTest, ACheckpointThatHasLostItsManifestIsLeftOutWithALine) {
  save(5);
  save(10);
  fs::remove(run() / "checkpoints/step-000010/manifest.json");
  const ResumePoint point = find_resume_point(config_, kData);
  EXPECT_EQ(point.checkpoint, run() / "checkpoints/step-000005");
  EXPECT_THAT(point.notes, ElementsAre(HasSubstr("checkpoints/step-000010 has no manifest.json")));
}

TEST_F(ResumeTest, DescribesWhatMakesOtherTensors) {
  save(10);
  const fs::path checkpoint = run() / "checkpoints/step-000010";
  RunConfig changed = config_;
  EXPECT_EQ(describe_changes(checkpoint, changed), "");
  changed.train.steps = 400;
  EXPECT_EQ(describe_changes(checkpoint, changed), "");
  changed.optimizer.momentum = 0;
  model_of(changed).width = 32;
  EXPECT_THAT(describe_changes(checkpoint, changed),
              AllOf(HasSubstr("model.width 256 -> 32"), HasSubstr("momentum 0.9 -> 0"),
                    Not(HasSubstr("steps"))));
  EXPECT_EQ(describe_changes(run() / "nowhere", changed), "");
}

}  // namespace
}  // namespace trireme::train
