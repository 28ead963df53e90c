#include "trireme/cli/predict/prediction_writer.h"

#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

using train::Answer;

const Answer kTwo{.classes = {{"cat", 0.75}, {"dog, \"big\"", 0.1}}};
const Answer kClick{.numbers = {{"probability", 1.0 / 3}}};

TEST(PredictionLine, JsonHasTheFirstClassAndTheOthers) {
  const std::string line = prediction_line({.path = "a.png"}, kTwo, PredictionFormat::kJsonLines);
  EXPECT_EQ(line, R"({"path":"a.png","class":"cat","probability":0.75,"top":[{"class":"cat",)"
                  R"("probability":0.75},{"class":"dog, \"big\"","probability":0.1}]})"
                  "\n");
  const Answer one{.classes = {{"cat", 0.75}}};
  EXPECT_EQ(prediction_line({.path = "a", .number = 3}, one, PredictionFormat::kJsonLines),
            "{\"path\":\"a\",\"row\":3,\"class\":\"cat\",\"probability\":0.75}\n");
}

TEST(PredictionLine, CsvHasAColumnForEachField) {
  EXPECT_EQ(csv_header(kTwo), "path,row,class,probability,class_2,probability_2\n");
  EXPECT_EQ(prediction_line({.path = "a b.png"}, kTwo, PredictionFormat::kCsv),
            "a b.png,,cat,0.75,\"dog, \"\"big\"\"\",0.1\n");
  EXPECT_EQ(csv_header(kClick), "path,row,probability\n");
  EXPECT_EQ(prediction_line({.path = "x,y", .number = 12}, kClick, PredictionFormat::kCsv),
            "\"x,y\",12,0.3333333333333333\n");
}

TEST(PredictionLine, NumbersReadAsTheSameAndNoneIsNoNumber) {
  const auto line = prediction_line({.path = "p"}, kClick, PredictionFormat::kJsonLines);
  EXPECT_EQ(nlohmann::json::parse(line)["probability"].get<double>(), 1.0 / 3);
  const Answer none{.numbers = {{"x", std::numeric_limits<double>::quiet_NaN()}}};
  EXPECT_EQ(prediction_line({.path = "p"}, none, PredictionFormat::kJsonLines),
            "{\"path\":\"p\",\"x\":null}\n");
  EXPECT_EQ(prediction_line({.path = "p"}, none, PredictionFormat::kCsv), "p,,\n");
}

TEST(PredictionLine, APathThatIsNotUtf8CanBeRead) {
  const auto line = prediction_line({.path = "\xff.png"}, kClick, PredictionFormat::kJsonLines);
  EXPECT_EQ(nlohmann::json::parse(line)["path"], "\xEF\xBF\xBD.png");
}

TEST(PredictionWriter, AFileAppearsWhenItIsFinished) {
  const harness::TemporaryFolder folder;
  const std::string path = folder / "out.csv";
  {
    PredictionWriter dropped(path, PredictionFormat::kCsv);
    dropped.write({.path = "a", .number = 1}, kClick);
  }
  EXPECT_TRUE(harness::names_in(folder.path()).empty());
  PredictionWriter writer(path, PredictionFormat::kCsv);
  for (int64_t row = 1; row <= 5000; ++row) writer.write({.path = "a", .number = row}, kClick);
  writer.finish();
  EXPECT_EQ(writer.num_rows(), 5000);
  const std::string text = read_file(path);
  EXPECT_TRUE(text.starts_with("path,row,probability\na,1,"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 5001);
}

TEST(PredictionWriter, RefusesAFileThatCannotBeWritten) {
  const harness::TemporaryFolder folder;
  EXPECT_THROW(PredictionWriter(folder / "none/out", PredictionFormat::kCsv), Error);
  EXPECT_THROW(PredictionWriter(folder.path(), PredictionFormat::kCsv), Error);
}

}  // namespace
}  // namespace trireme::cli
