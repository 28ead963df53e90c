// What `trireme logs` and `trireme doctor` read of a run that `trireme run` has started.
#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/launch/journal/event.h"
#include "trireme/launch/journal/log_line.h"
#include "trireme/launch/journal/log_reader.h"
#include "trireme/launch/journal/story.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

launch::WallTime time_at_second(uint64_t seconds) {
  return std::chrono::sys_days(std::chrono::year(2026) / 11 / 25) + std::chrono::seconds(seconds);
}

class Events : public Format {
 public:
  explicit Events(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "events"; }

  void write(Random& random) override {
    std::string text;
    for (uint64_t i = 0; i < 6; ++i) {
      const launch::Event event{.time = time_at_second(10 * i),
                                .kind = random.pick(launch::kEventKinds).value,
                                .epoch = 1 + static_cast<int64_t>(i / 3),
                                .step = static_cast<int64_t>(i),
                                .host = "b",
                                .rank = 3,
                                .seconds = 1.5,
                                .cause = "killed",
                                .text = "rank 3 was killed by signal 9"};
      const std::string line = launch::to_json_line(event);
      text += random.one_in(3) ? damaged_json(ordered_json::parse(line), -1, random) + "\n" : line;
    }
    if (random.one_in(2)) damage_text(text, random);
    put_file(folder_ / launch::kEventFileName, text);
    put_file(folder_ / launch::kLogFolderName / "other", "");
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const launch::EventLog log = launch::read_events(folder_);
      const launch::Story story = launch::story_of(log);
      double accounted = story.kept_seconds + story.start_seconds;
      for (const launch::CauseShare& share : story.causes) accounted += share.lost_seconds();
      require(std::abs(accounted - story.wall_seconds) <= 1e-6 * (1 + story.wall_seconds),
              "time that nothing accounts for");
      for (const launch::Event& event : log.events) {
        const std::string line = launch::to_json_line(event);
        require(launch::to_json_line(launch::parse_event(line, "again")) == line,
                "an event does not read back as it was written");
      }
    });
    expect_refusal_or_sense([&] { launch::LogReader(folder_, {}).has_ended(); });
  }

 private:
  std::filesystem::path folder_;
};

class Logs : public Format {
 public:
  explicit Logs(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "logs"; }

  void write(Random& random) override {
    std::filesystem::remove_all(folder_);
    num_bytes_ = 0;
    for (const std::string& name : {launch::rank_log_name(0), launch::rank_log_name(0) + ".1",
                                    launch::rank_log_name(1), launch::agent_log_name("b")}) {
      std::string text;
      for (uint64_t i = 0; i < 6; ++i) {
        text += launch::to_text(launch::LogLine{
            time_at_second(random.below(60)), 1, static_cast<int64_t>(i), launch::LogStream::kErr,
            random.one_in(4) ? "Traceback (most recent call last):" : "  loss 2.5"});
      }
      if (!random.one_in(3)) damage_text(text, random);
      num_bytes_ += text.size();
      put_file(folder_ / launch::kLogFolderName / name, text);
    }
    words_ = {"0,5-7", "10m", "2026-11-25T07:12", "(a|b)*c{2,3}[x-z]"};
    for (std::string& word : words_) damage_text(word, random);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      launch::LogReader reader(folder_, {});
      size_t num_bytes = 0;
      while (const auto entry = reader.next()) {
        require(entry->line.text.find('\n') == std::string::npos, "two lines as one");
        num_bytes += entry->line.text.size();
      }
      require(num_bytes <= num_bytes_, "more text than the files have");
    });
    for (const std::string& word : words_) {
      expect_refusal_or_sense([&] { launch::parse_ranks(word, "--rank"); });
      expect_refusal_or_sense([&] { launch::parse_since(word, "--since", time_at_second(0)); });
      expect_refusal_or_sense([&] { launch::parse_pattern(word, "--grep")("abcccxyz"); });
    }
  }

 private:
  std::filesystem::path folder_;
  size_t num_bytes_ = 0;
  std::vector<std::string> words_;
};

}  // namespace

void add_journal_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Events>(folder / "events"));
  formats.push_back(std::make_unique<Logs>(folder / "logs"));
}

}  // namespace trireme::hostile
