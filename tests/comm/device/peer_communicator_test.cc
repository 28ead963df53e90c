// The suite of the transports over fake devices, and what is this one's own.
#include "trireme/comm/device/peer_communicator.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/device/fake_peers.h"
#include "tests/comm/device/on_device.h"
#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/comm/transport_suite.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

class PeerGroup : public testing::TestWithParam<int> {
 protected:
  static void check(void (*suite)(Communicator&)) {
    run_fake_peers(GetParam(), [&](std::unique_ptr<Communicator> group, at::Device device) {
      OnDevice on_device(std::move(group), device);
      suite(on_device);
    });
  }
};

TEST_P(PeerGroup, ReductionsGiveTheModelsBits) { check(check_reductions); }
TEST_P(PeerGroup, PairsThatAreNotDefinedAreRefused) { check(check_unsupported_pairs); }
TEST_P(PeerGroup, RefusesTheSameCallsInTheSameWords) { check(check_refused_calls); }
TEST_P(PeerGroup, MovesBlocksOfAnySizes) { check(check_moves); }
TEST_P(PeerGroup, TakesStridedTensors) { check(check_strided_tensors); }
TEST_P(PeerGroup, SendsAndReceives) { check(check_point_to_point); }
TEST_P(PeerGroup, ReceivesFromWhoeverSends) { check(check_any_source); }
TEST_P(PeerGroup, WorksInTheBackground) { check(check_background); }
TEST_P(PeerGroup, Splits) { check(check_split); }
TEST_P(PeerGroup, AbortEndsWhatOthersWaitFor) { check(check_abort); }

// Slots of 1 MiB: 3.2 MB take several chunks, uneven blocks begin and end within them.
TEST_P(PeerGroup, MovesInChunksWhatASlotCannotHold) {
  run_fake_peers(
      GetParam(),
      [](std::unique_ptr<Communicator> group, at::Device device) {
        const int me = group->rank(), size = group->size();
        OnDevice moving(std::move(group), device);
        Communicator& on_device = moving;
        std::vector<at::Tensor> terms, blocks, gathered;
        for (int rank = 0; rank < size; ++rank) {
          terms.push_back(values_of(rank, {800'001}, at::kFloat));
          blocks.push_back(values_of(me + 10 * rank, {200'001 * (rank + 1)}, at::kFloat));
          gathered.push_back(at::empty({200'001 * (rank + 1)}));
        }
        for (const ReduceOp operation : {ReduceOp::kSum, ReduceOp::kAverage}) {
          at::Tensor data = terms[me].clone();
          on_device.all_reduce(data, {.operation = operation})->wait();
          harness::assert_same_bits(data, model_of(terms, operation), "all_reduce");
        }
        on_device.all_gather(gathered, values_of(me, {200'001 * (me + 1)}, at::kFloat))->wait();
        for (int rank = 0; rank < size; ++rank) {
          harness::assert_same_bits(
              gathered[rank], values_of(rank, {200'001 * (rank + 1)}, at::kFloat), "all_gather");
        }
        std::vector<at::Tensor> for_me, arrived;
        for (int rank = 0; rank < size; ++rank) {
          for_me.push_back(values_of(rank + 10 * me, {200'001 * (me + 1)}, at::kFloat));
          arrived.push_back(at::empty_like(for_me.back()));
        }
        const at::Tensor output = at::empty_like(for_me[0]);
        on_device.reduce_scatter(output, blocks)->wait();
        harness::assert_same_bits(output, model_of(for_me, ReduceOp::kSum), "reduce_scatter");
        on_device.all_to_all(arrived, blocks)->wait();
        for (int rank = 0; rank < size; ++rank) {
          harness::assert_same_bits(arrived[rank], for_me[rank], "all_to_all");
        }
      },
      /*most_slot_bytes=*/1 << 20);
}

INSTANTIATE_TEST_SUITE_P(Ranks, PeerGroup, testing::Range(1, 5));

TEST(PeerGroup, NamesBothSidesOfAMismatch) {
  run_fake_peers(2, [](std::unique_ptr<Communicator> group, at::Device device) {
    const at::Tensor data = at::zeros({3 + group->rank()}, at::device(device));
    EXPECT_ERROR(CommError, group->all_reduce(data)->wait(),
                 "rank 0 calls all_reduce(Float, 3 elements, sum) and rank 1 calls "
                 "all_reduce(Float, 4 elements, sum)");
  });
  run_fake_peers(2, [](std::unique_ptr<Communicator> group, at::Device device) {
    const at::Tensor data = at::zeros({3}, at::device(device));
    EXPECT_ERROR(CommError,
                 group->rank() == 0 ? group->broadcast(data, 1)->wait() : group->barrier()->wait(),
                 "rank 0 calls broadcast(Float, 3 elements, root 1) and rank 1 calls barrier");
  });
  run_fake_peers(2, [](std::unique_ptr<Communicator> group, at::Device device) {
    const auto blocks = [&](int64_t other) {
      std::vector<at::Tensor> made(2, at::zeros({2}, at::device(device)));
      made[1 - group->rank()] = at::zeros({other}, at::device(device));
      return made;
    };
    // Each sends 5 numbers and expects 4.
    EXPECT_ERROR(CommError, group->all_to_all(blocks(4), blocks(5))->wait(), "20 bytes");
  });
}

TEST(PeerGroup, TensorsOfTheHostAreRefused) {
  run_fake_peers(2, [](std::unique_ptr<Communicator> group, at::Device device) {
    EXPECT_ERROR(ConfigError, group->all_reduce(at::ones({2})),
                 "a tensor on cpu; expected a dense tensor on hpu");
    EXPECT_ERROR(ConfigError, group->send(at::ones({2}), 1 - group->rank()), "on hpu");
    EXPECT_EQ(group->symmetric_empty({2}, at::kFloat).device(), device);
    EXPECT_TRUE(group->reduces_in_rank_order());
  });
}

TEST(PeerGroup, RecordsMessagesAsEveryTransportDoes) {
  run_fake_peers(2, [](std::unique_ptr<Communicator> group, at::Device device) {
    const auto recorder = std::make_shared<Recorder>(RecorderOptions{.world_size = 2});
    dynamic_cast<RecordedCommunicator&>(*group).record_in({recorder, "devices", 2});
    const at::Tensor data = at::ones({3}, at::device(device));
    const WorkPtr sent = group->send(data, 1 - group->rank(), {.tag = 5, .background = true});
    group->recv(data, 1 - group->rank(), {.tag = 5})->wait();
    EXPECT_EQ(recorder->snapshot().records.at(0).state, CallState::kStarted);
    sent->wait();
    const Ring ring = recorder->snapshot();
    ASSERT_EQ(ring.records.size(), 2u);
    for (const Record& record : ring.records) {
      EXPECT_TRUE(record.is_point_to_point);
      EXPECT_EQ(record.tag, 5);
      EXPECT_EQ(record.state, CallState::kDone);
    }
  });
}

}  // namespace
}  // namespace trireme::comm
