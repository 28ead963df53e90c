#include "trireme/launch/output/output.h"

#include <future>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

// Reads nothing until it is opened.
class Reader final : public AgentObserver {
 public:
  void on_line(const std::string& line, bool is_error) override {
    if (!is_error) gate_.get_future().wait();
    const std::lock_guard lock(mutex_);
    if (!is_error) gate_ = opened();
    (is_error ? errors : lines).push_back(line);
  }
  void open() { gate_.set_value(); }

  std::vector<std::string> lines;
  std::vector<std::string> errors;

 private:
  static std::promise<void> opened() {
    std::promise<void> gate;
    gate.set_value();
    return gate;
  }
  std::mutex mutex_;
  std::promise<void> gate_;
};

TEST(Terminal, ShowsLinesInOrder) {
  const auto reader = std::make_shared<Reader>();
  reader->open();
  Terminal terminal(reader);
  terminal.show("one");
  terminal.show("two");
  terminal.show("bad", /*is_error=*/true);
  terminal.finish();
  EXPECT_EQ(reader->lines, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(reader->errors, std::vector<std::string>{"bad"});
}

TEST(Terminal, CountsWhatNobodyReads) {
  const auto reader = std::make_shared<Reader>();
  Terminal terminal(reader);
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) terminal.show(std::string(1000, 'x'));
  terminal.show("an error comes through", /*is_error=*/true);
  terminal.finish();  // gives up
  EXPECT_EQ(reader->errors, std::vector<std::string>{"an error comes through"});
  EXPECT_TRUE(reader->lines.empty());
  reader->open();
  terminal.finish();
  ASSERT_GT(reader->lines.size(), 100u);  // about a megabyte
  ASSERT_LT(reader->lines.size(), 2000u);
  const std::string note =
      "run     " + std::to_string(kLines - static_cast<int>(reader->lines.size()) + 1) +
      " lines are left out here, because nobody read them; `trireme logs` shows them";
  EXPECT_EQ(reader->lines.back(), note);
}

}  // namespace
}  // namespace trireme::launch
