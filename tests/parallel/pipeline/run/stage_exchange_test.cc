#include "trireme/parallel/pipeline/run/tensor_channel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

StageGraph chain() {
  return StageGraph({{.name = "a", .inputs = {}, .outputs = {"x"}, .forward = {}},
                     {.name = "b", .inputs = {"x"}, .outputs = {"y"}, .forward = {}},
                     {.name = "c", .inputs = {"y"}, .outputs = {}, .forward = {}}},
                    {});
}

TEST(StageExchange, KeepsWhatStaysAndSendsWhatLeaves) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    const StageGraph graph = chain();
    const Schedule schedule{
        .name = "test", .num_microbatches = 2, .rank_of_stage = {0, 0, 1}, .edges = graph.edges()};
    StageExchange exchange(group, graph, schedule, {}, at::kCPU);
    const auto value = [](double number) {
      return std::vector<EdgeTensor>{{at::full({1}, number), true}};
    };
    const auto expect = [&](const Parcel& parcel, double number) {
      harness::assert_same_bits(exchange.take(parcel)[0].value, value(number)[0].value, "parcel");
    };
    const StageEdge inside{0, 1}, across{1, 2};
    if (group.rank() == 0) {
      for (const int microbatch : {0, 1}) {
        exchange.put({inside, microbatch}, value(microbatch));
        exchange.put({inside, microbatch, true}, value(10 + microbatch));
        exchange.put({across, microbatch}, value(20 + microbatch));
        exchange.send({across, microbatch});
        exchange.start_recv({across, microbatch, true});
      }
      for (const int microbatch : {1, 0}) {
        expect({inside, microbatch}, microbatch);
        expect({inside, microbatch, true}, 10 + microbatch);
        expect({across, microbatch, true}, 30 + microbatch);
      }
      EXPECT_THROW(exchange.take({inside, 0}), InternalError);
    } else {
      for (const int microbatch : {0, 1}) {
        exchange.start_recv({across, microbatch});
        expect({across, microbatch}, 20 + microbatch);
        exchange.put({across, microbatch, true}, value(30 + microbatch));
        exchange.send({across, microbatch, true});
      }
    }
    exchange.channel().finish_sends();
  });
}

TEST(StageExchange, ATransferNamesItsEdge) {
  EXPECT_EQ(parcel_of({ActionKind::kSendActivation, 1, 5, 2}), (Parcel{{1, 2}, 5, false}));
  EXPECT_EQ(parcel_of({ActionKind::kRecvActivation, 2, 5, 1}), (Parcel{{1, 2}, 5, false}));
  EXPECT_EQ(parcel_of({ActionKind::kSendGradient, 2, 5, 1}), (Parcel{{1, 2}, 5, true}));
  EXPECT_EQ(parcel_of({ActionKind::kRecvGradient, 1, 5, 2}), (Parcel{{1, 2}, 5, true}));
  EXPECT_THROW(parcel_of({ActionKind::kForward, 1, 5}), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
