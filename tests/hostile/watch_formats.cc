// What `trireme watch` reads of a run: a metrics.jsonl that changes between two looks, a config.
#include <cmath>

#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/base/words.h"
#include "trireme/train/metrics/logged_step.h"
#include "trireme/watch/read/metric_line.h"
#include "trireme/watch/read/tail.h"
#include "trireme/watch/run/run_config.h"
#include "trireme/watch/run/run_facts.h"
#include "trireme/watch/run/run_notes.h"
#include "trireme/watch/series/metric_columns.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

class WatchedMetrics : public Format {
 public:
  explicit WatchedMetrics(std::filesystem::path folder)
      : path_(folder / "metrics.jsonl"), tail_(path_, {.most_line_bytes = 4096}) {}
  std::string name() const override { return "watch-metrics"; }

  // The reader has read an earlier file, or the beginning of this one.
  void write(Random& random) override {
    std::string text;
    for (int64_t i = 0; i < 8; ++i) {
      const ordered_json line = {{"step", i + 1},       {"loss", 2.5 / (1 + i)},
                                 {"skipped", true},     {"</script>", nullptr},
                                 {"tokens", {1, 2, 3}}, {"epoch", 1 + i / 4}};
      text += (random.one_in(3) ? damaged_json(line, -1, random) : line.dump()) + "\n";
    }
    if (random.one_in(2)) damage_text(text, random);
    put_file(path_, text.substr(0, random.one_in(2) ? random.below(text.size() + 1) : text.size()));
    piece_ = 1 + random.below(8192);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto on_line = [&](std::string_view text) {
        require(text.find('\n') == std::string_view::npos, "two lines as one");
        if (line_.read(text)) columns_.add(line_);
      };
      while (tail_.update(piece_, on_line, [&] { columns_.clear(); }).has_more) {
      }
      check_columns();
    });
  }

 private:
  void check_columns() const {
    for (size_t row = 1; row < columns_.num_rows(); ++row)
      require(columns_.step_at(row - 1) < columns_.step_at(row), "steps that go back");
    for (const std::string& name : columns_.names()) {
      const auto points = columns_.points(name, {.most = 3});
      require(points && points->steps.size() <= 3, "more buckets than asked for");
      for (size_t i = 0; i < points->steps.size(); ++i) {
        const bool is_empty = std::isnan(points->mean[i]);
        require(
            is_empty || (points->min[i] <= points->mean[i] && points->mean[i] <= points->max[i]),
            "a mean that is not between the ends");
      }
    }
  }

  std::filesystem::path path_;
  watch::Tail tail_;
  watch::MetricLine line_;
  watch::MetricColumns columns_;
  uint64_t piece_ = 1;
};

class WatchedConfig : public Format {
 public:
  std::string name() const override { return "watch-config"; }

  void write(Random& random) override {
    text_ =
        "[train]\nsteps = 200\n[parallel]\npipeline = 2\ndata = 4\nshard = 2\ntensor = 3\n"
        "[a]\nlist = [1, 2]\ntime = 2026-11-25T07:00:00Z\n";
    damage_text(text_, random);
    num_ranks_ = static_cast<int64_t>(random.below(100));
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const watch::RunConfig config = watch::parse_run_config(text_, "config.toml");
      const auto axes = watch::mesh_axes_of(config, num_ranks_);
      int64_t ranks = 1;
      for (const watch::AxisSize& axis : axes) ranks *= axis.size;
      require(ranks >= 1 && ranks <= std::max<int64_t>(1, num_ranks_) * (1 << 16),
              "a mesh without bounds");
      for (const auto& place : watch::coordinates_of(axes, num_ranks_))
        require(place.empty() || place.size() == axes.size(), "a rank beside the mesh");
      require(watch::differences_of({&config, &config}).empty(), "a config differs from itself");
    });
  }

 private:
  std::string text_;
  int64_t num_ranks_ = 0;
};

class WatchedNotes : public Format {
 public:
  std::string name() const override { return "watch-notes"; }

  void write(Random& random) override {
    const ordered_json peak = {
        {"step", 3},
        {"rank", 1},
        {"total_bytes", 9},
        {"failed_bytes", 0},
        {"kinds", {{"weights", 9}}},
        {"largest",
         {{{"bytes", 9}, {"kind", "weights"}, {"operator", "empty"}, {"unit", "layers.0"}}}}};
    const ordered_json prediction = {{"step_seconds", 0.5}, {"tokens_per_second", 1e3}};
    peak_ = damaged_json(peak, -1, random);
    prediction_ = damaged_json(prediction, -1, random);
    if (random.one_in(2)) damage_text(peak_, random);
    if (random.one_in(2)) damage_text(prediction_, random);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      for (const auto& [name, value] : watch::parse_prediction(prediction_))
        require(std::isfinite(value) && value >= 0, "a prediction that is no number");
      const auto peak = watch::parse_memory_peak(peak_);
      if (!peak) return;
      require(peak->step >= 0 && peak->rank >= 0 && peak->total_bytes >= 0, "a negative number");
      for (const watch::HeldTensor& each : peak->largest)
        require(each.bytes >= 0, "a tensor of negative size");
    });
  }

 private:
  std::string peak_;
  std::string prediction_;
};

// run.json, and a line of metrics.jsonl on its way to a tracker.
class TrackedRun : public Format {
 public:
  std::string name() const override { return "watch-facts"; }

  void write(Random& random) override {
    const ordered_json facts = {{"version", "0.1.0"}, {"revision", "abc"}, {"libtorch", "2.13"},
                                {"host", "a"},        {"started", 5.5},    {"more", {1, 2}}};
    const ordered_json line = {{"step", 3},
                               {"loss", nullptr},
                               {"skipped", true},
                               {"unit", "tokens"},
                               {"lists", {1, 2.5, "x"}},
                               {"time", 1e9},
                               {"deep", {{"a", 1}}},
                               {"big", 1e300}};
    facts_ = random.one_in(2) ? damaged_json(facts, -1, random) : facts.dump();
    line_ = random.one_in(2) ? damaged_json(line, -1, random) : line.dump();
    if (random.one_in(2)) damage_text(facts_, random);
    if (random.one_in(2)) damage_text(line_, random);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const watch::RunFacts facts = watch::parse_run_facts(facts_);
      for (const std::string& word : {facts.version, facts.revision, facts.libtorch, facts.host})
        require(is_printable(word, 256), "a word that cannot be shown");
      require(facts.started >= 0 && facts.started <= 1e11, "a start at no time");
      const auto logged = train::parse_logged_step(line_);
      if (!logged) return;
      require(logged->step >= 0 && std::isfinite(logged->time), "a step at no time");
      require(logged->values.size() <= line_.size(), "more values than the line has bytes");
    });
  }

 private:
  std::string facts_;
  std::string line_;
};

}  // namespace

void add_watch_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<WatchedMetrics>(folder / "watch"));
  formats.push_back(std::make_unique<WatchedConfig>());
  formats.push_back(std::make_unique<WatchedNotes>());
  formats.push_back(std::make_unique<TrackedRun>());
}

}  // namespace trireme::hostile
