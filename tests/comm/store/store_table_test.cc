#include "trireme/comm/store/store_table.h"

#include <random>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using wire::Bytes;
using wire::FrameReader;
using wire::FrameWriter;
using wire::Reply;
using wire::Request;

FrameWriter writer_of(Request request) { return FrameWriter(static_cast<uint8_t>(request)); }

// The message without its length.
Bytes message_of(FrameWriter& writer) {
  const Bytes& frame = writer.finish();
  return {frame.begin() + 4, frame.end()};
}

class Table : public testing::Test {
 protected:
  StoreTable::Outcome apply(FrameWriter& writer) { return table_.apply(message_of(writer)); }

  // The fields of a reply, after what it is.
  Bytes ask(FrameWriter& writer, Reply expected = Reply::kDone) {
    const auto outcome = apply(writer);
    EXPECT_TRUE(outcome.reply.has_value());
    if (!outcome.reply || outcome.reply->size() < 5) return {};
    EXPECT_EQ((*outcome.reply)[4], static_cast<uint8_t>(expected));
    return {outcome.reply->begin() + 5, outcome.reply->end()};
  }
  void set(const std::string& key, const std::string& value) {
    FrameWriter writer = writer_of(Request::kSet);
    ask(writer.text(key).text(value));
  }
  std::string get(const std::string& key) {
    FrameWriter writer = writer_of(Request::kGet);
    return FrameReader(ask(writer.number(0).text(key))).text();
  }
  int64_t add(const std::string& key, int64_t value) {
    FrameWriter writer = writer_of(Request::kAdd);
    return FrameReader(ask(writer.text(key).number(value))).number();
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) {
    FrameWriter writer = writer_of(Request::kCompareSet);
    return FrameReader(ask(writer.text(key).text(expected).text(desired))).text();
  }
  StoreTable table_;
};

TEST_F(Table, KeepsTheLastValueOfAKey) {
  set("oars", "three banks");
  EXPECT_EQ(get("oars"), "three banks");
  set("oars", "");
  EXPECT_EQ(get("oars"), "");
  FrameWriter more = writer_of(Request::kAppend);
  ask(more.text("oars").text("two"));
  FrameWriter again = writer_of(Request::kAppend);
  ask(again.text("oars").text(" banks"));
  EXPECT_EQ(get("oars"), "two banks");
}

TEST_F(Table, CountsInDecimalTextAndWraps) {
  EXPECT_EQ(add("n", 5), 5);
  EXPECT_EQ(add("n", -7), -2);
  EXPECT_EQ(get("n"), "-2");
  set("n", "9223372036854775807");
  EXPECT_EQ(add("n", 1), INT64_MIN);
}

TEST_F(Table, ComparesBeforeItSets) {
  EXPECT_EQ(compare_set("flag", "up", "down"), "up") << "no such key: what was expected";
  EXPECT_EQ(compare_set("flag", "", "up"), "up");
  EXPECT_EQ(compare_set("flag", "down", "half"), "up");
  EXPECT_EQ(compare_set("flag", "up", "half"), "half");
}

TEST_F(Table, ChecksCountsAndDeletes) {
  set("a", "1");
  FrameWriter both = writer_of(Request::kCheck);
  EXPECT_EQ(FrameReader(ask(both.text("a").text("b"))).number(), 0);
  set("b", "2");
  FrameWriter now = writer_of(Request::kCheck);
  EXPECT_EQ(FrameReader(ask(now.text("a").text("b"))).number(), 1);
  FrameWriter gone = writer_of(Request::kDelete);
  EXPECT_EQ(FrameReader(ask(gone.text("a"))).number(), 1);
  FrameWriter twice = writer_of(Request::kDelete);
  EXPECT_EQ(FrameReader(ask(twice.text("a"))).number(), 0);
  FrameWriter count = writer_of(Request::kCount);
  EXPECT_EQ(FrameReader(ask(count)).number(), 1);
}

TEST_F(Table, AnswersAWaitWhenTheLastKeyComes) {
  FrameWriter writer = writer_of(Request::kGet);
  auto waiting = apply(writer.number(60'000).text("a").text("b")).waiting;
  ASSERT_TRUE(waiting.has_value());
  const auto now = StoreTable::Clock::now();
  set("b", "2");
  EXPECT_FALSE(table_.retry(*waiting, now).has_value());
  set("a", "1");
  const auto reply = table_.retry(*waiting, now);
  ASSERT_TRUE(reply.has_value());
  FrameReader reader{std::span(*reply).subspan(5)};
  EXPECT_EQ(reader.text(), "1");
  EXPECT_EQ(reader.text(), "2");
}

TEST_F(Table, AKeyThatGoesAwayAgainIsWaitedForAnew) {
  FrameWriter writer = writer_of(Request::kGet);
  auto waiting = apply(writer.number(60'000).text("a").text("b")).waiting;
  set("a", "1");
  const auto now = StoreTable::Clock::now();
  EXPECT_FALSE(table_.retry(*waiting, now).has_value());
  FrameWriter gone = writer_of(Request::kDelete);
  ask(gone.text("a"));
  set("b", "2");
  EXPECT_FALSE(table_.retry(*waiting, now).has_value());
  set("a", "3");
  EXPECT_TRUE(table_.retry(*waiting, now).has_value());
}

TEST_F(Table, ALateWaitNamesTheKeysThatAreMissing) {
  set("a", "1");
  for (const int64_t patience : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    FrameWriter writer = writer_of(Request::kWait);
    const Bytes late = ask(writer.number(patience).text("a").text("b").text("c"), Reply::kLate);
    EXPECT_EQ(FrameReader(late).text(), " b c");
  }
  FrameWriter forever = writer_of(Request::kWait);
  EXPECT_TRUE(apply(forever.number(INT64_MAX).text("b")).waiting.has_value());
}

TEST_F(Table, IsFullAtItsLimitAndKeepsWhatItHas) {
  const std::string megabytes(wire::kMaxFrameBytes - 1000, 'x');
  std::string problem;
  int stored = 0;
  for (; problem.empty() && stored < 100; ++stored) {
    FrameWriter writer = writer_of(Request::kSet);
    const auto outcome = apply(writer.text(std::to_string(stored)).text(megabytes));
    FrameReader reader{std::span(*outcome.reply).subspan(4)};
    if (reader.what() == static_cast<uint8_t>(Reply::kRefused)) problem = reader.text();
  }
  EXPECT_EQ(problem.find("the store is full: it holds "), 0u) << problem;
  EXPECT_EQ(stored, 17);
  // In place of what is there, and after a key has gone, there is room.
  set("0", "small");
  FrameWriter writer = writer_of(Request::kSet);
  ask(writer.text("16").text(megabytes.substr(100)));
}

TEST_F(Table, ValuesThatFitNoMessageAreRefused) {
  const std::string megabytes(wire::kMaxFrameBytes / 2, 'x');
  set("a", megabytes);
  set("b", megabytes);
  FrameWriter writer = writer_of(Request::kGet);
  const Bytes refusal = ask(writer.number(0).text("a").text("b"), Reply::kRefused);
  EXPECT_EQ(FrameReader(refusal).text(), "these values do not fit one message");
}

TEST_F(Table, WhatNoRankSendsChangesNothing) {
  set("key", "value");
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    // A request that is right but for a few bytes, or its end.
    FrameWriter writer(static_cast<uint8_t>(1 + random() % 9));
    Bytes message = message_of(writer.text("other").text("value").number(3));
    for (int i = 0; i < 3; ++i) message[1 + random() % 8] = static_cast<uint8_t>(random());
    message.resize(random() % (message.size() + 1));
    table_.apply(message);
  }
  EXPECT_EQ(get("key"), "value");
  EXPECT_FALSE(table_.apply({}).reply.has_value());
  EXPECT_FALSE(table_.apply(Bytes{0}).reply.has_value());
  EXPECT_FALSE(table_.apply(Bytes{200}).reply.has_value());
}

}  // namespace
}  // namespace trireme::comm
