#include "tests/harness/counting_communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::harness {
namespace {

at::Tensor bytes(int64_t count) { return at::ones({count}, at::kByte); }

TEST(CountingCommunicator, CountsByTheFormulasOfTheInterface) {
  run_ranks(4, [](comm::Communicator& inner) {
    CountingCommunicator group(inner);
    comm::Communicator& ranks = group;
    const bool is_root = group.rank() == 1;
    const std::vector<at::Tensor> blocks(4, bytes(100)), none;
    const auto outputs = [] { return std::vector{bytes(100), bytes(100), bytes(100), bytes(100)}; };
    ranks.all_reduce(bytes(400))->wait();
    ranks.all_reduce(bytes(40))->wait();
    ranks.reduce(bytes(400), 1)->wait();
    ranks.broadcast(bytes(400), 1)->wait();
    ranks.all_gather(outputs(), bytes(100))->wait();
    ranks.reduce_scatter(bytes(100), blocks)->wait();
    ranks.all_to_all(outputs(), blocks)->wait();
    ranks.gather(is_root ? outputs() : none, bytes(100), 1)->wait();
    ranks.scatter(bytes(100), is_root ? blocks : none, 1)->wait();
    if (group.rank() == 0) ranks.send(bytes(70), 3)->wait();
    if (group.rank() == 3) ranks.recv(bytes(70), 0)->wait();
    if (group.rank() == 0) ranks.send(bytes(30), 2)->wait();
    if (group.rank() == 2) ranks.borrow({30}, at::kByte, 0)->wait();
    ranks.barrier()->wait();

    const auto of = [&](const char* operation) { return group.ledger().of("world", operation); };
    EXPECT_EQ(of("all_reduce"), (Traffic{2, 660}));
    EXPECT_EQ(of("reduce"), (Traffic{1, is_root ? 400 : 300}));
    EXPECT_EQ(of("broadcast"), (Traffic{1, is_root ? 1200 : 400}));
    EXPECT_EQ(of("all_gather"), (Traffic{1, 300}));
    EXPECT_EQ(of("reduce_scatter"), (Traffic{1, 300}));
    EXPECT_EQ(of("all_to_all"), (Traffic{1, 300}));
    EXPECT_EQ(of("gather"), (Traffic{1, is_root ? 300 : 100}));
    EXPECT_EQ(of("scatter"), (Traffic{1, is_root ? 300 : 100}));
    EXPECT_EQ(of("send"), (group.rank() == 0 ? Traffic{2, 100} : Traffic{}));
    EXPECT_EQ(of("recv"), (group.rank() == 3   ? Traffic{1, 70}
                           : group.rank() == 2 ? Traffic{1, 30}
                                               : Traffic{}));
    EXPECT_EQ(of("barrier"), (Traffic{1, 0}));
  });
}

TEST(CountingCommunicator, PassesValuesOnAndCountsSplitGroupsByName) {
  run_ranks(4, [](comm::Communicator& inner) {
    CountingCommunicator world(inner);
    auto pair = world.split(inner.rank() / 2, inner.rank(), "pair");
    at::Tensor data = bytes(10);
    pair->all_reduce(data, {})->wait();
    EXPECT_EQ(data[0].item<int>(), 2);
    EXPECT_EQ(world.ledger().of("pair"), (Traffic{1, 10}));
    EXPECT_EQ(world.ledger().of("world"), (Traffic{}));
    EXPECT_EQ(world.split(-1, 0, "nobody"), nullptr);
    world.ledger().clear();
    EXPECT_EQ(world.ledger().of("pair"), (Traffic{}));
  });
}

}  // namespace
}  // namespace trireme::harness
