// One suite over every transport and 1 to 4 ranks. Thread, shm and gloo must give the same bits.
#include <functional>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/comm/transport_suite.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/gloo_ranks.h"
#endif

namespace trireme::comm {
namespace {

class Transports : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void run(const harness::RankFunction& function) {
    const auto& [transport, size] = GetParam();
    if (transport == "thread") return harness::run_ranks(size, function);
    std::vector<harness::ExitStatus> statuses;
    if (transport == "shm") statuses = harness::fork_ranks(size, function);
#ifdef TRIREME_HAVE_GLOO
    if (transport == "gloo") statuses = fork_gloo_ranks(size, function);
#endif
    EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(size, 0));
  }
};

TEST_P(Transports, ReductionsGiveTheModelsBits) { run(check_reductions); }
TEST_P(Transports, PairsThatAreNotDefinedAreRefused) { run(check_unsupported_pairs); }
TEST_P(Transports, MovesBlocksOfAnySizes) { run(check_moves); }
TEST_P(Transports, TakesStridedTensors) { run(check_strided_tensors); }
TEST_P(Transports, SendsAndReceives) { run(check_point_to_point); }
TEST_P(Transports, ReceivesFromWhoeverSends) { run(check_any_source); }
TEST_P(Transports, WorksInTheBackground) { run(check_background); }
TEST_P(Transports, Splits) { run(check_split); }
TEST_P(Transports, HasSymmetricMemory) { run(check_symmetric_memory); }

std::string name_of(const testing::TestParamInfo<Transports::ParamType>& info) {
  return concat(std::get<0>(info.param), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Thread, Transports,
                         testing::Combine(testing::Values("thread"), testing::Range(1, 5)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Shm, Transports,
                         testing::Combine(testing::Values("shm"), testing::Range(1, 5)), name_of);

#ifdef TRIREME_HAVE_GLOO
INSTANTIATE_TEST_SUITE_P(Gloo, Transports,
                         testing::Combine(testing::Values("gloo"), testing::Range(1, 5)), name_of);
#endif

}  // namespace
}  // namespace trireme::comm
