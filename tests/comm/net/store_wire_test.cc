#include "trireme/comm/net/store_wire.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm::wire {
namespace {

TEST(StoreWire, ReadsWhatItWrote) {
  FrameWriter writer(7);
  const Bytes value = {0, 255, 3};
  const Bytes frame = writer.number(-5).text("key").bytes(value).text("").finish();
  ASSERT_EQ(frame_length(frame), frame.size() - 4);
  FrameReader reader{std::span(frame).subspan(4)};
  EXPECT_EQ(reader.what(), 7);
  EXPECT_EQ(reader.number(), -5);
  EXPECT_EQ(reader.text(), "key");
  const auto bytes = reader.bytes();
  EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), value);
  EXPECT_EQ(reader.text(), "");
  EXPECT_TRUE(reader.ok() && reader.at_end());
}

TEST(StoreWire, EveryCutMessageIsNoticedAndNothingIsReadBeyondIt) {
  FrameWriter writer(7);
  const Bytes frame = writer.text("key").number(1).text("value").finish();
  for (size_t cut = 4; cut < frame.size(); ++cut) {
    const Bytes exact(frame.begin() + 4, frame.begin() + cut);  // the sanitizer sees its end
    FrameReader reader(exact);
    reader.what();
    reader.text();
    reader.number();
    reader.text();
    EXPECT_FALSE(reader.ok()) << cut;
  }
}

TEST(StoreWire, ASizeThatIsLargerThanTheMessageIsNoSize) {
  for (const int64_t size : {int64_t{9}, int64_t{1} << 32, INT64_MAX, int64_t{-1}, INT64_MIN}) {
    Bytes message(1 + 8 + 8);
    std::memcpy(message.data() + 1, &size, sizeof(size));
    FrameReader reader(message);
    reader.what();
    EXPECT_TRUE(reader.bytes().empty());
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_EQ(reader.number(), 0) << "all that follow are missing too";
  }
}

TEST(StoreWire, ALengthIsKnownWithItsFourBytes) {
  EXPECT_EQ(frame_length(Bytes{}), std::nullopt);
  EXPECT_EQ(frame_length(Bytes{1, 0, 0}), std::nullopt);
  EXPECT_EQ(frame_length(Bytes{1, 2, 0, 0}), 513u);
  EXPECT_EQ(frame_length(Bytes{255, 255, 255, 255, 9}), 0xffffffffu);
}

TEST(StoreWire, MessagesThatNobodyWouldTakeAreNotMade) {
  FrameWriter writer(1);
  EXPECT_ERROR(ConfigError, writer.bytes(Bytes(kMaxFrameBytes)).finish(),
               "too large for the store");
}

TEST(StoreWire, AProofIsOfTheTokenTheSideAndEverythingThatWasSaid) {
  Greeting greeting;
  Hello hello;
  const Sha256 proof = client_proof("token", greeting, hello);
  EXPECT_EQ(client_proof("token", greeting, hello), proof);
  EXPECT_NE(client_proof("Token", greeting, hello), proof);
  EXPECT_NE(client_proof("", greeting, hello), proof);
  EXPECT_NE(server_proof("token", greeting, hello), proof);
  // Each byte before the proof itself.
  const size_t num_said = sizeof(Greeting) + offsetof(Hello, proof);
  for (size_t i = 0; i < num_said; ++i) {
    Greeting other_greeting = greeting;
    Hello other = hello;
    const bool in_greeting = i < sizeof(Greeting);
    auto* const byte = in_greeting ? reinterpret_cast<uint8_t*>(&other_greeting) + i
                                   : reinterpret_cast<uint8_t*>(&other) + i - sizeof(Greeting);
    *byte ^= 1;
    EXPECT_NE(client_proof("token", other_greeting, other), proof) << i;
  }
}

}  // namespace
}  // namespace trireme::comm::wire
