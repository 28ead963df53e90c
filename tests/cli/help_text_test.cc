#include "trireme/cli/terminal_text.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(HelpText, ASecondColumnGoesOnBelowItself) {
  EXPECT_EQ(wrapped_help("  --ranks INT                 local ranks to start on this host\n", 50),
            "  --ranks INT                 local ranks to start\n"
            "                              on this host\n");
}

TEST(HelpText, LinesOfOneMeaningAreFilledAgain) {
  EXPECT_EQ(wrapped_help("  --init TEXT                 run or checkpoint whose weights a new\n"
                         "                              run begins with\n"
                         "  --other                     next\n",
                         60),
            "  --init TEXT                 run or checkpoint whose\n"
            "                              weights a new run begins with\n"
            "  --other                     next\n");
}

TEST(HelpText, ExamplesInAListStayLinesOfTheirOwn) {
  EXPECT_EQ(wrapped_help("  logs                        Show what ranks have\n"
                         "                              written.\n"
                         "                                trireme logs runs/demo --level error\n"
                         "                                trireme logs runs/demo --rank 0,4-7\n"
                         "\n"
                         "  data                        Prepare training data\n",
                         64),
            "  logs                        Show what ranks have written.\n"
            "                                trireme logs runs/demo \\\n"
            "                                    --level error\n"
            "                                trireme logs runs/demo \\\n"
            "                                    --rank 0,4-7\n"
            "\n"
            "  data                        Prepare training data\n");
}

TEST(HelpText, ALongNameHasItsMeaningBelow) {
  const std::string text =
      "  --a-name-that-is-longer-than-its-column TEXT\n"
      "                              what it means\n";
  EXPECT_EQ(wrapped_help(text, 60), text);
}

TEST(HelpText, ProseIsFilledAndHeadingsStay) {
  const std::string sentence =
      "Find the best layout of a model on a cluster: data, tensor and\npipeline ranks.\n";
  EXPECT_EQ(wrapped_help(sentence + "\nOptions:\n", 40),
            "Find the best layout of a model on a\ncluster: data, tensor and pipeline\nranks.\n\n"
            "Options:\n");
  EXPECT_EQ(wrapped_help("Options:\nNext\n", 80), "Options:\nNext\n");
}

TEST(HelpText, TheUsageStandsApartFromTheDescription) {
  const std::string text =
      "List the tensors of a checkpoint with their shapes and layouts\n"
      "Usage: trireme checkpoint inspect [OPTIONS] path\n";
  EXPECT_EQ(wrapped_help(text, 80),
            text.substr(0, text.find("Usage")) + "\n" + text.substr(text.find("Usage")));
}

TEST(HelpText, ABrokenCommandIsStillOne) {
  EXPECT_EQ(wrapped_help("  trireme plan model.toml cluster.toml --output best.toml\n", 40),
            "  trireme plan model.toml cluster.toml \\\n      --output best.toml\n");
}

TEST(HelpText, NoWordIsBroken) {
  const std::string word(70, 'x');
  const std::string text = "  --key=1                     a " + word + " b\n";
  const std::string wrapped = wrapped_help(text, 60);
  EXPECT_NE(wrapped.find(word), wrapped.npos);
  EXPECT_EQ(longest_line(wrapped), 30 + word.size());
}

TEST(HelpText, ALineOfAReportGoesOnBelowItsText) {
  const std::string line =
      "layout  2 ranks x 1 threads, data 2; batch 16 = 2 ranks x 2 microbatches";
  EXPECT_EQ(wrapped_line(line, 80), line);
  EXPECT_EQ(wrapped_line(line, 40),
            "layout  2 ranks x 1 threads, data 2;\n        batch 16 = 2 ranks x 2\n"
            "        microbatches");
  EXPECT_EQ(wrapped_line("epoch 2: rank 2 was killed", 20), "epoch 2: rank 2 was\n        killed");
  const std::string row = "forward     12.3 ms    4.5 %    0.2 ms";
  EXPECT_EQ(wrapped_line(row, 20), row);
}

TEST(HelpText, OfALineTheMostImportantPartsAreKept) {
  const LinePart parts[] = {{0, "step 1/2"}, {1, "loss 3.0"}, {3, "norm 1.0"}, {2, "5 s left"}};
  EXPECT_EQ(fitted_line(parts, 80), "step 1/2  loss 3.0  norm 1.0  5 s left");
  EXPECT_EQ(fitted_line(parts, 30), "step 1/2  loss 3.0  5 s left");
  EXPECT_EQ(fitted_line(parts, 2), "step 1/2");
}

}  // namespace
}  // namespace trireme::cli
