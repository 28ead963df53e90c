#include "trireme/comm/shared/message_rings.h"

#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/shared/kept_segments.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/shared/heap.h"
#include "trireme/comm/shared/shared_communicator.h"

namespace trireme::comm {
namespace {

constexpr size_t kArena = 2 << 20;
constexpr int64_t kCount = 20000;  // more than is buffered
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr std::chrono::milliseconds kMoment{100};

// Two ranks as threads, with a heap as processes have it; a test writes rank 1's envelopes by hand.
class ByHand {
 public:
  explicit ByHand(bool zero_copy = true) {
    GroupOptions options;
    options.heap_bytes = kArena;
    options.zero_copy = zero_copy;
    const auto inner = make_thread_segments();
    const auto segments = std::make_shared<KeptSegments>(inner);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const Host host{"job", rank == 0 ? segments : inner, nullptr};
        groups_[rank] = SharedCommunicator::join(host, "job", rank, 2, options);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const size_t begin = Exchange::segment_bytes(2, {"", options.slot_bytes});
    const SegmentSize messages = MessageRings::segment_size(2);
    const size_t pieces = round_up(begin + messages.committed, 4096);
    rings_.emplace(segments->last(), begin, pieces, 1, 2);
  }
  Communicator& ours() { return *groups_[0]; }
  std::span<Envelope> ring() { return rings_->to(0); }

  // An envelope as rank 1 would send it, with its first piece.
  Envelope& write(int index, uint64_t place, uint64_t num_bytes, int tag) {
    Envelope& envelope = ring()[index];
    envelope.number = static_cast<uint64_t>(index);
    envelope.num_bytes = num_bytes;
    envelope.place = place;
    envelope.tag = tag;
    envelope.dtype = static_cast<int32_t>(at::kFloat);
    envelope.written.store(1);
    envelope.is_ready.store(1);
    return envelope;
  }
  std::string error_of_recv(int tag) {
    return error_of<CommError>([&] {
      at::Tensor data = at::zeros({kCount});
      ours().recv(data, 1, {.timeout = kMoment, .tag = tag})->wait();
    });
  }

 private:
  std::unique_ptr<SharedCommunicator> groups_[2];
  std::optional<MessageRings> rings_;
};

const uint64_t kBadPlaces[] = {2 * kArena,       2 * kArena - kBytes + 4, kArena - 4,
                               ~uint64_t{0} - 1, ~uint64_t{0} - kBytes,   uint64_t{1} << 46};

TEST(MessageRings, AMessageThatLiesOutsideOfTheHeapIsRefusedAndTheSenderNamed) {
  for (const uint64_t place : kBadPlaces) {
    for (const bool borrows : {false, true}) {
      ByHand pair;
      pair.write(0, place, kBytes, 3);
      const std::string expected =
          concat("recv of group world (2 ranks), rank 1 says that its 80000 bytes lie at ", place);
      if (borrows) {
        EXPECT_ERROR(CommError, pair.ours().borrow({kCount}, at::kFloat, 1, {.tag = 3}), expected);
      } else {
        EXPECT_PRED2(contains, pair.error_of_recv(3), expected);
      }
    }
  }
}

TEST(MessageRings, AMessageBetweenTwoElementsIsNotLent) {
  ByHand pair;
  pair.write(0, 66, kBytes, 3);
  EXPECT_ERROR(CommError, pair.ours().borrow({kCount}, at::kFloat, 1, {.tag = 3}), "lie at 66 in");
}

// Among processes the envelope's pointer is not for the peer to give.
TEST(MessageRings, APointerThatThePeerHasWrittenIsNotFollowed) {
  for (const bool zero_copy : {false, true}) {
    ByHand pair(zero_copy);
    pair.write(0, 64, kBytes, 3).memory.store(reinterpret_cast<at::Tensor*>(64));
    at::Tensor data = at::ones({kCount});
    pair.ours().recv(data, 1, {.tag = 3})->wait();
    EXPECT_EQ(data.abs().sum().item<float>(), 0);  // what the heap holds there
  }
}

TEST(MessageRings, APointerThatThePeerHasWrittenIsNotFollowedWhenASendFails) {
  ByHand pair;
  const at::Tensor data = pair.ours().symmetric_empty({kCount}, at::kFloat);
  const WorkPtr send =
      pair.ours().send(data, 1, {.timeout = kMoment, .tag = 3, .background = true});
  // Rank 0's ring to rank 1 is the one before rank 1's own: (0 * 2 + 1) and (1 * 2 + 0).
  Envelope* const sent = pair.ring().data() - MessageRings::kEnvelopes;
  while (sent->is_ready.load() == 0) std::this_thread::yield();
  sent->memory.store(reinterpret_cast<at::Tensor*>(64));
  EXPECT_ERROR(CommError, send->wait(), "timed out");
  sent->memory.store(nullptr);
}

TEST(MessageRings, OtherSizesAndTypesAreReportedWhateverTheyAre) {
  for (const uint64_t num_bytes : {uint64_t{0}, kBytes + 1, ~uint64_t{0}}) {
    ByHand pair;
    pair.write(0, Heap::kOrdinary, num_bytes, 3);
    EXPECT_PRED2(contains, pair.error_of_recv(3),
                 concat("rank 1 sends ", num_bytes, " bytes of Float with tag 3"));
  }
  for (const int dtype : {-1, 99, 1 << 30}) {
    ByHand pair;
    pair.write(0, Heap::kOrdinary, kBytes, 3).dtype = dtype;
    EXPECT_PRED2(contains, pair.error_of_recv(3), "rank 1 sends 80000 bytes of ");
  }
}

TEST(MessageRings, WhatIsMovedAsideIsBoundedToo) {
  for (const uint64_t place : kBadPlaces) {
    ByHand pair;
    for (int i = 0; i < MessageRings::kEnvelopes; ++i) pair.write(i, place, kBytes, 3);
    EXPECT_PRED2(contains, pair.error_of_recv(4), concat("its 80000 bytes lie at ", place));
  }
  // Of a size that no host has, the first piece alone has come.
  ByHand pair;
  for (int i = 0; i < MessageRings::kEnvelopes; ++i) {
    pair.write(i, Heap::kOrdinary, ~uint64_t{0}, 3);
  }
  EXPECT_PRED2(contains, pair.error_of_recv(4), "timed out");
}

// Random words in every field: an error, or the bytes of a place that is there.
// Taken at its word, the peer would be 2^32 pieces ahead, and all of them would be kept.
TEST(MessageRings, ASenderThatClaimsMorePiecesThanThereAreHasSentNone) {
  ByHand hand;
  for (int i = 0; i < MessageRings::kEnvelopes; ++i) {
    hand.write(i, Heap::kOrdinary, uint64_t{1} << 60, /*tag=*/7).written.store(0xffffffff);
  }
  EXPECT_NE(hand.error_of_recv(8).find("timed out"), std::string::npos);
}

TEST(MessageRings, RandomEnvelopesCrashNobody) {
  const auto statuses = harness::fork_processes(1, [](int) {
    std::mt19937_64 random(11);
    int num_errors = 0;
    constexpr int kRounds = 100;
    for (int round = 0; round < kRounds; ++round) {
      ByHand pair(random() % 4 != 0);
      for (Envelope& envelope : pair.ring()) {
        const auto word = [&]() -> uint64_t {
          const uint64_t any = random();
          const uint64_t words[] = {
              Heap::kOrdinary,         any % 4, any % (2 * kArena), kBytes, any % 4 * 64,
              uint64_t{1} << any % 64, any};
          return words[random() % 7];
        };
        envelope.number = word();
        envelope.num_bytes = random() % 2 == 0 ? kBytes : word();
        envelope.place = word();
        envelope.tag = static_cast<int32_t>(random() % 3);
        envelope.dtype = static_cast<int32_t>(random() % 2 == 0 ? 6 : word());
        envelope.written.store(static_cast<uint32_t>(word()));
        envelope.read.store(static_cast<uint32_t>(word()));
        envelope.taken.store(static_cast<uint32_t>(random() % 4 == 0 ? word() : 0));
        envelope.memory.store(reinterpret_cast<at::Tensor*>(word()));
        envelope.is_ready.store(random() % 4 == 0 ? static_cast<uint32_t>(word()) : 1);
      }
      try {
        for (int tag = 0; tag < 4; ++tag) {
          at::Tensor data = at::zeros({kCount});
          const int peer = random() % 2 == 0 ? 1 : kAnySource;
          const Options options{.timeout = std::chrono::milliseconds(20), .tag = tag};
          if (random() % 2 == 0) {
            const LoanPtr loan = pair.ours().borrow({kCount}, at::kFloat, peer, options);
            data = loan->data().clone();
          } else {
            pair.ours().recv(data, peer, options)->wait();
          }
        }
      } catch (const CommError&) {
        ++num_errors;
      }
    }
    EXPECT_GT(num_errors, 0);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

}  // namespace
}  // namespace trireme::comm
