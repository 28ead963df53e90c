// Every rank of an mpirun runs these tests.
#include "trireme/comm/message/mpi_group.h"

#include <chrono>
#include <functional>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/recording_suite.h"
#include "tests/comm/transport_suite.h"
#include "trireme/base/error.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/rendezvous/rendezvous.h"

namespace trireme::comm {
namespace {

class MpiGroup : public testing::Test {
 protected:
  MpiGroup() : world_(make_mpi_group()) {}
  // Peers may still be in a test that this rank has left.
  void TearDown() override { world_->barrier()->wait(); }
  std::unique_ptr<Communicator> world_;
};

TEST_F(MpiGroup, ReductionsGiveTheModelsBits) { check_reductions(*world_); }
TEST_F(MpiGroup, RefusesTheSameCallsInTheSameWords) { check_refused_calls(*world_); }
TEST_F(MpiGroup, PairsThatAreNotDefinedAreRefused) { check_unsupported_pairs(*world_); }
TEST_F(MpiGroup, MovesBlocksOfAnySizes) { check_moves(*world_); }
TEST_F(MpiGroup, TakesStridedTensors) { check_strided_tensors(*world_); }
TEST_F(MpiGroup, SendsAndReceives) { check_point_to_point(*world_); }
TEST_F(MpiGroup, ReceivesFromWhoeverSends) { check_any_source(*world_); }
TEST_F(MpiGroup, WorksInTheBackground) { check_background(*world_); }
TEST_F(MpiGroup, Splits) { check_split(*world_); }
TEST_F(MpiGroup, AbortEndsWhatOthersWaitFor) { check_abort(*world_); }
TEST_F(MpiGroup, HasSymmetricMemory) { check_symmetric_memory(*world_); }
TEST_F(MpiGroup, LendsMessages) { check_borrow(*world_); }
TEST_F(MpiGroup, RecordsTheSameCalls) { check_recording(*world_); }
TEST_F(MpiGroup, RecordsFailures) { check_recorded_failures(*world_); }

TEST_F(MpiGroup, RecordsFromItsFirstCallOn) {
  const GroupOptions options{.recorder = std::make_shared<Recorder>(RecorderOptions{
                                 .rank = world_->rank(), .world_size = world_->size()})};
  make_mpi_group(options)->barrier()->wait();
  const Ring ring = options.recorder->snapshot();
  ASSERT_EQ(ring.records.size(), 2u);
  EXPECT_EQ(ring.records[0].operation, "join");
  EXPECT_EQ(ring.records[1].operation, "barrier");
  EXPECT_EQ(ring.groups.at(0).name, "world");
  EXPECT_EQ(std::ssize(ring.groups.at(0).world_ranks), world_->size());
}

TEST_F(MpiGroup, ConnectWorldGivesTheSameRanks) {
  const WorldInfo info{world_->rank(), world_->size(), world_->rank(), world_->size(), "galley"};
  const auto connected = connect_world(info, "mpi");
  EXPECT_EQ(connected->rank(), world_->rank());
  EXPECT_EQ(connected->size(), world_->size());
  connected->barrier()->wait();
  const WorldInfo other{0, 99, 0, 99, "galley"};
  EXPECT_ERROR(ConfigError, connect_world(other, "mpi"), "has 99 ranks and MPI");
}

// With 2 ranks or more.
class MpiFaults : public MpiGroup {
 protected:
  void SetUp() override { group_ = world_->split(0, world_->rank(), "crew"); }
  std::unique_ptr<Communicator> group_;
};

TEST_F(MpiFaults, DifferentOperationsAreNamedOnBothSides) {
  const at::Tensor data = at::ones({3});
  const auto call = [&] {
    if (group_->rank() == 1) return group_->broadcast(data, 0)->wait();
    group_->all_reduce(data)->wait();
  };
  EXPECT_ERROR(CommError, call(), "broadcast(Float, 3 elements, root 0)");
  EXPECT_ERROR(CommError, group_->barrier()->wait(), "group crew");
}

TEST_F(MpiFaults, ALateRankIsNamedAfterTheTimeoutAndLearnsOfIt) {
  if (group_->rank() == 1) {
    // Comes when the others have given up.
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_ERROR(CommError, group_->barrier()->wait(), "timed out");
    return;
  }
  EXPECT_ERROR(CommError, group_->barrier({.timeout = std::chrono::milliseconds(100)})->wait(),
               "timed out");
}

TEST_F(MpiFaults, AbortReachesThePeers) {
  at::Tensor data = at::ones({3});
  if (group_->rank() == 0) {
    const WorkPtr work = group_->recv(data, 1, {.background = true});
    work->abort();
    EXPECT_ERROR(CommError, work->wait(), "abort");
    return;
  }
  EXPECT_ERROR(CommError, group_->recv(data, 0)->wait(), "abort");
}

TEST_F(MpiFaults, ARankThatLeavesFailsWhoeverWaitsForIt) {
  if (group_->rank() == 0) return group_.reset();
  EXPECT_ERROR(CommError, group_->barrier()->wait(), "crew");
}

TEST_F(MpiFaults, MessagesOfAnotherSizeAreAnErrorOnTheReceiver) {
  if (group_->rank() == 0) {
    const auto send = [&] {
      group_->send(at::ones({1 << 20}), 1)->wait();
      group_->barrier()->wait();  // the send may be done before the receiver looks at it
    };
    EXPECT_ERROR(CommError, send(), "crew");
    return;
  }
  if (group_->rank() == 1) {
    EXPECT_ERROR(CommError, group_->recv(at::ones({5}), 0)->wait(), "expects");
  }
}

}  // namespace
}  // namespace trireme::comm
