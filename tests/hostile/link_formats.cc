// Messages between an agent and its worker.
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/launch/link/message.h"

namespace trireme::hostile {
namespace {

constexpr const char* kUnread = "refuses what it wrote";

// A message that is taken can be written, and that can be read.
class LinkMessage : public Format {
 public:
  std::string name() const override { return "link"; }

  void write(Random& random) override {
    const std::vector<std::string> valid = {
        to_packet(launch::ToWorker(launch::Join{.epoch = 2,
                                                .rank = 3,
                                                .size = 4,
                                                .local_rank = 1,
                                                .local_size = 2,
                                                .job = "77-abc-2",
                                                .store = "tcp://10.0.0.1:41234",
                                                .reason = "rank 2 was killed by signal 9"})),
        to_packet(launch::ToWorker(launch::Leave{.reason = "\u00fc"})),
        to_packet(launch::ToAgent(launch::Hello{.folder = "/runs/demo"})),
        to_packet(launch::ToAgent(launch::StepDone{.step = 50})),
        to_packet(launch::ToAgent(launch::Left{.step = 49, .error = "rank 2 is lost"})),
        to_packet(launch::ToAgent(launch::Spare{}))};
    const auto& packet = valid[random.below(valid.size())];
    packet_ = damaged_json(nlohmann::ordered_json::parse(packet),
                           static_cast<int>(random.below(3)) - 1, random);
  }

  void read() override {
    launch::ToWorker to_worker;
    if (expect_refusal_or_sense([&] { to_worker = launch::parse_to_worker(packet_, "link"); })) {
      require(
          expect_refusal_or_sense([&] { launch::parse_to_worker(to_packet(to_worker), "link"); }),
          kUnread);
    }
    launch::ToAgent to_agent;
    if (expect_refusal_or_sense([&] { to_agent = launch::parse_to_agent(packet_, "link"); })) {
      require(expect_refusal_or_sense([&] { launch::parse_to_agent(to_packet(to_agent), "link"); }),
              kUnread);
    }
  }

 private:
  std::string packet_;
};

}  // namespace

void add_link_formats(Formats& formats) { formats.push_back(std::make_unique<LinkMessage>()); }

}  // namespace trireme::hostile
