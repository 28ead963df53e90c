#include "trireme/cli/watch/alert_command.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr int64_t kNoStep = -1;

// What a shell can hold in a variable: the kind is ours, a folder's name is anybody's.
std::string without_zero(std::string text) { return text.substr(0, text.find('\0')); }

}  // namespace

AlertCommand::AlertCommand(AlertCommandOptions options)
    : options_(std::move(options)), queue_(options_.timeout, "--alert-timeout") {}

void AlertCommand::start(const std::string& name, watch::WatchedRun& run,
                         const watch::Alert& alert) {
  const std::string folder = std::filesystem::absolute(run.folder()).string();
  const auto now = std::chrono::steady_clock::now();
  auto [last, is_new] = last_.try_emplace(Kind(folder, alert.kind));
  if (!is_new && now - last->second.time < options_.interval) {
    ++last->second.num_left_out;
    return;
  }
  const nlohmann::ordered_json line = {{"run", name},
                                       {"folder", folder},
                                       {"kind", alert.kind},
                                       {"step", alert.step},
                                       {"time", alert.time},
                                       {"text", alert.text},
                                       {"left_out", last->second.num_left_out}};
  last->second = {.time = now};
  queue_.add({.name = "--on-alert",
              .command = options_.command,
              .input = line.dump(-1, ' ', /*ensure_ascii=*/true,
                                 nlohmann::ordered_json::error_handler_t::replace) +
                       "\n",
              .variables = {concat("TRIREME_ALERT=", alert.kind),
                            concat("TRIREME_RUN=", without_zero(name)),
                            concat("TRIREME_STEP=", alert.step),
                            concat("TRIREME_FOLDER=", without_zero(folder))}});
}

// An alert is one of a run, kind and step, and one that lasts is one of a run and kind. Those that
// have gone, as a run that went back has it, may come again.
void AlertCommand::look(watch::RunList& runs) {
  std::set<std::tuple<std::string, std::string, int64_t>> now;
  for (size_t i = 0; i < runs.size(); ++i) {
    watch::WatchedRun& run = runs.run(i);
    for (const watch::Alert& alert : run.alerts()) {
      const int64_t step = alert.lasts ? kNoStep : alert.step;
      const auto key = std::tuple(run.folder().string(), alert.kind, step);
      const bool is_new = now.insert(key).second && !seen_.contains(key);
      if (is_new && (alert.lasts || alert.time >= options_.since)) start(runs.name(i), run, alert);
    }
  }
  seen_ = std::move(now);
}

}  // namespace trireme::cli
