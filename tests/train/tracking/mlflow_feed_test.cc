#include "trireme/train/tracking/mlflow_feed.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/tracking/fake_mlflow.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr auto kLong = 60s;  // only a hang reaches it
constexpr FeedOptions kQuick{
    .gather = 1ms, .first_pause = 1ms, .longest_pause = 20ms, .failing_patience = kLong};

std::string line_of(int step) {
  return concat("{\"step\": ", step, ", \"loss\": ", 1.0 / step,
                ", \"grad_norm\": null, \"time\": ", 1000 + step, ".25}");
}

MlflowStart start_of_feed() {
  return {.experiment = "tests", .run_name = "demo", .identity = "aa11", .time_ms = 5};
}

template <typename Condition>
void await(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(condition());
}

TEST(MlflowFeed, SendsEveryValueAndTheEnd) {
  FakeMlflow fake;
  MlflowFeed feed({.url = fake.url()}, start_of_feed(), kQuick);
  constexpr int kSteps = 2500;  // several calls
  for (int step = 1; step <= kSteps; ++step) feed.add(line_of(step));
  feed.add("not a line");
  feed.finish("FINISHED", kLong);
  EXPECT_THAT(feed.take_problems(), testing::IsEmpty());
  EXPECT_EQ(feed.num_sent(), 2 * kSteps);
  EXPECT_EQ(feed.num_dropped(), 0);
  const FakeMlflow::Run run = fake.run();
  ASSERT_EQ(run.metrics.size(), size_t{2 * kSteps});
  for (int step = 1; step <= kSteps; ++step) {
    const nlohmann::json& loss = run.metrics[2 * static_cast<size_t>(step) - 2];
    EXPECT_EQ(loss["key"], "loss");
    EXPECT_EQ(loss["step"], step);
    EXPECT_EQ(loss["value"].get<double>(), std::stod(concat(1.0 / step)));
    EXPECT_EQ(loss["timestamp"], 1000000 + 1000 * step + 250);
  }
  EXPECT_EQ(run.status, "FINISHED");
  EXPECT_GT(run.end_time, 0);
}

TEST(MlflowFeed, AServerThatFailsForATimeLosesNothing) {
  FakeMlflow fake;
  fake.answer_all(remote::plain_answer("500 Oops", "", "trouble"));
  MlflowFeed feed({.url = fake.url()}, start_of_feed(), kQuick);
  for (int step = 1; step <= 10; ++step) feed.add(line_of(step));
  await([&] { return fake.num_requests() >= 3; });
  fake.answer_all("");
  await([&] { return feed.num_sent() > 0; });
  fake.answer_all(remote::plain_answer("503 Oops"));
  for (int step = 11; step <= 20; ++step) feed.add(line_of(step));
  const int before = fake.num_requests();
  await([&] { return fake.num_requests() >= before + 3; });
  fake.answer_all("");
  feed.finish("KILLED", kLong);
  EXPECT_EQ(feed.num_sent(), 40);
  EXPECT_EQ(feed.num_dropped(), 0);
  EXPECT_EQ(fake.run().status, "KILLED");
  EXPECT_THAT(feed.take_problems(), testing::ElementsAre(HasSubstr("HTTP 500")));  // one line
}

TEST(MlflowFeed, WhatAServerNeverTakesIsCounted) {
  for (const char* answer : {"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n",
                             "HTTP/1.1 403 x\r\nContent-Length: 0\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<ht>", "nonsense"}) {
    FakeMlflow fake;
    fake.answer_all(answer);
    MlflowFeed feed({.url = fake.url()}, start_of_feed(), kQuick);
    for (int step = 1; step <= 10; ++step) feed.add(line_of(step));
    await([&] { return fake.num_requests() >= 1; });
    feed.finish("FINISHED", 300ms);
    EXPECT_EQ(feed.num_sent(), 0);
    EXPECT_EQ(feed.num_dropped(), 20);
    const std::vector<std::string> problems = feed.take_problems();
    ASSERT_EQ(problems.size(), 2U) << answer;
    EXPECT_THAT(problems[0], HasSubstr("tracking.mlflow"));
    EXPECT_THAT(problems[1], HasSubstr("has not got 20 values"));
    EXPECT_THAT(problems[1], HasSubstr("trireme track mlflow"));
  }
}

TEST(MlflowFeed, RefusedValuesAreDroppedAndLaterOnesGo) {
  FakeMlflow fake;
  MlflowFeed feed({.url = fake.url()}, start_of_feed(), kQuick);
  feed.add(line_of(1));
  await([&] { return feed.num_sent() == 2; });
  fake.answer_all(
      remote::plain_answer("400 x", "", R"({"error_code": "INVALID_PARAMETER_VALUE"})"));
  feed.add(line_of(2));
  await([&] { return feed.num_dropped() == 2; });
  fake.answer_all("");
  feed.add(line_of(3));
  feed.finish("FINISHED", kLong);
  EXPECT_EQ(feed.num_sent(), 4);
  const std::vector<std::string> problems = feed.take_problems();
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_THAT(problems[0], HasSubstr("INVALID_PARAMETER_VALUE"));
  EXPECT_THAT(problems[1], HasSubstr("has not got 2 values"));
}

TEST(MlflowFeed, AServerThatNeverAnswersHoldsNeitherStepsNorTheEnd) {
  // It takes the request, and says nothing until the test is over.
  std::atomic<bool> is_over = false;
  remote::ScriptedServer server([&](const std::string&) {
    while (!is_over) std::this_thread::sleep_for(1ms);
    return std::string();
  });
  MlflowFeed feed({.url = server.url(), .patience = kLong}, start_of_feed(), kQuick);
  for (int step = 1; step <= 100; ++step) feed.add(line_of(step));
  feed.finish("FINISHED", 100ms);
  EXPECT_EQ(feed.num_dropped(), 200);
  is_over = true;
}

TEST(MlflowFeed, WhatWaitsIsBounded) {
  FakeMlflow fake;
  fake.answer_all(remote::plain_answer("500 Oops"));
  FeedOptions options = kQuick;
  options.most_waiting_bytes = 10 * line_of(1).size();
  MlflowFeed feed({.url = fake.url()}, start_of_feed(), options);
  for (int i = 0; i < 1000; ++i) feed.add(line_of(1));
  EXPECT_EQ(feed.num_dropped(), 2 * 990);
  fake.answer_all("");
  feed.finish("FINISHED", kLong);
  EXPECT_EQ(feed.num_sent(), 20);
}

TEST(MlflowFeed, TheEndDoesNotWaitLongForAServerThatFails) {
  FakeMlflow fake;
  fake.answer_all(remote::plain_answer("500 Oops"));
  FeedOptions options = kQuick;
  options.failing_patience = 1ms;
  MlflowFeed feed({.url = fake.url()}, start_of_feed(), options);
  feed.add(line_of(1));
  await([&] { return fake.num_requests() >= 2; });
  feed.finish("FINISHED", std::chrono::hours(1));  // only a hang reaches it
  EXPECT_EQ(feed.num_sent(), 0);
  EXPECT_EQ(feed.num_dropped(), 2);
}

TEST(MlflowFeed, ThatIsLeftEndsAtOnce) {
  FakeMlflow fake;
  fake.answer_all(remote::plain_answer("500 Oops"));
  FeedOptions options = kQuick;
  options.first_pause = options.longest_pause = std::chrono::hours(1);
  const auto begin = std::chrono::steady_clock::now();
  {
    MlflowFeed feed({.url = fake.url()}, start_of_feed(), options);
    feed.add(line_of(1));
    await([&] { return fake.num_requests() >= 1; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong);
}

}  // namespace
}  // namespace trireme::train
