#include "trireme/tasks/language/outputs/teacher_outputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/tasks/language/outputs/outputs_writer.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokens = 3, kTop = 2, kVocab = 9;

OutputsOrigin some_origin() {
  return {.vocab_size = kVocab,
          .sequence_length = kTokens,
          .temperature = 2,
          .packing = "stream",
          .model = "llama, 3 layers",
          .teacher = {{"weights", "a"}},
          .training = {{"index", "b"}, {"tokens", "c"}},
          .validation = {{"index", "d"}}};
}

// Of samples whose numbers depend on `first`.
SampleOutputs some_outputs(int64_t first, int64_t N) {
  const at::Tensor low =
      at::arange(first, first + N * kTokens, at::kLong).remainder(kVocab - 1).view({N, kTokens});
  const at::Tensor p = low.to(at::kDouble).add(1).div(4 * kVocab);
  return {.tokens_NTk = at::stack({low, low + 1}, 2),
          .log_p_NTk = at::stack({p, 0.5 - p}, 2).log(),
          .log_rest_NT = at::full({N, kTokens}, std::log(0.5), at::kDouble)};
}

fs::path written(const fs::path& path, const OutputsOrigin& origin = some_origin(),
                 at::ScalarType dtype = at::kDouble) {
  OutputsWriter writer(path, origin,
                       {.top_k = kTop, .num_training = 5, .num_validation = 1, .dtype = dtype});
  writer.write(OutputsOf::kTraining, 3, some_outputs(7, 2));
  writer.write(OutputsOf::kValidation, 0, some_outputs(4, 1));
  writer.write(OutputsOf::kTraining, 0, some_outputs(0, 3));
  const uint64_t num_bytes = writer.finish();
  EXPECT_EQ(num_bytes, fs::file_size(path));
  return path;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TeacherOutputs, ReadsWhatWasWrittenInAnyOrder) {
  const harness::TemporaryFolder folder;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const TeacherOutputs outputs(written(folder.path() / "outputs", some_origin(), dtype));
    EXPECT_EQ(outputs.top_k(), kTop);
    EXPECT_EQ(outputs.num_samples(OutputsOf::kTraining), 5);
    EXPECT_EQ(outputs.num_samples(OutputsOf::kValidation), 1);
    const auto expect = [&](OutputsOf data, int64_t index, const SampleOutputs& all, int64_t i) {
      const SampleOutputs found = outputs.read(data, index);
      harness::assert_same_bits(found.tokens_NTk, all.tokens_NTk[i], "tokens");
      harness::assert_same_bits(found.log_p_NTk, all.log_p_NTk[i].to(dtype), "log p");
      harness::assert_same_bits(found.log_rest_NT, all.log_rest_NT[i].to(dtype), "rest");
      EXPECT_EQ(outputs.bytes_per_sample(),
                found.tokens_NTk.nbytes() + found.log_p_NTk.nbytes() + found.log_rest_NT.nbytes());
    };
    for (int64_t i = 0; i < 3; ++i) expect(OutputsOf::kTraining, i, some_outputs(0, 3), i);
    for (int64_t i = 0; i < 2; ++i) expect(OutputsOf::kTraining, 3 + i, some_outputs(7, 2), i);
    expect(OutputsOf::kValidation, 0, some_outputs(4, 1), 0);
  }
}

TEST(TeacherOutputs, AreIdentifiedByTheirContent) {
  const harness::TemporaryFolder folder;
  const TeacherOutputs outputs(written(folder.path() / "a"));
  EXPECT_EQ(TeacherOutputs(written(folder.path() / "b")).identity(), outputs.identity());
  OutputsOrigin other = some_origin();
  other.teacher["weights"] = "z";
  EXPECT_NE(TeacherOutputs(written(folder.path() / "c", other)).identity(), outputs.identity());
  OutputsWriter writer(
      folder.path() / "d", some_origin(),
      {.top_k = kTop, .num_training = 5, .num_validation = 1, .dtype = at::kDouble});
  writer.write(OutputsOf::kTraining, 0, some_outputs(1, 5));
  writer.write(OutputsOf::kValidation, 0, some_outputs(4, 1));
  writer.finish();
  EXPECT_NE(TeacherOutputs(folder.path() / "d").identity(), outputs.identity());
}

TEST(TeacherOutputs, RefuseARunThatReadsSomethingElse) {
  const harness::TemporaryFolder folder;
  const TeacherOutputs outputs(written(folder.path() / "outputs"));
  outputs.require_origin(some_origin());
  OutputsOrigin run = some_origin();
  run.teacher.clear();  // a run knows none
  run.validation.clear();
  outputs.require_origin(run);
  const std::vector<std::pair<std::function<void(OutputsOrigin&)>, std::string>> cases = {
      {[](OutputsOrigin& o) { o.vocab_size = 8; }, "over a vocabulary of 9 tokens"},
      {[](OutputsOrigin& o) { o.sequence_length = 4; }, "of sequences of 3 tokens"},
      {[](OutputsOrigin& o) { o.temperature = 1; }, "at the temperature 2"},
      {[](OutputsOrigin& o) { o.packing = "whole"; }, "with data.packing \"stream\""},
      {[](OutputsOrigin& o) { o.separate_documents = true; }, "data.separate_documents"},
      {[](OutputsOrigin& o) { o.training["tokens"] = "z"; }, "the run: tokens differ"},
      {[](OutputsOrigin& o) { o.training["loss_mask"] = "z"; }, "the run: loss_mask differ"},
      {[](OutputsOrigin& o) { o.validation["index"] = "z"; }, "validation data: index differ"}};
  for (const auto& [change, expected] : cases) {
    OutputsOrigin other = some_origin();
    change(other);
    EXPECT_NE(message_of([&] { outputs.require_origin(other); }).find(expected), std::string::npos)
        << expected;
  }
  OutputsOrigin without = some_origin();
  without.validation.clear();
  OutputsWriter writer(folder.path() / "training", without, {.top_k = kTop, .num_training = 5});
  writer.write(OutputsOf::kTraining, 0, some_outputs(0, 5));
  writer.finish();
  EXPECT_NE(message_of([&] {
              TeacherOutputs(folder.path() / "training").require_origin(some_origin());
            }).find("of training data only"),
            std::string::npos);
}

TEST(TeacherOutputs, ADamagedSampleIsRefusedAlone) {
  const harness::TemporaryFolder folder;
  const fs::path path = written(folder.path() / "outputs");
  std::string bytes = read_file(path);
  // The last tensor has the tokens of validation, before it those of training.
  const size_t sample_bytes = sizeof(int32_t) * kTokens * kTop;
  bytes[bytes.size() - 2 * sample_bytes] ^= 1;  // of training sample 4
  write_file_atomically(path, bytes);
  const TeacherOutputs outputs(path);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NO_THROW(outputs.read(OutputsOf::kTraining, i));
  EXPECT_NO_THROW(outputs.read(OutputsOf::kValidation, 0));
  EXPECT_NE(message_of([&] {
              outputs.read(OutputsOf::kTraining, 4);
            }).find("training sample 4: \"tokens\" has another checksum"),
            std::string::npos);
}

TEST(TeacherOutputs, AreRefusedWhereTheyAreNoDistributions) {
  const harness::TemporaryFolder folder;
  const auto reason = [&](const std::function<void(SampleOutputs&)>& change) {
    SampleOutputs outputs = some_outputs(0, 1);
    change(outputs);
    OutputsOrigin origin = some_origin();
    origin.validation.clear();
    OutputsWriter writer(folder.path() / "outputs", origin, {.top_k = kTop, .num_training = 1});
    writer.write(OutputsOf::kTraining, 0, outputs);
    writer.finish();
    return message_of(
        [&] { TeacherOutputs(folder.path() / "outputs").read(OutputsOf::kTraining, 0); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(reason([](SampleOutputs& o) { o.tokens_NTk.fill_(4); }), "tokens that do not ascend");
  has(reason([](SampleOutputs& o) { o.tokens_NTk.add_(7); }), "tokens that do not ascend within 9");
  has(reason([](SampleOutputs& o) { o.log_p_NTk[0][1][1] = -INFINITY; }), "not finite");
  has(reason([](SampleOutputs& o) { o.log_rest_NT[0][2] = -1; }), "do not sum up to 1");
  has(reason([](SampleOutputs& o) { o.log_rest_NT[0][2] = NAN; }), "do not sum up to 1");
}

TEST(TeacherOutputs, WithoutFinishNothingIsLeft) {
  const harness::TemporaryFolder folder;
  {
    OutputsWriter writer(folder.path() / "outputs", some_origin(),
                         {.top_k = kTop, .num_training = 5, .num_validation = 1});
    writer.write(OutputsOf::kTraining, 0, some_outputs(0, 5));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// Five samples for training and one for validation, in parts of at most two, up to the part where
// it is interrupted. Returns how many samples were there before.
int64_t write_in_parts(const fs::path& path, const fs::path& work, int interrupted_at,
                       const std::string& computed = "fp64") {
  OutputsWriter writer(
      path, some_origin(),
      {.top_k = kTop, .num_training = 5, .num_validation = 1, .dtype = at::kDouble},
      {.work = work, .computed = computed});
  const int64_t num_training = writer.num_written(OutputsOf::kTraining);
  const int64_t num_validation = writer.num_written(OutputsOf::kValidation);
  int part = 0;
  for (int64_t first = num_training; first < 5; first += 2) {
    if (part++ == interrupted_at) return num_training + num_validation;
    writer.write(OutputsOf::kTraining, first, some_outputs(first, std::min<int64_t>(2, 5 - first)));
    if (first != 2) writer.keep();  // what follows the last journal is written again
  }
  if (num_validation == 0) {
    if (part++ == interrupted_at) return num_training;
    writer.write(OutputsOf::kValidation, 0, some_outputs(4, 1));
    writer.keep();
  }
  if (part != interrupted_at) writer.finish();
  return num_training + num_validation;
}

TEST(TeacherOutputs, GoOnWithTheSameBytesWhereverTheyWereInterrupted) {
  const harness::TemporaryFolder folder;
  const fs::path work = folder.path() / "work";
  fs::create_directory(work);
  EXPECT_EQ(write_in_parts(folder.path() / "whole", work, -1), 0);
  const std::string whole = read_file(folder.path() / "whole");
  const fs::path path = folder.path() / "outputs";
  for (int first = 0; first < 5; ++first) {
    for (int second = 0; second < 5; ++second) {
      for (const fs::directory_entry& left : fs::directory_iterator(work)) fs::remove_all(left);
      fs::remove(path);
      EXPECT_EQ(write_in_parts(path, work, first), 0);
      EXPECT_FALSE(fs::exists(path));
      const int64_t resumed = write_in_parts(path, work, second);
      EXPECT_EQ(resumed, (std::array{0, 2, 2, 5, 6}[static_cast<size_t>(first)]));
      if (!fs::exists(path)) EXPECT_GE(write_in_parts(path, work, -1), resumed);
      EXPECT_EQ(read_file(path), whole) << first << ", " << second;
    }
  }
}

TEST(TeacherOutputs, BeginAnewWhereOtherOrDamagedSamplesAreKept) {
  const harness::TemporaryFolder folder;
  const fs::path work = folder.path() / "work", path = folder.path() / "outputs";
  fs::create_directory(work);
  write_in_parts(path, work, 3);
  EXPECT_EQ(write_in_parts(path, work, 0, "bf16"), 0);
  EXPECT_EQ(write_in_parts(path, work, 0), 5) << "another's stay until it has a journal";
  EXPECT_EQ(write_in_parts(path, work, 1, "bf16"), 0);
  EXPECT_EQ(write_in_parts(path, work, 3), 0);
  fs::resize_file(fs::directory_iterator(work)->path() / "outputs", 100);
  EXPECT_EQ(write_in_parts(path, work, 3), 0);
  write_file_atomically(fs::directory_iterator(work)->path() / "journal.json", "{");
  EXPECT_EQ(write_in_parts(path, work, -1), 0);
  EXPECT_EQ(TeacherOutputs(path).num_samples(OutputsOf::kTraining), 5);
}

}  // namespace
}  // namespace trireme::tasks
