#include "trireme/launch/link/message.h"

#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

const Join kJoin{.epoch = 2,
                 .rank = 1,
                 .size = 4,
                 .local_rank = 1,
                 .local_size = 2,
                 .job = "77-abc-2",
                 .store = "tcp://10.0.0.1:41234",
                 .reason = "rank 2 was killed by signal 9"};

std::string worker_error(std::string_view packet) {
  try {
    parse_to_worker(packet, "link");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LinkMessage, ComesBackAsItWasSent) {
  for (const ToWorker& message : {ToWorker(kJoin), ToWorker(Leave{3, "a \"quoted\" reason"}),
                                  ToWorker(Finish{4, "host b joins"})}) {
    EXPECT_EQ(parse_to_worker(to_packet(message), "link"), message);
  }
  for (const ToAgent& message : {ToAgent(Hello{.folder = "/runs/demo"}), ToAgent(StepDone{1, 50}),
                                 ToAgent(Left{1, 49, "rank 2 is lost"}), ToAgent(Spare{2})}) {
    EXPECT_EQ(parse_to_agent(to_packet(message), "link"), message);
  }
}

TEST(LinkMessage, HasTheKeysOfTheProtocol) {
  EXPECT_EQ(to_packet(ToAgent(Left{1, 49, "lost"})),
            R"({"epoch":1,"error":"lost","message":"left","step":49})");
  EXPECT_EQ(to_packet(ToAgent(Hello{.folder = "/a"})),
            R"({"folder":"/a","message":"hello","version":1})");
  EXPECT_EQ(parse_to_worker(R"({"message":"join","epoch":2,"rank":1,"size":4,"local_rank":1,)"
                            R"("local_size":2,"job":"77-abc-2","store":"tcp://10.0.0.1:41234",)"
                            R"("reason":"rank 2 was killed by signal 9","later":[1]})",
                            "link"),
            ToWorker(kJoin));
}

TEST(LinkMessage, SendsOnlyTextThatItsReaderTakes) {
  const std::string rude = std::string(70'000, '\xff') + "\n\x1b[2J";
  const ToAgent read = parse_to_agent(to_packet(ToAgent(Left{1, 2, rude})), "link");
  EXPECT_LT(std::get<Left>(read).error.size(), 14'000u);
  const ToAgent lines = parse_to_agent(to_packet(ToAgent(Left{1, 2, "a\nb"})), "link");
  EXPECT_EQ(std::get<Left>(lines).error, "a?b");
}

TEST(LinkMessage, RefusesWhatIsNoMessage) {
  EXPECT_EQ(worker_error("[]"),
            "link: the text is an array of 0; expected an object with \"message\"");
  EXPECT_EQ(worker_error(R"({"message":"step","epoch":1,"step":2})"),
            R"(link: message is "step"; expected "join", "leave" or "finish")");
  EXPECT_EQ(worker_error(R"({"message":"leave","epoch":0,"reason":""})"),
            "link: epoch is 0; expected a whole number from 1 to 9223372036854775807");
  EXPECT_EQ(worker_error(R"({"message":"leave","epoch":1})"),
            "link: the text is an object of 2; expected an object with \"reason\"");
  EXPECT_NE(worker_error(std::string(70'000, ' ')), "");
  EXPECT_NE(worker_error(R"({"message":"leave","epoch":1,"reason":[[[[[[1]]]]]]})"), "");
}

TEST(LinkMessage, RefusesRanksThatDoNotFit) {
  EXPECT_EQ(worker_error(to_packet(ToWorker(kJoin))), "");
  EXPECT_EQ(worker_error(to_packet(ToWorker(Join{.rank = 4, .size = 4, .job = "a"}))),
            "link: \"join\" has rank 4 of 4 and local rank 0 of 1; expected a rank below the size "
            "and a host's ranks within the job's");
  EXPECT_NE(worker_error(to_packet(ToWorker(
                Join{.rank = 3, .size = 4, .local_rank = 0, .local_size = 2, .job = "a"}))),
            "");
  EXPECT_NE(worker_error(to_packet(ToWorker(Join{.rank = 0, .size = 1, .job = ""}))), "");
}

}  // namespace
}  // namespace trireme::launch
