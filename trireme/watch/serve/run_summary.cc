#include "trireme/watch/serve/run_summary.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/watch/run/alerts.h"
#include "trireme/watch/run/straggler.h"

namespace trireme::watch {
namespace {

const char* words_of(RunState state) {
  switch (state) {
    case RunState::kRunning: return "The run goes on";
    case RunState::kFinished: return "The run is finished";
    case RunState::kStopped: return "The run has ended before its last step";
    case RunState::kCrashed: return "The run has crashed";
    case RunState::kStalled: return "The run makes no progress";
    case RunState::kUnknown: return "Nothing says whether the run lives";
  }
  return "";
}

std::string loss_words(const MetricColumns& metrics) {
  const auto last = metrics.last("loss");
  if (!last) return "";
  if (!std::isfinite(last->second))
    return concat(" The loss of step ", metrics.step_at(last->first), " is not finite.");
  const double first = metrics.value("loss", 0);
  if (last->first == 0 || !std::isfinite(first)) return format(" The loss is %.4g.", last->second);
  return format(" The loss went from %.4g to %.4g.", first, last->second);
}

std::string speed_words(const MetricColumns& metrics) {
  const std::string name = speed_column(metrics);
  const auto last = metrics.last(name);
  if (!last || !std::isfinite(last->second)) return "";
  const bool is_large = last->second >= 1000;
  return format(is_large ? " It processed %.0f %s a second in its last step."
                         : " It processed %.4g %s a second in its last step.",
                last->second, name.substr(0, name.rfind("_per_second")).c_str());
}

std::string straggler_words(WatchedRun& run) {
  const int64_t num_ranks = run.num_ranks();
  int64_t count = 1;  // on the mesh: servers and teachers are not
  for (const AxisSize& axis : run.axes())
    count = std::min(num_ranks, count * std::clamp<int64_t>(axis.size, 1, num_ranks));
  const auto slow = find_straggler(run.series().ranks(), stages_of(run.axes(), count), count);
  if (!slow) return "";
  return concat(" Rank ", slow->rank, format(" computes %.2f times as long", slow->ratio),
                " as the median of its peers.");
}

}  // namespace

std::string run_summary(WatchedRun& run) {
  const StateVerdict& verdict = run.verdict();
  std::string text =
      concat(words_of(verdict.state), verdict.why.empty() ? "" : ": ", verdict.why, ".",
             loss_words(run.metrics()), speed_words(run.metrics()), straggler_words(run));
  if (run.goodput().share)
    text += format(" %.1f %% of its time was training.", 100 * *run.goodput().share);
  if (const auto& alerts = run.alerts(); !alerts.empty()) {
    text += concat(" ", alerts.size(), alerts.size() == 1 ? " alert" : " alerts",
                   ", the last: ", alerts.back().text, ".");
  }
  return text;
}

}  // namespace trireme::watch
