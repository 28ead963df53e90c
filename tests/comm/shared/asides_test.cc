#include "trireme/comm/shared/message_rings.h"

#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/shared/heap.h"

namespace trireme::comm {
namespace {

constexpr size_t kPiece = MessageRings::kPieceBytes;

// Two ranks' views of the same rings; rank 0 sends, rank 1 receives.
class AsidesTest : public testing::Test {
 protected:
  AsidesTest() {
    const SegmentSize size = MessageRings::segment_size(2);
    const auto segment = make_thread_segments()->create("rings", 0, size);
    sender_.emplace(segment, 0, size.committed, 0, 2);
    receiver_.emplace(segment, 0, size.committed, 1, 2);
    asides_.emplace(*receiver_);
  }

  static Letter letter_of(size_t num_bytes, int tag) {
    Letter letter;
    letter.num_bytes = num_bytes;
    letter.place = Heap::kOrdinary;
    letter.tag = tag;
    return letter;
  }
  // Writes piece `number`, all of it `value`.
  void write_piece(Envelope& envelope, size_t number, int value) {
    std::memset(sender_->piece_to(1, envelope, number).data(), value, kPiece);
    envelope.written.store(static_cast<uint32_t>(number + 1));
  }

  std::optional<MessageRings> sender_;
  std::optional<MessageRings> receiver_;
  std::optional<Asides> asides_;
};

TEST_F(AsidesTest, MessagesOfASourceAndTagAreTakenInTheOrderTheyCame) {
  const std::vector<std::byte> first(10, std::byte{1}), second(20, std::byte{2});
  asides_->keep(0, letter_of(10, 7), first);
  asides_->keep(0, letter_of(20, 7), second);
  asides_->keep(0, letter_of(20, 8), second);
  asides_->keep(1, letter_of(10, 7), first);
  EXPECT_EQ(asides_->take(0, 6), nullptr);
  EXPECT_EQ(asides_->take(0, 7)->data, first);
  EXPECT_EQ(asides_->take(0, 7)->data, second);
  EXPECT_EQ(asides_->take(0, 7), nullptr);
  EXPECT_EQ(asides_->take(0, 8)->data, second);
  EXPECT_EQ(asides_->take(1, 7)->data, first);
}

TEST_F(AsidesTest, AMessageInPiecesArrivesAsItIsSentAndGivesItsEnvelopeBackThen) {
  Envelope& envelope = sender_->to(1)[3];
  envelope.is_ready.store(1);
  write_piece(envelope, 0, 1);
  asides_->keep_arriving(0, letter_of(2 * kPiece + 5, 7), envelope);
  EXPECT_TRUE(asides_->is_arriving(0));
  EXPECT_EQ(envelope.read.load(), 1u);
  const AsidePtr message = asides_->take(0, 7);  // may be taken before it has come
  ASSERT_NE(message, nullptr);
  EXPECT_FALSE(message->is_whole());
  EXPECT_FALSE(asides_->advance());
  write_piece(envelope, 1, 2);
  EXPECT_TRUE(asides_->advance());
  EXPECT_EQ(envelope.is_ready.load(), 1u);
  write_piece(envelope, 2, 3);
  EXPECT_TRUE(asides_->advance());
  EXPECT_TRUE(message->is_whole());
  EXPECT_FALSE(asides_->is_arriving(0));
  EXPECT_EQ(envelope.is_ready.load(), 0u);
  EXPECT_EQ(envelope.uses.load(), 1u);
  EXPECT_EQ(message->data.size(), 2 * kPiece + 5);
  EXPECT_EQ(message->data[2 * kPiece - 1], std::byte{2});
  EXPECT_EQ(message->data[2 * kPiece + 4], std::byte{3});
}

TEST_F(AsidesTest, AMessageWithoutBytesIsWholeAtOnce) {
  Envelope& envelope = sender_->to(1)[0];
  envelope.is_ready.store(1);
  asides_->keep_arriving(0, letter_of(0, 7), envelope);
  EXPECT_FALSE(asides_->is_arriving(0));
  EXPECT_EQ(envelope.is_ready.load(), 0u);
  EXPECT_TRUE(asides_->take(0, 7)->is_whole());
}

TEST_F(AsidesTest, ASizeThatCannotBeTakesAsMuchMemoryAsHasCome) {
  Envelope& envelope = sender_->to(1)[0];
  envelope.is_ready.store(1);
  write_piece(envelope, 0, 1);
  asides_->keep_arriving(0, letter_of(~size_t{0}, 7), envelope);
  const AsidePtr message = asides_->take(0, 7);
  EXPECT_EQ(message->data.size(), kPiece);
  EXPECT_LE(message->data.capacity(), 2 * kPiece);
  EXPECT_FALSE(message->is_whole());
}

}  // namespace
}  // namespace trireme::comm
