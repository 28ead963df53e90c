#include "trireme/train/state/state_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<StateChange> compare(const std::string& before, const std::string& after) {
  return state_changes({before, "a"}, {after, "b"}, tasks::all_tasks());
}

TEST(StateChanges, ListsPositionDataAndConfig) {
  RunConfig config = language_config();
  RunState state{.step = 10, .next_sample = 160, .config = to_toml(config)};
  state.data.checksums["tokens"] = "0123";
  const std::string before = to_json(state);
  EXPECT_THAT(compare(before, before), IsEmpty());
  config.parallel.zero = 2;
  config.output.folder = "elsewhere";
  RunState later{.step = 20, .next_sample = 320, .config = to_toml(config)};
  later.data.checksums["tokens"] = "4567";
  later.callbacks["average"] = "{}";
  const auto found = compare(before, to_json(later));
  const auto of = [&](const std::string& key) {
    for (const StateChange& change : found) {
      if (change.key == key) return change.before + " -> " + change.after;
    }
    return std::string("none");
  };
  EXPECT_EQ(of("step"), "10 -> 20");
  EXPECT_EQ(of("next_sample"), "160 -> 320");
  EXPECT_EQ(of("data.tokens"), "\"0123\" -> \"4567\"");
  EXPECT_EQ(of("callbacks.average"), " -> \"{}\"");
  EXPECT_EQ(of("config.parallel.zero"), "0 -> 2");
  EXPECT_THAT(of("config.output.folder"), HasSubstr("-> 'elsewhere'"));
}

TEST(StateChanges, TakesAnyState) {
  EXPECT_THAT(compare("{}", "{}"), IsEmpty());
  EXPECT_THAT(compare("1", "2"), ElementsAre(StateChange{"", "1", "2"}));
  EXPECT_THAT(compare(R"({"a":{"b":[1,2]}})", R"({"a":{"b":[1,3]}})"),
              ElementsAre(StateChange{"a.b.1", "2", "3"}));
  EXPECT_THAT(compare(R"({"config":7})", R"({"config":8})"),
              ElementsAre(StateChange{"config", "7", "8"}));
  EXPECT_THAT(harness::message_of<CheckpointError>([&] { compare("{", "{}"); }), HasSubstr("a"));
}

TEST(StateChanges, SaysWhyConfigsCannotBeCompared) {
  const std::string own = to_json({.config = to_toml(language_config())});
  const auto other = compare(own, to_json({.config = "[task]\nname = \"sing\"\n"}));
  EXPECT_THAT(other,
              ElementsAre(AllOf(Field(&StateChange::key, "config"), Field(&StateChange::before, ""),
                                Field(&StateChange::after, HasSubstr("sing")))));
  const auto vision = compare(own, to_json({.config = "[task]\nname = \"vision\"\n"}));
  EXPECT_THAT(vision, ElementsAre(StateChange{"config.task.name", "language", "vision"}));
}

}  // namespace
}  // namespace trireme::train
