// Runs a command of the user's at each event, which is how a run reaches a tracker or a pager.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/command_queue.h"

namespace trireme::train::inline internal {

struct EventCommandsConfig {
  TRIREME_KEYS_BEGIN(EventCommandsConfig)
  TRIREME_KEY(std::string, on_start, "", kMayChange, "shell command at the start; \"\" = none")
  TRIREME_KEY(std::string, on_evaluate, "", kMayChange, "shell command after an evaluation")
  TRIREME_KEY(std::string, on_step, "", kMayChange, "shell command after every step")
  TRIREME_KEY(std::string, on_checkpoint, "", kMayChange, "shell command after a checkpoint")
  TRIREME_KEY(std::string, on_stop, "", kMayChange, "shell command at the end")
  TRIREME_KEY(int64_t, timeout_seconds, 60, kMayChange, "kill a command after this long",
              Range{1, 86400})
  TRIREME_KEYS_END()
};

// Commands run on rank 0, one after the other, while training goes on. They get the step's line of
// metrics.jsonl on stdin, and TRIREME_EVENT, TRIREME_STEP, TRIREME_FOLDER and TRIREME_CHECKPOINT in
// their environment. A command that fails is reported and changes nothing else. The run's end waits
// for those that are left.
class EventCommands final : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override;
  void add_keys(Keys& keys) override { keys.add("command", config_); }
  bool is_on() const override;
  void on_start(RunView& run) override { start(run, Event::kStart, config_.on_start); }
  void on_evaluate(RunView& run) override { start(run, Event::kEvaluate, config_.on_evaluate); }
  void on_step(RunView& run) override { start(run, Event::kStep, config_.on_step); }
  void on_checkpoint(RunView& run, const std::filesystem::path& checkpoint) override {
    start(run, Event::kCheckpoint, config_.on_checkpoint, checkpoint.string());
  }
  void on_stop(RunView& run) override;

 private:
  void start(RunView& run, Event event, const std::string& command,
             const std::string& checkpoint = "");
  void report(RunView& run);

  EventCommandsConfig config_;
  std::unique_ptr<CommandQueue> queue_;  // on rank 0, from the first command on
};

}  // namespace trireme::train::inline internal
