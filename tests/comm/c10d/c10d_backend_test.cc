#include "trireme/comm/c10d/c10d_backend.h"

#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/thread_group.h"

// tests/python runs every operation x dtype x size through torch.distributed; here is what Python
// does not reach, and each call once.
namespace trireme::comm {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using Function = std::function<void(C10dBackend&)>;

void run_backends(int size, const Function& function) {
  auto groups = make_thread_group(size, {.timeout = std::chrono::seconds(20)});
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&] {
      const auto backend =
          c10::make_intrusive<C10dBackend>(std::move(group), std::chrono::seconds(20));
      try {
        function(*backend);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Synchronous and not, on 1 to 4 ranks.
void run_both_ways(const std::function<void(C10dBackend&, bool is_async)>& function) {
  for (const int size : {1, 2, 3, 4}) {
    run_backends(size, [&](C10dBackend& backend) {
      function(backend, false);
      function(backend, true);
    });
  }
}

template <typename Options>
Options with(bool is_async, Options options = {}) {
  options.asyncOp = is_async;
  return options;
}

// As torch.distributed._make_nccl_premul_sum; by the name that all of torch 2.11 to 2.14 have.
template <typename Factor>
c10d::ReduceOp premultiplied_sum(const Factor& factor) {
  c10d::ReduceOp op;
  op.op_ = c10d::ReduceOp::PREMUL_SUM;
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return op;
}

// What rank `rank` contributes, and what all of them give.
at::Tensor share(int rank, at::IntArrayRef shape = {5, 3}) {
  return values_of(rank, shape, at::kDouble);
}
at::Tensor reduced(int size, ReduceOp operation, at::IntArrayRef shape = {5, 3}) {
  Tensors inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(share(rank, shape));
  return model_of(inputs, operation);
}

TEST(C10dBackend, AllReducesAsTheScalarModel) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    auto options = with<c10d::AllreduceOptions>(is_async);
    for (const auto& [op, expected] : {std::pair(c10d::ReduceOp::SUM, ReduceOp::kSum),
                                       std::pair(c10d::ReduceOp::AVG, ReduceOp::kAverage),
                                       std::pair(c10d::ReduceOp::MAX, ReduceOp::kMax)}) {
      options.reduceOp = op;
      Tensors data = {share(backend.getRank())};
      const auto work = backend.allreduce(data, options);
      work->wait(kNoTimeout);
      harness::assert_same_bits(data[0], reduced(backend.getSize(), expected), "all_reduce");
      EXPECT_TRUE(work->getFuture()->value().toTensorVector().at(0).is_same(data[0]));
    }
  });
}

TEST(C10dBackend, SumsPremultipliedInputsInPlace) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    auto all = with<c10d::AllreduceOptions>(is_async);
    all.reduceOp = premultiplied_sum(0.25);
    Tensors data = {share(backend.getRank())};
    backend.allreduce(data, all)->wait(kNoTimeout);
    // A quarter is exact, so scaling before and after the sum gives the same bits.
    const at::Tensor expected = reduced(backend.getSize(), ReduceOp::kSum) * 0.25;
    harness::assert_same_bits(data[0], expected, "all_reduce");

    auto one = with<c10d::ReduceOptions>(is_async);
    one.reduceOp = all.reduceOp;
    data = {share(backend.getRank())};
    backend.reduce(data, one)->wait(kNoTimeout);
    harness::assert_same_bits(data[0], backend.getRank() == 0 ? expected : share(backend.getRank()),
                              "reduce");
  });
}

TEST(C10dBackend, ReducesAndBroadcastsAtTheRoot) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    const int root = backend.getSize() - 1;
    auto reduce = with<c10d::ReduceOptions>(is_async);
    reduce.rootRank = root;
    Tensors data = {share(backend.getRank())};
    backend.reduce(data, reduce)->wait(kNoTimeout);
    if (backend.getRank() == root)
      harness::assert_same_bits(data[0], reduced(backend.getSize(), ReduceOp::kSum), "reduce");

    auto broadcast = with<c10d::BroadcastOptions>(is_async);
    broadcast.rootRank = root;
    data = {share(backend.getRank())};
    backend.broadcast(data, broadcast)->wait(kNoTimeout);
    harness::assert_same_bits(data[0], share(root), "broadcast");
  });
}

TEST(C10dBackend, GathersIntoListsAndIntoOneTensor) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    const int size = backend.getSize();
    const auto options = with<c10d::AllgatherOptions>(is_async);
    Tensors inputs = {share(backend.getRank())};
    Tensors expected;
    for (int rank = 0; rank < size; ++rank) expected.push_back(share(rank));
    TensorLists lists = {Tensors()};
    for (int rank = 0; rank < size; ++rank) lists[0].push_back(at::zeros_like(inputs[0]));
    backend.allgather(lists, inputs, options)->wait(kNoTimeout);
    for (int rank = 0; rank < size; ++rank)
      harness::assert_same_bits(lists[0][rank], expected[rank], "all_gather");

    for (const bool is_contiguous : {true, false}) {
      at::Tensor flat = is_contiguous ? at::zeros({5 * size, 3}, at::kDouble)
                                      : at::zeros({3, 5 * size}, at::kDouble).t();
      backend._allgather_base(flat, inputs[0], options)->wait(kNoTimeout);
      harness::assert_same_bits(flat.contiguous(), at::cat(expected), "all_gather_into_tensor");
    }
  });
}

TEST(C10dBackend, GathersCoalescedTensorsOfSeveralDtypes) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    const int size = backend.getSize();
    const auto options = with<c10d::AllgatherOptions>(is_async);
    const auto input = [](int rank, int i) {
      return i == 0 ? share(rank) : share(rank, {2}).to(at::kFloat);
    };
    Tensors inputs = {input(backend.getRank(), 0), input(backend.getRank(), 1)};
    Tensors flat = {at::zeros({5 * size, 3}, at::kDouble), at::zeros({2 * size})};
    backend.allgather_into_tensor_coalesced(flat, inputs, options)->wait(kNoTimeout);
    TensorLists by_rank(size);
    for (Tensors& list : by_rank) list = {at::zeros_like(inputs[0]), at::zeros_like(inputs[1])};
    backend.allgather_coalesced(by_rank, inputs, options)->wait(kNoTimeout);
    for (int i = 0; i < 2; ++i) {
      Tensors expected;
      for (int rank = 0; rank < size; ++rank) {
        expected.push_back(input(rank, i));
        harness::assert_same_bits(by_rank[rank][i], expected.back(), "list");
      }
      harness::assert_same_bits(flat[i], at::cat(expected), "flat");
    }
  });
}

TEST(C10dBackend, ReduceScattersListsTensorsAndCoalesced) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    const int size = backend.getSize();
    auto options = with<c10d::ReduceScatterOptions>(is_async);
    options.reduceOp = c10d::ReduceOp::AVG;
    at::Tensor input = share(backend.getRank(), {2 * size, 3});
    const at::Tensor expected = reduced(size, ReduceOp::kAverage, {2 * size, 3})
                                    .narrow(0, 2 * backend.getRank(), 2)
                                    .contiguous();
    Tensors outputs = {at::zeros({2, 3}, at::kDouble)};
    TensorLists lists = {input.chunk(size)};
    backend.reduce_scatter(outputs, lists, options)->wait(kNoTimeout);
    harness::assert_same_bits(outputs[0], expected, "reduce_scatter");

    at::Tensor output = at::zeros({2, 3}, at::kDouble);
    backend._reduce_scatter_base(output, input, options)->wait(kNoTimeout);
    harness::assert_same_bits(output, expected, "reduce_scatter_tensor");

    outputs = {at::zeros({2, 3}, at::kDouble), at::zeros({2, 3}, at::kDouble)};
    Tensors inputs = {input, input + 0};
    backend.reduce_scatter_tensor_coalesced(outputs, inputs, options)->wait(kNoTimeout);
    harness::assert_same_bits(outputs[0], expected, "coalesced");
    harness::assert_same_bits(outputs[1], expected, "coalesced");
  });
}

TEST(C10dBackend, AllReducesCoalescedTensors) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    auto options = with<c10d::AllreduceCoalescedOptions>(is_async);
    options.reduceOp = premultiplied_sum(at::full({1}, 0.5));
    Tensors data = {share(backend.getRank()), share(backend.getRank(), {0}),
                    share(backend.getRank(), {7}).to(at::kFloat)};
    Tensors sevens;
    for (int rank = 0; rank < backend.getSize(); ++rank)
      sevens.push_back(share(rank, {7}).to(at::kFloat));
    backend.allreduce_coalesced(data, options)->wait(kNoTimeout);
    harness::assert_same_bits(data[0], reduced(backend.getSize(), ReduceOp::kSum) * 0.5, "fp64");
    harness::assert_same_bits(data[2], model_of(sevens, ReduceOp::kSum) * 0.5, "fp32");
  });
}

TEST(C10dBackend, ExchangesUnevenSplitsOfOneTensorAndOfLists) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    const int rank = backend.getRank();
    const int size = backend.getSize();
    const auto options = with<c10d::AllToAllOptions>(is_async);
    const auto rows = [](int from, int to) { return static_cast<int64_t>((from + 2 * to) % 3); };
    const auto block = [&](int from, int to) {
      return at::full({rows(from, to), 2}, 10.0 * from + to, at::kDouble);
    };
    std::vector<int64_t> input_sizes, output_sizes;
    Tensors sent, expected;
    for (int peer = 0; peer < size; ++peer) {
      sent.push_back(block(rank, peer));
      expected.push_back(block(peer, rank));
      input_sizes.push_back(rows(rank, peer));
      output_sizes.push_back(rows(peer, rank));
    }
    at::Tensor input = at::cat(sent);
    at::Tensor output = at::zeros_like(at::cat(expected));
    backend.alltoall_base(output, input, output_sizes, input_sizes, options)->wait(kNoTimeout);
    harness::assert_same_bits(output, at::cat(expected), "all_to_all_single");

    Tensors outputs;
    for (const at::Tensor& tensor : expected) outputs.push_back(at::zeros_like(tensor));
    backend.alltoall(outputs, sent, options)->wait(kNoTimeout);
    for (int peer = 0; peer < size; ++peer)
      harness::assert_same_bits(outputs[peer], expected[peer], "all_to_all");
  });
}

TEST(C10dBackend, GathersToAndScattersFromTheRoot) {
  run_both_ways([](C10dBackend& backend, bool is_async) {
    const int rank = backend.getRank();
    const int root = backend.getSize() / 2;
    auto gather = with<c10d::GatherOptions>(is_async);
    auto scatter = with<c10d::ScatterOptions>(is_async);
    gather.rootRank = scatter.rootRank = root;
    Tensors tensors = {share(rank)};
    TensorLists lists;
    if (rank == root) lists.emplace_back(backend.getSize());
    for (Tensors& list : lists)
      for (at::Tensor& tensor : list) tensor = at::zeros_like(tensors[0]);
    backend.gather(lists, tensors, gather)->wait(kNoTimeout);
    if (rank == root) {
      for (int from = 0; from < backend.getSize(); ++from)
        harness::assert_same_bits(lists[0][from], share(from), "gather");
    }
    tensors[0].zero_();
    backend.scatter(tensors, lists, scatter)->wait(kNoTimeout);
    harness::assert_same_bits(tensors[0], share(rank), "scatter");
    if (rank != root) {
      TensorLists wrong = {tensors};
      EXPECT_ERROR(ConfigError, backend.scatter(tensors, wrong, scatter), "on the root only");
    }
  });
}

TEST(C10dBackend, SendsAroundARing) {
  for (const int size : {2, 3, 4}) {
    run_backends(size, [&](C10dBackend& backend) {
      const int rank = backend.getRank();
      Tensors sent = {share(rank)};
      Tensors received = {at::zeros_like(sent[0])};
      // Even ranks send first: this holds on a communicator whose point-to-point calls are in
      // order.
      const auto send = [&] { backend.send(sent, (rank + 1) % size, 4)->wait(kNoTimeout); };
      if (rank != 0) send();
      const auto work = backend.recv(received, (rank + size - 1) % size, 4);
      if (rank == 0) {
        work->wait(kNoTimeout);
        send();
      } else {
        work->wait(kNoTimeout);
      }
      harness::assert_same_bits(received[0], share((rank + size - 1) % size), "ring");
    });
  }
}

TEST(C10dBackend, CountsCollectivesAndNamesItself) {
  run_backends(2, [](C10dBackend& backend) {
    EXPECT_EQ(backend.getBackendName(), "trireme");
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 0U);
    backend.barrier(with<c10d::BarrierOptions>(false))->wait(kNoTimeout);
    backend.monitoredBarrier(c10d::BarrierOptions(), true);
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 2U);
    EXPECT_EQ(backend.getError(), c10d::ErrorType::SUCCESS);
    backend.setTimeout(std::chrono::seconds(7));
    EXPECT_EQ(backend.getBackendOptions()->timeout, std::chrono::seconds(7));
    EXPECT_ERROR(ConfigError, backend.setTimeout(std::chrono::seconds(0)), "more than 0");
  });
}

TEST(C10dBackend, AllocatesTensorsThatItsCollectivesTake) {
  run_backends(2, [](C10dBackend& backend) {
    EXPECT_TRUE(backend.supportsTensorAlloc(at::Device(at::kCPU).index()));
    Tensors data = {backend.allocateTensor(15, at::TensorOptions().dtype(at::kDouble))};
    data[0].copy_(share(backend.getRank()).view({15}));
    backend.allreduce(data, with<c10d::AllreduceOptions>(false))->wait(kNoTimeout);
    harness::assert_same_bits(data[0].view({5, 3}), reduced(2, ReduceOp::kSum), "all_reduce");
    EXPECT_ERROR(ConfigError, backend.allocateTensor(3, at::TensorOptions().device(at::kMeta)),
                 "got device meta");
  });
}

TEST(C10dBackend, RefusesWhatCannotWorkBeforeAnythingIsSent) {
  run_backends(2, [](C10dBackend& backend) {
    Tensors longs = {at::ones({4}, at::kLong)};
    auto average = with<c10d::AllreduceOptions>(false);
    average.reduceOp = c10d::ReduceOp::AVG;
    Tensors flags = {at::ones({4}, at::kBool)};
    EXPECT_ERROR(ConfigError, backend.allreduce(flags, average), "average is not defined on Bool");
    at::Tensor small = at::ones({3}, at::kLong);
    EXPECT_ERROR(ConfigError, backend._allgather_base(small, longs[0], {}),
                 "got a buffer of 3 elements; expected 8");
    at::Tensor floats = at::ones({8});
    EXPECT_ERROR(ConfigError, backend._allgather_base(floats, longs[0], {}), "one dtype");
    // The group still works.
    backend.allreduce(longs, with<c10d::AllreduceOptions>(false))->wait(kNoTimeout);
    harness::assert_same_bits(longs[0], at::full({4}, 2, at::kLong), "after errors");
  });
}

TEST(C10dBackend, SendsWhileASynchronousCollectiveOfAnotherThreadWaits) {
  run_backends(2, [](C10dBackend& backend) {
    Tensors data = {share(backend.getRank())};
    const auto sum = [&] {
      backend.allreduce(data, with<c10d::AllreduceOptions>(false))->wait(kNoTimeout);
    };
    Tensors message = {at::full({3}, 7.0)};
    if (backend.getRank() == 0) {
      std::thread collective(sum);
      // Issued: the call waits for rank 1, which waits for the message.
      while (backend.getSequenceNumberForGroup() == 0) std::this_thread::yield();
      backend.send(message, 1, 0)->wait(kNoTimeout);
      EXPECT_TRUE(backend.allocateTensor(4, at::TensorOptions()).defined());
      collective.join();
    } else {
      message[0].zero_();
      backend.recv(message, 0, 0)->wait(kNoTimeout);
      sum();
    }
    harness::assert_same_bits(message[0], at::full({3}, 7.0), "message");
    harness::assert_same_bits(data[0], reduced(2, ReduceOp::kSum), "all_reduce");
  });
}

TEST(C10dBackend, TakesABarriersOwnTimeout) {
  std::latch over(2);
  run_backends(2, [&](C10dBackend& backend) {
    auto options = with<c10d::BarrierOptions>(backend.getRank() == 0);
    options.timeout = std::chrono::milliseconds(20);
    if (backend.getRank() == 0) {
      EXPECT_ERROR(c10::DistBackendError, backend.barrier(options)->wait(kNoTimeout),
                   "[trireme] Timed out waiting 20ms: barrier #2 of group");
    }
    over.arrive_and_wait();
  });
}

// The events of one call, by name, with the shapes of their inputs.
std::map<std::string, std::vector<std::vector<int64_t>>> recorded_events(
    const std::function<void()>& function) {
  static std::map<std::string, std::vector<std::vector<int64_t>>>* events = nullptr;
  static std::mutex* mutex = nullptr;
  std::map<std::string, std::vector<std::vector<int64_t>>> seen;
  std::mutex guard;
  events = &seen;
  mutex = &guard;
  const auto begin = [](const at::RecordFunction& event) -> std::unique_ptr<at::ObserverContext> {
    const std::lock_guard lock(*mutex);
    auto& shapes = (*events)[event.name()];
    shapes.clear();
    for (const c10::IValue& input : event.inputs())
      shapes.push_back(input.toTensor().sizes().vec());
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin).needsInputs(true).scopes({at::RecordScope::USER_SCOPE}));
  function();
  at::removeCallback(handle);
  return seen;
}

TEST(C10dBackend, GivesAProfilerItsOwnEventAndGloos) {
  run_backends(1, [](C10dBackend& backend) {
    using Shapes = std::vector<std::vector<int64_t>>;
    Tensors data = {share(0)};
    auto events = recorded_events(
        [&] { backend.allreduce(data, with<c10d::AllreduceOptions>(false))->wait(kNoTimeout); });
    EXPECT_EQ(events.at("trireme:all_reduce"), (Shapes{{5, 3}}));
    EXPECT_EQ(events.at("gloo:all_reduce"), (Shapes{{5, 3}}));
    EXPECT_EQ(events.size(), 2U);
    at::Tensor output = at::zeros({5, 3}, at::kDouble);
    events = recorded_events([&] {
      backend._allgather_base(output, data[0], with<c10d::AllgatherOptions>(true))
          ->wait(kNoTimeout);
      backend._reduce_scatter_base(output, data[0], with<c10d::ReduceScatterOptions>(true))
          ->wait(kNoTimeout);
    });
    EXPECT_TRUE(events.contains("trireme:_all_gather_base"));
    EXPECT_TRUE(events.contains("gloo:all_gather"));
    EXPECT_TRUE(events.contains("gloo:reduce_scatter"));
  });
}

TEST(C10dBackend, ReportsAMismatchOnAllRanksAsTorchsOwnType) {
  run_backends(2, [](C10dBackend& backend) {
    Tensors data = {at::ones({backend.getRank() + 1})};
    EXPECT_ERROR(c10::DistBackendError,
                 backend.allreduce(data, with<c10d::AllreduceOptions>(false)),
                 "different operations");
    EXPECT_EQ(backend.getError(), c10d::ErrorType::COMM_ERROR);
    EXPECT_ERROR(c10::DistBackendError, backend.barrier(c10d::BarrierOptions()), "different");
  });
}

TEST(C10dBackend, FinishesDroppedWorkBeforeItLeaves) {
  run_backends(2, [](C10dBackend& backend) {
    Tensors data = {share(backend.getRank())};
    backend.allreduce(data, with<c10d::AllreduceOptions>(true));
    backend.shutdown();
    harness::assert_same_bits(data[0], reduced(2, ReduceOp::kSum), "all_reduce");
    EXPECT_ERROR(ConfigError, backend.barrier(c10d::BarrierOptions()), "has been shut down");
  });
}

TEST(C10dBackend, FailsPendingWorkWhenAborted) {
  std::latch aborted(1);
  run_backends(2, [&](C10dBackend& backend) {
    if (backend.getRank() != 0) {
      aborted.wait();
      EXPECT_ERROR(c10::DistBackendError, backend.barrier(with<c10d::BarrierOptions>(false)),
                   "aborted");
      return;
    }
    Tensors data = {share(0)};
    const auto work = backend.allreduce(data, with<c10d::AllreduceOptions>(true));
    backend.abort();
    aborted.count_down();
    EXPECT_ERROR(c10::DistBackendError, work->wait(kNoTimeout), "aborted");
  });
}

}  // namespace
}  // namespace trireme::comm
