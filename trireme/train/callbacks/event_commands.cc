#include "trireme/train/callbacks/event_commands.h"

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::train::inline internal {

std::unique_ptr<Callback> EventCommands::clone() const {
  auto copy = std::make_unique<EventCommands>();
  copy->config_ = config_;
  return copy;
}

bool EventCommands::is_on() const {
  for (const std::string* command : {&config_.on_start, &config_.on_evaluate, &config_.on_step,
                                     &config_.on_checkpoint, &config_.on_stop}) {
    if (!command->empty()) return true;
  }
  return false;
}

void EventCommands::start(RunView& run, Event event, const std::string& command,
                          const std::string& checkpoint) {
  if (run.world().rank() != 0) return;
  if (!command.empty()) {
    if (!queue_)
      queue_ = std::make_unique<CommandQueue>(std::chrono::seconds(config_.timeout_seconds));
    const std::string folder = std::filesystem::absolute(run.folder()).string();
    const std::string name = name_of(kEvents, event);
    queue_->add({.name = "command." + name,
                 .command = command,
                 .input = run.step() > 0 ? to_json(run.metrics()) + "\n" : "",
                 .variables = {concat("TRIREME_EVENT=", name), concat("TRIREME_STEP=", run.step()),
                               concat("TRIREME_FOLDER=", folder),
                               concat("TRIREME_CHECKPOINT=", checkpoint)}});
  }
  report(run);
}

void EventCommands::on_stop(RunView& run) {
  start(run, Event::kStop, config_.on_stop);
  if (!queue_) return;
  queue_->finish();
  report(run);
}

void EventCommands::report(RunView& run) {
  if (!queue_) return;
  for (const std::string& failure : queue_->take_failures()) run.tell(failure);
}

}  // namespace trireme::train::inline internal
