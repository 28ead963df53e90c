#include "trireme/watch/serve/answers.h"

#include <iterator>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/watch/serve/file_answers.h"
#include "trireme/watch/serve/rank_answers.h"
#include "trireme/watch/serve/run_answers.h"
#include "trireme/watch/serve/series_answers.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

struct AnswerPath {
  std::string_view path;
  ordered_json (*answer)(RunList& runs, const Parameters& parameters);
};
constexpr AnswerPath kAnswers[] = {{"/api/runs", runs_answer},
                                   {"/api/run", run_answer},
                                   {"/api/series", series_answer},
                                   {"/api/ranks", ranks_answer},
                                   {"/api/waits", waits_answer},
                                   {"/api/experts", experts_answer},
                                   {"/api/straggler", straggler_answer},
                                   {"/api/events", events_answer},
                                   {"/api/log", log_answer},
                                   {"/api/calls", calls_answer},
                                   {"/api/compare", compare_answer},
                                   {"/api/profile", profile_answer},
                                   {"/api/memory", memory_answer}};

}  // namespace

std::vector<std::string> answer_paths() {
  std::vector<std::string> paths;
  for (const AnswerPath& each : kAnswers) paths.emplace_back(each.path);
  return paths;
}

ordered_json answer(RunList& runs, std::string_view path, const Parameters& parameters) {
  for (const AnswerPath& each : kAnswers) {
    if (each.path == path) return each.answer(runs, parameters);
  }
  throw ConfigError(concat("there is no path ", shown(path)));
}

std::string to_line(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

WatchedRun& asked_run(RunList& runs, const Parameters& parameters) {
  const auto last = static_cast<int64_t>(runs.size()) - 1;
  return runs.run(static_cast<size_t>(parameters.whole("run", 0, 0, last)));
}

}  // namespace trireme::watch
