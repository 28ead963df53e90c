#include "trireme/dataset/recommend/criteo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/dataset/recommend/features.h"
#include "tests/dataset/recommend/raw_recorder.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

// A line whose numbers are 1 to 13 and whose categories are c0 to c19.
std::string line(const std::string& label = "1", const std::string& first_number = "1",
                 const std::string& first_category = "c0") {
  std::string text = label + "\t" + first_number;
  for (int d = 2; d <= kCriteoDense; ++d) text += concat("\t", d);
  text += "\t" + first_category;
  for (int t = 1; t < kCriteoTables; ++t) text += concat("\tc", t);
  return text + "\n";
}

class Criteo : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  std::string error_of(const std::string& text) {
    const std::string path = put("day_0", text);
    RawRecorder recorder;
    const std::string message =
        harness::message_of<ConfigError>([&] { open_criteo_text({path})->read(recorder); });
    return message.substr(std::min(message.size(), path.size()));
  }
  harness::TemporaryFolder folder_;
};

TEST_F(Criteo, TextHasALabelNumbersAndCategories) {
  const auto data = open_criteo_text(
      {put("day_0", line() + line("0", "-2", "")), put("day_1", line("0", "", "00ff"))});
  RawRecorder recorder;
  data->read(recorder);
  EXPECT_EQ(recorder.labels, (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(recorder.groups, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_FLOAT_EQ(recorder.dense[0][0], std::log(2.0F));
  EXPECT_FLOAT_EQ(recorder.dense[0][12], std::log(14.0F));
  EXPECT_EQ(recorder.dense[1][0], 0);
  EXPECT_EQ(recorder.dense[2][0], 0);
  EXPECT_TRUE(recorder.samples[0].starts_with(":c0,c1,c2,"));
  EXPECT_TRUE(recorder.samples[1].starts_with(":,c1,c2,"));
  EXPECT_TRUE(recorder.samples[2].starts_with(":00ff,c1,"));
  EXPECT_EQ(recorder.num_bytes, data->num_bytes());
  EXPECT_EQ(data->schema().tables.size(), 26U);
}

TEST_F(Criteo, TextThatIsWrongIsRefusedWithLineAndColumn) {
  EXPECT_EQ(error_of(line() + "1\t2\n"),
            ":2 has 2 columns; expected 40, separated by tabs: the label, 13 numbers, 26 "
            "categories");
  EXPECT_EQ(error_of(line("2")), ":1: column 1 (label) is \"2\"; expected 0 or 1");
  for (const std::string number : {"nan", "inf", "1e999", "x", "1 ", "0x1"}) {
    EXPECT_EQ(error_of(line() + line("1", number)),
              ":2: column 2 (I1) is \"" + number + "\"; expected a finite number, or nothing");
  }
  for (const std::string category : {"g", "12 ", "ABC", "00000000000000001"}) {
    EXPECT_EQ(error_of(line("1", "1", category)),
              ":1: column 15 (C1) is \"" + category +
                  "\"; expected at most 16 hexadecimal digits (0-9, a-f), or nothing");
  }
  EXPECT_EQ(error_of(""), " is empty; expected lines of text");
}

TEST_F(Criteo, BinaryRecordsAreTheSameAsText) {
  std::vector<int32_t> values = {1};
  for (int d = 1; d <= kCriteoDense; ++d) values.push_back(d);
  for (int t = 0; t < kCriteoTables; ++t) values.push_back(t == 0 ? -1 : 0xc00000 + t);
  const std::string path = put("day.bin", bytes_of(values));
  RawRecorder recorder;
  open_criteo_binary({path})->read(recorder);
  RawRecorder text;
  open_criteo_text({put("day_0", line())})->read(text);
  EXPECT_EQ(recorder.dense, text.dense);
  EXPECT_EQ(recorder.labels, text.labels);
  EXPECT_TRUE(recorder.samples[0].starts_with(":ffffffff,00c00001,00c00002,"));
  values[0] = 7;
  put("day.bin", bytes_of(values));
  EXPECT_EQ(harness::message_of<ConfigError>([&] { open_criteo_binary({path})->read(recorder); }),
            path + ": record 0: the label is 7; expected 0 or 1");
  put("day.bin", "x");
  EXPECT_NE(harness::message_of<ConfigError>([&] { open_criteo_binary({path}); }), "");
}

}  // namespace
}  // namespace trireme::dataset
