#include "trireme/launch/inject/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(std::string_view text) {
  try {
    parse_injections(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Injection, TheExampleIsRead) {
  const auto all =
      parse_injections("kill rank=1 at step=50; stop rank=2 for 20s; partition host=b for 10s");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], (Injection{.rank = 1, .trigger = Trigger::kAtStep, .step = 50}));
  EXPECT_EQ(all[1], (Injection{.fault = InjectedFault::kStop, .rank = 2, .duration = 20s}));
  EXPECT_EQ(all[2], (Injection{.fault = InjectedFault::kPartition,
                               .target = Target::kHost,
                               .host = "b",
                               .duration = 10s}));
}

TEST(Injection, EveryFormIsWrittenAsItIsRead) {
  const std::vector<std::string> forms = {"kill rank=1",
                                          "kill rank=any signal=15 in save",
                                          "kill host=b in recovery after 1m",
                                          "kill agent host=10.0.0.1:29500 within 1h",
                                          "kill host=any after 1500ms",
                                          "stop rank=0 for 20s at step=7",
                                          "stop host=b for 200ms",
                                          "exit rank=3 code=7 after 90s",
                                          "partition host=any for 10s",
                                          "delay host=b by 50ms for 1m",
                                          "loss host=b by 2.5% for 10s in save",
                                          "fill host=b for 5s",
                                          "leave host=b at step=1",
                                          "join host=c after 2h"};
  std::string text;
  for (const std::string& form : forms) {
    const auto read = parse_injections(form);
    ASSERT_EQ(read.size(), 1u) << form;
    EXPECT_EQ(to_string(read[0]), form);
    text += form + " ;";
  }
  EXPECT_EQ(parse_injections(text).size(), forms.size());
  EXPECT_TRUE(parse_injections(" ; ;").empty());
}

TEST(Injection, ErrorsShowThePlaceAndWhatMayStandThere) {
  const std::vector<std::pair<const char*, const char*>> errors = {
      {"kil rank=1", "\"kil\" at character 1"},
      {"kill rnk=1", "\"rnk=1\" at character 6 of \"kill rnk=1\"; expected rank=N, host=NAME"},
      {"kill", "nothing at character 5"},
      {"kill rank=", "nothing at character 11"},
      {"kill rank=1 at stp=5", "\"stp=5\" at character 16"},
      {"kill rank=1 at step=0", "whole number from 1"},
      {"kill rank=-1", "\"-1\" at character 11"},
      {"kill rank=1 signal=65", "from 1 to 64"},
      {"kill rank=1 kill rank=2", "expected \";\""},
      {"kill rank=1; stop rank=2", "expected for TIME"},
      {"stop rank=2 for 0s", "a time above zero"},
      {"stop rank=2 for ever", "\"ever\" at character 17"},
      {"exit host=b", "expected rank=N or rank=any"},
      {"partition rank=1 for 2s", "expected host=NAME or host=any"},
      {"partition host=a/b for 2s", "a host's name"},
      {"delay host=b for 2s", "expected by TIME"},
      {"loss host=b by 5 for 2s", "a percentage"},
      {"loss host=b by 101% for 2s", "from 0 to 100"},
      {"kill rank=1 in step", "expected save or recovery"},
      {"kill agent rank=1", "expected host=NAME or host=any"},
      {"kill rank=1;;x", "\"x\" at character 14"},
  };
  for (const auto& [text, part] : errors) {
    EXPECT_THAT(error_of(text),
                AllOf(HasSubstr("--inject: "), HasSubstr(part), Not(HasSubstr("\n"))))
        << text;
  }
  EXPECT_THAT(error_of(std::string(70000, ' ')), HasSubstr("70000 bytes"));
  std::string many;
  for (int i = 0; i < 1025; ++i) many += "kill rank=1;";
  EXPECT_THAT(error_of(many), HasSubstr("at most 1024"));
}

}  // namespace
}  // namespace trireme::launch
