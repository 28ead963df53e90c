// One suite over every transport and 1 to 4 ranks: all of them must give the model's bits.
#include <functional>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/comm/recording_suite.h"
#include "tests/comm/transport_suite.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/c10d/gloo_ranks.h"
#endif

namespace trireme::comm {
namespace {

// How `size` ranks are placed on hosts under each name.
std::vector<int> hosts_of(const std::string& placement, int size) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) {
    if (placement == "halves") hosts.push_back(2 * rank / size);
    if (placement == "uneven") hosts.push_back(rank == 0 ? 0 : 1);
    if (placement == "apart") hosts.push_back(rank);
    if (placement == "scattered") hosts.push_back(rank % 2);
  }
  return hosts;
}

class Transports : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void run(const harness::RankFunction& function) {
    const auto& [transport, size] = GetParam();
    if (transport == "thread") return harness::run_ranks(size, function);
    std::vector<harness::ExitStatus> statuses;
    if (transport == "shm") {
      statuses = harness::fork_ranks(size, function);
#ifdef TRIREME_HAVE_GLOO
    } else if (transport == "gloo") {
      statuses = fork_gloo_ranks(size, function);
    } else if (transport == "gloo_across") {
      const auto store = c10::make_intrusive<c10d::HashStore>();
      return run_hierarchical_ranks(hosts_of("halves", size), function, [&](Communicator& world) {
        return make_gloo_group(store, world.rank(), world.size(), loopback_options());
      });
#endif
    } else {
      return run_hierarchical_ranks(hosts_of(transport, size), function);
    }
    EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(size, 0));
  }
};

TEST_P(Transports, PairsThatAreNotDefinedAreRefused) { run(check_unsupported_pairs); }
TEST_P(Transports, RefusesTheSameCallsInTheSameWords) { run(check_refused_calls); }
TEST_P(Transports, MovesBlocksOfAnySizes) { run(check_moves); }
TEST_P(Transports, SendsAndReceives) { run(check_point_to_point); }
TEST_P(Transports, ReceivesFromWhoeverSends) { run(check_any_source); }
TEST_P(Transports, Splits) { run(check_split); }
TEST_P(Transports, AbortEndsWhatOthersWaitFor) { run(check_abort); }
TEST_P(Transports, HasSymmetricMemory) { run(check_symmetric_memory); }
TEST_P(Transports, LendsMessages) { run(check_borrow); }
TEST_P(Transports, RecordsTheSameCalls) { run(check_recording); }
TEST_P(Transports, RecordsFailures) { run(check_recorded_failures); }

// Transports and placements that keep rank order.
class RankOrder : public Transports {};
TEST_P(RankOrder, ReductionsGiveTheModelsBits) { run(check_reductions); }
TEST_P(RankOrder, TakesStridedTensors) { run(check_strided_tensors); }
TEST_P(RankOrder, WorksInTheBackground) { run(check_background); }

std::string name_of(const testing::TestParamInfo<Transports::ParamType>& info) {
  return concat(std::get<0>(info.param), std::get<1>(info.param));
}

const auto kOneHost = testing::Combine(testing::Values("thread", "shm"), testing::Range(1, 5));
INSTANTIATE_TEST_SUITE_P(OneHost, Transports, kOneHost, name_of);
INSTANTIATE_TEST_SUITE_P(OneHost, RankOrder, kOneHost, name_of);

const auto kHosts =
    testing::Combine(testing::Values("halves", "uneven", "apart"), testing::Range(1, 5));
INSTANTIATE_TEST_SUITE_P(Hierarchical, Transports, kHosts, name_of);
INSTANTIATE_TEST_SUITE_P(Hierarchical, RankOrder, kHosts, name_of);
INSTANTIATE_TEST_SUITE_P(Scattered, Transports,
                         testing::Combine(testing::Values("scattered"), testing::Range(2, 5)),
                         name_of);

#ifdef TRIREME_HAVE_GLOO
const auto kGloo = testing::Combine(testing::Values("gloo", "gloo_across"), testing::Range(1, 5));
INSTANTIATE_TEST_SUITE_P(Gloo, Transports, kGloo, name_of);
INSTANTIATE_TEST_SUITE_P(Gloo, RankOrder, kGloo, name_of);
#endif

}  // namespace
}  // namespace trireme::comm
