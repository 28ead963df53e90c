// What agents send each other, and what users write for them: observations of workers, injected
// faults, the watchdog's policy.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/comm/observed.h"
#include "tests/hostile/format.h"
#include "trireme/base/words.h"
#include "trireme/launch/inject/campaign.h"
#include "trireme/launch/inject/injection.h"
#include "trireme/launch/watchdog/classify.h"
#include "trireme/launch/watchdog/observation.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

class Observations : public Format {
 public:
  Observations() {
    auto ranks = comm::run_of(3);
    ranks[0].call("all_reduce", 60);
    ranks[2].message("recv", 1, 7, 61);
    std::vector<launch::Observation> observations;
    for (const comm::ObservedRank& rank : observed(ranks)) {
      observations.push_back({.rank = rank.ring.rank,
                              .host = "b",
                              .process_id = rank.ring.process_id,
                              .has_ring = true,
                              .idle = std::chrono::hours(1),
                              .windows = {{1, {}, {}}, {21, {}, {}}, {41, {}, {}}},
                              .evidence = rank});
    }
    valid_ = ordered_json::parse(to_json(observations));
  }
  std::string name() const override { return "observations"; }

  void write(Random& random) override {
    text_ = damaged_json(valid_, static_cast<int>(random.below(3)) - 1, random);
  }

  void read() override {
    std::vector<launch::Observation> found;
    const bool taken =
        expect_refusal_or_sense([&] { found = launch::parse_observations(text_, "a heartbeat"); });
    if (!taken) return;
    require(to_json(launch::parse_observations(to_json(found), "text")) == to_json(found),
            "does not read what it wrote");
    // The leader's own rule: each rank once.
    std::vector<int> ranks;
    for (const launch::Observation& rank : found) {
      if (std::ranges::find(ranks, rank.rank) != ranks.end()) return;
      ranks.push_back(rank.rank);
    }
    for (const launch::Fault& fault : launch::classify(found, {})) {
      require(is_printable(fault.evidence), "evidence that moves the cursor");
    }
  }

 private:
  ordered_json valid_;
  std::string text_;
};

class Injections : public Format {
 public:
  std::string name() const override { return "injections"; }

  void write(Random& random) override {
    text_ =
        "kill rank=1 at step=50; stop host=b for 20s after 1.5m; delay host=any by 50ms for 1h; "
        "loss host=b by 2.5% for 200ms in save after 1s; kill agent host=a signal=15 within 2h";
    if (random.one_in(3)) text_ = "campaign seed=7 events=200 pause=5s..15s";
    if (random.one_in(4)) text_ = "hang=exclude, hang-after=60, slower-by=2, crash=stop";
    damage_text(text_, random);
  }

  void read() override {
    expect_refusal_or_sense([&] { launch::parse_policy(text_); });
    if (launch::is_campaign(text_)) {
      expect_refusal_or_sense([&] { launch::draw(launch::parse_campaign(text_, 2)); });
      return;
    }
    expect_refusal_or_sense([&] {
      for (const launch::Injection& injection : launch::parse_injections(text_)) {
        const std::string text = to_string(injection);
        require(to_string(launch::parse_injections(text).at(0)) == text, "does not read " + text);
      }
    });
  }

 private:
  std::string text_;
};

}  // namespace

void add_launch_formats(Formats& formats) {
  formats.push_back(std::make_unique<Observations>());
  formats.push_back(std::make_unique<Injections>());
}

}  // namespace trireme::hostile
