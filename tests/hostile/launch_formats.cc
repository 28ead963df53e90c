// What agents send each other, and what users write for them: observations of workers, injected
// faults, the watchdog's policy. And made-up networks: their files and their packets.
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "tests/comm/observed.h"
#include "tests/hostile/format.h"
#include "trireme/base/words.h"
#include "trireme/launch/inject/campaign.h"
#include "trireme/launch/inject/injection.h"
#include "trireme/launch/network/network_file.h"
#include "trireme/launch/network/packet_paths.h"
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

// Files of `trireme network`.
class Networks : public Format {
 public:
  std::string name() const override { return "networks"; }

  void write(Random& random) override {
    text_ = launch::example_network();
    damage_text(text_, random);
  }

  void read() override {
    launch::NetworkFile network;
    const bool is_taken =
        expect_refusal_or_sense([&] { network = launch::parse_network(text_, "wan.toml"); });
    if (!is_taken) return;
    const size_t num_hosts = network.hosts.size();
    require(num_hosts >= 2 && num_hosts <= launch::kMostNetworkHosts, "a number of hosts");
    require(network.links.size() <= num_hosts * (num_hosts - 1) / 2, "more lines than pairs");
    for (const launch::NetworkFile::Link& link : network.links) {
      require(link.first < link.second && link.second < num_hosts, "a line to nowhere");
    }
    launch::PacketPaths paths(network);  // every shape is one that a line can have
  }

 private:
  std::string text_;
};

// What the hosts of a network send.
class Packets : public Format {
 public:
  Packets() : paths_(launch::parse_network(launch::example_network(), "example")) {}
  std::string name() const override { return "packets"; }

  void write(Random& random) override {
    packet_.assign(random.below(80), std::byte{0});
    for (std::byte& byte : packet_) byte = std::byte(random.below(256));
    // Else hardly one would be for a host.
    constexpr std::array<uint8_t, 3> kNetwork = {10, 231, 80};
    if (packet_.size() < 20 || random.one_in(4)) return;
    packet_[0] = std::byte{0x45};
    for (size_t i = 0; i < kNetwork.size(); ++i) packet_[16 + i] = std::byte{kNetwork[i]};
    packet_[19] = random.one_in(4) ? std::byte{launch::kControlNumber} : std::byte(random.below(6));
  }

  void read() override {
    now_ns_ += 1'000'000;
    paths_.take(0, now_ns_, packet_);
    while (const auto arrival = paths_.next(now_ns_)) {
      require(arrival->host < 3, "a packet to nowhere");
    }
  }

 private:
  launch::PacketPaths paths_;
  std::vector<std::byte> packet_;
  int64_t now_ns_ = 0;
};

}  // namespace

void add_launch_formats(Formats& formats) {
  formats.push_back(std::make_unique<Observations>());
  formats.push_back(std::make_unique<Injections>());
  formats.push_back(std::make_unique<Networks>());
  formats.push_back(std::make_unique<Packets>());
}

}  // namespace trireme::hostile
