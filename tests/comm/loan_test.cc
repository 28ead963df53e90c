#include "trireme/comm/loan.h"

#include <chrono>
#include <csignal>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using harness::assert_same_bits;
using std::chrono::milliseconds;

constexpr int64_t kCount = 50000;  // more than a message's buffers, so that it is lent
constexpr milliseconds kMoment{30};
constexpr milliseconds kLong{60000};

at::Tensor symmetric(Communicator& group, const at::Tensor& values) {
  const at::Tensor data = group.symmetric_empty(values.sizes(), values.scalar_type());
  data.copy_(values);
  return data;
}

WorkPtr send_values(Communicator& group, int peer, int tag = 0) {
  return group.send(symmetric(group, values_of(group.rank() + tag, {kCount}, at::kFloat)), peer,
                    {.tag = tag, .background = true});
}

TEST(Loan, SendEndsWithTheLastTensorOfTheLoan) {
  const auto check = [](Communicator& group) {
    if (group.rank() == 0) {
      const WorkPtr work = send_values(group, 1);
      group.barrier()->wait();  // lent
      EXPECT_FALSE(work->wait_for(kMoment));
      group.barrier()->wait();  // the loan is gone, a view of it is left
      EXPECT_FALSE(work->wait_for(kMoment));
      group.barrier()->wait();
      EXPECT_TRUE(work->wait_for(kLong));
    } else {
      LoanPtr loan = group.borrow({kCount}, at::kFloat, 0);
      group.barrier()->wait();
      at::Tensor view = loan->data().narrow(0, 5, 7).view({7, 1});
      loan = nullptr;
      group.barrier()->wait();
      assert_same_bits(view.flatten(), values_of(0, {kCount}, at::kFloat).narrow(0, 5, 7), "view");
      group.barrier()->wait();
      view.reset();
    }
  };
  harness::run_ranks(2, check);
  EXPECT_EQ(harness::fork_ranks(2, check), (std::vector<harness::ExitStatus>{0, 0}));
}

TEST(Loan, IsTheSendersMemoryThroughAllWhoSendItOn) {
  const auto check = [](Communicator& group) {
    const int me = group.rank();
    const int last = group.size() - 1;
    at::Tensor data;
    WorkPtr work;
    if (me == 0) {
      data = symmetric(group, at::zeros({kCount}));
    } else {
      data = group.borrow({kCount}, at::kFloat, me - 1)->data();
    }
    if (me != last) work = group.send(data, me + 1, {.background = true});
    if (me != 0 && me != last) data.reset();  // from here on the message under way holds it
    group.barrier()->wait();                  // all have it
    if (me == 0) data.fill_(3);
    group.barrier()->wait();
    if (me == last) EXPECT_EQ(data.min().item<float>(), 3);
    if (me == 0) EXPECT_FALSE(work->wait_for(kMoment));
    group.barrier()->wait();
    if (me == last) data.reset();
    if (work != nullptr) EXPECT_TRUE(work->wait_for(kLong));
    group.barrier()->wait();
  };
  for (const int size : {2, 3, 4}) {
    harness::run_ranks(size, check);
    EXPECT_EQ(harness::fork_ranks(size, check), std::vector<harness::ExitStatus>(size, 0));
  }
}

// Messages that come behind those that are lent get past them.
TEST(Loan, AnyNumberMayBeOutAtATime) {
  const auto check = [](Communicator& group) {
    constexpr int kMessages = 20;
    std::vector<WorkPtr> sends;
    std::vector<LoanPtr> loans;
    for (int i = 0; i < kMessages; ++i) {
      if (group.rank() == 0) sends.push_back(send_values(group, 1, i));
      if (group.rank() == 1) loans.push_back(group.borrow({kCount}, at::kFloat, 0, {.tag = i}));
    }
    for (size_t i = 0; i < loans.size(); ++i)
      assert_same_bits(loans[i]->data(), values_of(static_cast<int>(i), {kCount}, at::kFloat),
                       "loan");
    int num_lent = 0;
    for (const WorkPtr& work : sends) num_lent += work->wait_for(kMoment) ? 0 : 1;
    if (group.rank() == 0) {
      EXPECT_GE(num_lent, 4);
      EXPECT_LT(num_lent, kMessages);
    }
    group.barrier()->wait();
    loans.clear();
    for (const WorkPtr& work : sends) work->wait();
    group.barrier()->wait();
  };
  harness::run_ranks(2, check);
  EXPECT_EQ(harness::fork_ranks(2, check), (std::vector<harness::ExitStatus>{0, 0}));
}

TEST(Loan, AnotherSizeOrDtypeIsReportedWithBothSides) {
  for (const bool other_dtype : {false, true}) {
    harness::run_ranks(2, [&](Communicator& group) {
      const std::string expected =
          concat("rank 0 sends 200000 bytes of Float with tag 4, rank 1 expects ",
                 other_dtype ? "200000 bytes of Int" : "199996 bytes of Float", " with tag 4");
      if (group.rank() == 0) {
        EXPECT_ERROR(CommError, send_values(group, 1, 4)->wait(), expected);
      } else {
        EXPECT_ERROR(CommError,
                     group.borrow({other_dtype ? kCount : kCount - 1},
                                  other_dtype ? at::kInt : at::kFloat, 0, {.tag = 4}),
                     expected);
      }
    });
  }
}

TEST(Loan, ALateReaderIsNamed) {
  harness::run_ranks(2, [](Communicator& group) {
    if (group.rank() == 0) {
      const at::Tensor data = symmetric(group, at::ones({kCount}));
      EXPECT_ERROR(CommError, group.send(data, 1, {.timeout = milliseconds(100), .tag = 9}),
                   "timed out after 0.1 s waiting for rank 1, tag 9, which it has borrowed");
    } else {
      const LoanPtr loan = group.borrow({kCount}, at::kFloat, 0, {.tag = 9});
      EXPECT_ERROR(CommError, group.barrier(), "which it has borrowed");
      EXPECT_EQ(loan->data().min().item<float>(), 1);
    }
  });
  harness::run_ranks(2, [](Communicator& group) {
    if (group.rank() == 0) {
      EXPECT_ERROR(CommError, group.barrier(), "recv of group world");
    } else {
      EXPECT_ERROR(CommError,
                   group.borrow({kCount}, at::kFloat, 0, {.timeout = milliseconds(100), .tag = 9}),
                   "timed out after 0.1 s waiting for rank 0, tag 9");
    }
  });
}

TEST(Loan, OutlivesGroupAndSender) {
  const auto check = [](Communicator& world) {
    at::Tensor kept;
    auto pair = world.split(0, world.rank(), "pair");
    if (world.rank() == 0) {
      const WorkPtr work = send_values(*pair, 1);
      world.barrier()->wait();
      pair->abort("enough");
      EXPECT_ERROR(CommError, work->wait(), "enough");
      pair.reset();  // nobody here holds the tensor any more
    } else {
      kept = pair->borrow({kCount}, at::kFloat, 0)->data();
      world.barrier()->wait();
      EXPECT_ERROR(CommError, pair->barrier()->wait(), "enough");
      pair.reset();
    }
    world.barrier()->wait();
    if (kept.defined()) assert_same_bits(kept, values_of(0, {kCount}, at::kFloat), "kept");
    kept.reset();
    world.barrier()->wait();
  };
  harness::run_ranks(2, check);
  EXPECT_EQ(harness::fork_ranks(2, check), (std::vector<harness::ExitStatus>{0, 0}));
}

TEST(Loan, AReaderThatIsKilledEndsTheSend) {
  const auto statuses = harness::fork_ranks(3, [](Communicator& group) {
    if (group.rank() == 0) {
      const WorkPtr work = send_values(group, 1);
      EXPECT_ERROR(CommError, work->wait(), "rank 1 died");  // and not: timed out
    } else if (group.rank() == 1) {
      const LoanPtr loan = group.borrow({kCount}, at::kFloat, 0);
      raise(SIGKILL);
    } else {
      EXPECT_ERROR(CommError, group.barrier(), "rank 1 died");
    }
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, -SIGKILL, 0}));
}

TEST(Loan, AKilledSendersMemoryStaysReadable) {
  const auto statuses = harness::fork_ranks(2, [](Communicator& group) {
    if (group.rank() == 0) {
      const WorkPtr work = send_values(group, 1);
      group.barrier()->wait();
      raise(SIGKILL);
    }
    LoanPtr loan = group.borrow({kCount}, at::kFloat, 0);
    group.barrier()->wait();
    EXPECT_ERROR(CommError, group.barrier(), "rank 0 died");
    assert_same_bits(loan->data(), values_of(0, {kCount}, at::kFloat), "loan");
    loan = nullptr;
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{-SIGKILL, 0}));
}

}  // namespace
}  // namespace trireme::comm
