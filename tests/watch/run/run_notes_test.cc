#include "trireme/watch/run/run_notes.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

std::string peak_text(int rank, int64_t total, int64_t failed) {
  return concat(R"({"step":3,"rank":)", rank, R"(,"total_bytes":)", total, R"(,"failed_bytes":)",
                failed, R"(,"kinds":{"weights":5},"largest":[{"bytes":5,"kind":"weights",)",
                R"("operator":"aten::empty","unit":"layers.0"}]})");
}

TEST(RunNotes, PredictionsAreFiniteNumbers) {
  const Prediction found = parse_prediction(
      R"({"step_seconds":0.5,"a":-1,"b":"x","c":null,"d":[1],"tokens_per_second":1e3})");
  EXPECT_EQ(found, (Prediction{{"step_seconds", 0.5}, {"tokens_per_second", 1000}}));
  for (const char* text : {"", "[1]", "{\"a\":1", "{\"a\":1,\"a\":2}"})
    EXPECT_TRUE(parse_prediction(text).empty()) << text;
  EXPECT_TRUE(read_prediction("/nowhere").empty());
}

TEST(RunNotes, TheRankWhoseMemoryRanOutComesFirstThenTheFullest) {
  const harness::TemporaryFolder folder;
  EXPECT_FALSE(read_memory_peak(folder.path(), std::nullopt));
  std::filesystem::create_directories(folder / "memory");
  const auto put = [&](const std::string& name, const std::string& text) {
    OutputFile(folder / "memory" / name).write(text);
  };
  put("rank-00000.json", peak_text(0, 10, 0));
  put("rank-00001.json", peak_text(1, 20, 0));
  put("rank-00002.json", "{\"step\":3");
  put("other.json", peak_text(4, 99, 1));
  EXPECT_EQ(read_memory_peak(folder.path(), std::nullopt)->rank, 1);
  EXPECT_EQ(read_memory_peak(folder.path(), 0)->total_bytes, 10);
  EXPECT_FALSE(read_memory_peak(folder.path(), 2));
  put("rank-00003.json", peak_text(3, 5, 7));
  const auto failed = read_memory_peak(folder.path(), std::nullopt);
  EXPECT_EQ(failed->rank, 3);
  EXPECT_EQ(failed->failed_bytes, 7);
  EXPECT_EQ(failed->kinds.front().first, "weights");
  EXPECT_EQ(failed->largest.front().unit, "layers.0");
}

TEST(RunNotes, DamagedSnapshotsAreNone) {
  EXPECT_TRUE(parse_memory_peak(peak_text(0, 1, 0)));
  for (const char* text : {"", "{}", "[]", R"({"step":-1,"rank":0,"total_bytes":0,"largest":[]})",
                           R"({"step":1,"rank":0,"total_bytes":0,"largest":[{"bytes":1}]})"})
    EXPECT_FALSE(parse_memory_peak(text)) << text;
}

}  // namespace
}  // namespace trireme::watch
