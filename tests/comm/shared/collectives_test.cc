// Properties that hold for every number of ranks, size and slot: same bits as the scalar model.
#include "trireme/comm/shared/collectives.h"

#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/scalar_model.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/shared/shared_communicator.h"

namespace trireme::comm {
namespace {

using harness::assert_same_bits;

// Which operands are symmetric: no rank's, every rank's, or those of even ranks.
enum class Operands { kOrdinary, kSymmetric, kMixed };

struct World {
  int size;
  size_t slot_bytes;
  Operands operands;
};

class Collectives : public testing::TestWithParam<World> {
 protected:
  void run(const harness::RankFunction& function) {
    const auto& [size, slot_bytes, operands] = GetParam();
    const Host host{"x", make_thread_segments(), Heap::of_threads(), size};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      GroupOptions options;
      options.slot_bytes = slot_bytes;
      options.timeout = std::chrono::seconds(60);
      options.zero_copy =
          operands == Operands::kSymmetric || (operands == Operands::kMixed && rank % 2 == 0);
      threads.emplace_back([&host, &function, rank, options] {
        try {
          function(*SharedCommunicator::join(host, "x", rank, GetParam().size, options));
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static int size() { return GetParam().size; }
};

// 0, 1, odd, around the flat limit (8 KiB), several chunks of 4 and 64 KiB.
constexpr int64_t kCounts[] = {0, 1, 7, 1023, 4097, 40001};

std::vector<at::Tensor> all_values(int size, at::IntArrayRef shape, at::ScalarType dtype) {
  std::vector<at::Tensor> values;
  for (int r = 0; r < size; ++r) values.push_back(values_of(r, shape, dtype));
  return values;
}

// Uneven and some empty; `scale` elements at most.
int64_t uneven(int rank, int64_t scale) { return rank % 3 == 1 ? 0 : scale * (rank + 1) / 8 + 1; }

TEST_P(Collectives, AllReduceAndReduceFollowTheScalarModel) {
  for (const int64_t count : kCounts) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kComplexDouble}) {
      const auto inputs = all_values(size(), {count}, dtype);
      for (const ReduceOp operation : {ReduceOp::kSum, ReduceOp::kAverage}) {
        const at::Tensor expected = model_of(inputs, operation);
        const std::string what =
            concat(name_of(operation), " of ", count, " ", c10::toString(dtype));
        run([&](Communicator& group) {
          Options options;
          options.operation = operation;
          at::Tensor data = inputs[group.rank()].clone();
          group.all_reduce(data, options)->wait();
          assert_same_bits(data, expected, "all_reduce " + what);
          const int root = group.size() - 1;
          data = inputs[group.rank()].clone();
          group.reduce(data, root, options)->wait();
          assert_same_bits(data, group.rank() == root ? expected : inputs[group.rank()],
                           "reduce " + what);
        });
      }
    }
  }
}

TEST_P(Collectives, BroadcastGivesTheRootsBits) {
  run([](Communicator& group) {
    for (const int64_t count : kCounts) {
      for (int root = 0; root < group.size(); ++root) {
        at::Tensor data = values_of(group.rank(), {count}, at::kFloat);
        group.broadcast(data, root)->wait();
        assert_same_bits(data, values_of(root, {count}, at::kFloat), concat("from ", root));
      }
    }
  });
}

TEST_P(Collectives, AllGatherAndGatherBringUnevenBlocks) {
  run([](Communicator& group) {
    for (const int64_t scale : kCounts) {
      const auto outputs = [&] {
        std::vector<at::Tensor> blocks;
        for (int r = 0; r < group.size(); ++r) blocks.push_back(at::zeros({uneven(r, scale)}));
        return blocks;
      };
      const at::Tensor own = values_of(group.rank(), {uneven(group.rank(), scale)}, at::kFloat);
      const auto check = [&](const std::vector<at::Tensor>& blocks) {
        for (int r = 0; r < group.size(); ++r) {
          assert_same_bits(blocks[r], values_of(r, {uneven(r, scale)}, at::kFloat),
                           concat("block ", r, " at scale ", scale));
        }
      };
      const auto everywhere = outputs();
      group.all_gather(everywhere, own)->wait();
      check(everywhere);
      const int root = group.size() / 2;
      const auto there = group.rank() == root ? outputs() : std::vector<at::Tensor>();
      group.gather(there, own, root)->wait();
      if (group.rank() == root) check(there);
    }
  });
}

TEST_P(Collectives, ReduceScatterOfUnevenBlocksFollowsTheScalarModel) {
  for (const int64_t scale : kCounts) {
    run([&](Communicator& group) {
      const int64_t count = uneven(group.rank(), scale);
      std::vector<at::Tensor> blocks, mine;
      for (int r = 0; r < group.size(); ++r) {
        blocks.push_back(values_of(group.rank() + r, {uneven(r, scale)}, at::kFloat));
        mine.push_back(values_of(group.rank() + r, {count}, at::kFloat));
      }
      at::Tensor output = at::zeros({count});
      group.reduce_scatter(output, blocks)->wait();
      assert_same_bits(output, model_of(mine, ReduceOp::kSum), concat("scale ", scale));
    });
  }
}

TEST_P(Collectives, AllToAllAndScatterDeliverUnevenBlocks) {
  run([](Communicator& group) {
    const auto block = [](int from, int to, int64_t scale) {
      return values_of(10 * from + to, {uneven(from + 2 * to, scale)}, at::kFloat);
    };
    for (const int64_t scale : kCounts) {
      std::vector<at::Tensor> inputs, outputs;
      for (int r = 0; r < group.size(); ++r) {
        inputs.push_back(block(group.rank(), r, scale));
        outputs.push_back(at::zeros_like(block(r, group.rank(), scale)));
      }
      group.all_to_all(outputs, inputs)->wait();
      for (int r = 0; r < group.size(); ++r) {
        assert_same_bits(outputs[r], block(r, group.rank(), scale), concat("from ", r));
      }
      const int root = group.size() - 1;
      at::Tensor output = at::zeros_like(block(root, group.rank(), scale));
      group.scatter(output, group.rank() == root ? inputs : std::vector<at::Tensor>(), root)
          ->wait();
      assert_same_bits(output, block(root, group.rank(), scale), "scatter");
    }
  });
}

TEST_P(Collectives, SendAndReceiveAroundTheRing) {
  if (size() == 1) return;  // no one to send to
  run([](Communicator& group) {
    const int next = (group.rank() + 1) % group.size();
    const int last = (group.rank() + group.size() - 1) % group.size();
    for (const int64_t count : kCounts) {
      at::Tensor got = at::zeros({count});
      const at::Tensor own = values_of(group.rank(), {count}, at::kFloat);
      // Rank 0 receives first, or all would wait for each other.
      if (group.rank() != 0) group.send(own, next)->wait();
      group.recv(got, last)->wait();
      if (group.rank() == 0) group.send(own, next)->wait();
      assert_same_bits(got, values_of(last, {count}, at::kFloat), concat(count, " elements"));
      group.barrier()->wait();
    }
  });
}

TEST_P(Collectives, StridedTensorsAreReadAndWrittenInPlace) {
  run([](Communicator& group) {
    const int64_t rows = 65, columns = 33;
    std::vector<at::Tensor> inputs = all_values(group.size(), {columns, rows}, at::kFloat);
    at::Tensor whole = at::zeros({rows, 2 * columns});
    at::Tensor view = whole.slice(1, 0, 2 * columns, 2).t();  // [columns, rows], strided
    view.copy_(inputs[group.rank()]);
    group.all_reduce(view)->wait();
    assert_same_bits(view, model_of(inputs, ReduceOp::kSum), "all_reduce");
    EXPECT_EQ(whole.slice(1, 1, 2 * columns, 2).abs().sum().item<double>(), 0) << "wrote between";
    view.copy_(inputs[group.rank()]);
    group.broadcast(view, group.size() - 1)->wait();
    assert_same_bits(view, inputs.back(), "broadcast");
    std::vector<at::Tensor> outputs;
    for (int r = 0; r < group.size(); ++r) outputs.push_back(at::zeros({rows, columns}).t());
    view.copy_(inputs[group.rank()]);
    group.all_gather(outputs, view)->wait();
    for (int r = 0; r < group.size(); ++r) assert_same_bits(outputs[r], inputs[r], "all_gather");
  });
}

TEST_P(Collectives, MixedCallsInARowDoNotDisturbEachOther) {
  run([](Communicator& group) {
    const int size = group.size();
    for (int round = 0; round < 40; ++round) {
      at::Tensor small = at::full({3}, group.rank() + round, at::kLong);
      at::Tensor large = at::full({9000}, group.rank() - round, at::kLong);
      std::vector<at::Tensor> to(size), from(size);
      for (int r = 0; r < size; ++r) {
        to[r] = at::full({r + 1}, 100 * group.rank() + r, at::kLong);
        from[r] = at::zeros({group.rank() + 1}, at::kLong);
      }
      group.all_reduce(small)->wait();
      group.all_to_all(from, to)->wait();
      group.all_reduce(large)->wait();
      group.barrier()->wait();
      const int64_t ranks = size * (size - 1) / 2;
      ASSERT_EQ(small[2].item<int64_t>(), ranks + size * round);
      ASSERT_EQ(large[8999].item<int64_t>(), ranks - size * round);
      for (int r = 0; r < size; ++r) {
        ASSERT_EQ(from[r][group.rank()].item<int64_t>(), 100 * r + group.rank());
      }
    }
  });
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const Operands operands : {Operands::kOrdinary, Operands::kSymmetric, Operands::kMixed}) {
    for (int size = 1; size <= 9; ++size) all.push_back({size, 4 << 10, operands});
    for (const int size : {2, 3, 5}) all.push_back({size, 64 << 10, operands});
  }
  return all;
}

std::string name_of_world(const testing::TestParamInfo<World>& info) {
  static constexpr const char* kNames[] = {"Ordinary", "Symmetric", "Mixed"};
  return concat("Ranks", info.param.size, "Slot", info.param.slot_bytes >> 10, "KiB",
                kNames[static_cast<int>(info.param.operands)]);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(worlds()), name_of_world);

}  // namespace
}  // namespace trireme::comm
