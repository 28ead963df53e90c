#include "trireme/watch/serve/prometheus.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/watch/run/run_facts.h"
#include "trireme/watch/serve/meanings.h"

namespace trireme::watch {
namespace {

constexpr size_t kMostMetrics = 500;  // of a run
constexpr int64_t kMostRanks = 4096;

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return format("%.17g", value);
}

// All samples of a name stand together, below one HELP and one TYPE.
class Families {
 public:
  void add(const std::string& name, const std::string& help, const std::string& labels,
           double value) {
    auto [place, is_new] = families_.try_emplace(name);
    if (is_new) place->second.help = help;
    // Two names may become one, and a reader refuses all when a sample comes twice.
    if (place->second.labels.insert(labels).second)
      place->second.samples += concat(name, "{", labels, "} ", number_text(value), "\n");
  }
  std::string text() const {
    std::string all;
    for (const auto& [name, family] : families_) {
      if (!family.help.empty())
        all += concat("# HELP ", name, " ", prometheus_help(family.help), "\n");
      all += concat("# TYPE ", name, " gauge\n", family.samples);
    }
    return all;
  }

 private:
  struct Family {
    std::string help{};
    std::string samples{};
    std::set<std::string> labels{};
  };
  std::map<std::string, Family> families_;
};

void add_rank_families(Families& families, const RankBlocks& ranks, const std::string& run) {
  for (const std::string& column : ranks.columns()) {
    const auto values = ranks.values_at(column, std::numeric_limits<int64_t>::max());
    if (!values) continue;
    const std::string name = "trireme_rank_" + prometheus_name(column);
    const auto count = std::min(kMostRanks, static_cast<int64_t>(values->values.size()));
    for (int64_t rank = 0; rank < count; ++rank) {
      families.add(name, meaning_of("ranks/" + column), concat(run, ",rank=\"", rank, "\""),
                   values->values[static_cast<size_t>(rank)]);
    }
  }
}

}  // namespace

std::string prometheus_name(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const bool is_allowed =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    result += is_allowed ? c : '_';
  }
  return result;
}

namespace {

std::string escaped(std::string_view whole, bool with_quotes) {
  std::string result;
  for (size_t at = 0; at < whole.size();) {
    const size_t size = utf8_character_bytes(whole.substr(at));
    if (size == 0) {
      result += '?';
      ++at;
      continue;
    }
    if (whole[at] == '\n') {
      result += "\\n";
    } else {
      if (whole[at] == '\\' || (with_quotes && whole[at] == '"')) result += '\\';
      result += whole.substr(at, size);
    }
    at += size;
  }
  return result;
}

}  // namespace

std::string prometheus_label(std::string_view value) {
  return escaped(value, /*with_quotes=*/true);
}

std::string prometheus_help(std::string_view text) { return escaped(text, /*with_quotes=*/false); }

std::string prometheus_text(RunList& runs) {
  Families families;
  for (size_t i = 0; i < runs.size(); ++i) {
    WatchedRun& run = runs.run(i);
    const std::string label = concat("run=\"", prometheus_label(runs.name(i)), "\"");
    for (const auto& state : kRunStates) {
      families.add("trireme_run_state", "1 for the state that the run is in",
                   concat(label, ",state=\"", state.name, "\""),
                   run.verdict().state == state.value ? 1 : 0);
    }
    const RunFacts facts = read_run_facts(run.folder() / kRunFactsFile);
    families.add("trireme_run_info", "1, with the version and git revision that made the run",
                 concat(label, ",version=\"", prometheus_label(facts.version), "\",revision=\"",
                        prometheus_label(facts.revision), "\""),
                 1);
    families.add("trireme_step", "number of the last finished step", label,
                 static_cast<double>(run.last_step()));
    families.add("trireme_alerts", "alerts of the run so far", label,
                 static_cast<double>(run.alerts().size()));
    if (const auto share = run.goodput().share)
      families.add("trireme_goodput", "share of the time in steps that were kept", label, *share);
    size_t count = 0;
    for (const std::string& name : run.metrics().names()) {
      if (++count > kMostMetrics) break;
      families.add("trireme_" + prometheus_name(name), meaning_of(name), label,
                   run.metrics().last(name)->second);
    }
    add_rank_families(families, run.series().ranks(), label);
  }
  return families.text();
}

}  // namespace trireme::watch
