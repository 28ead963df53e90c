#include "tests/comm/transport_suite.h"

#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using harness::assert_same_bits;

constexpr at::ScalarType kDtypes[] = {at::kDouble, at::kFloat, at::kHalf,        at::kBFloat16,
                                      at::kLong,   at::kInt,   at::kShort,       at::kChar,
                                      at::kByte,   at::kBool,  at::kComplexFloat};
constexpr ReduceOp kOperations[] = {ReduceOp::kSum,   ReduceOp::kProduct, ReduceOp::kMin,
                                    ReduceOp::kMax,   ReduceOp::kAverage, ReduceOp::kBitAnd,
                                    ReduceOp::kBitOr, ReduceOp::kBitXor};

bool is_defined(ReduceOp operation, at::ScalarType dtype) {
  const bool is_integral = at::isIntegralType(dtype, true);
  switch (operation) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct: return true;
    case ReduceOp::kMin:
    case ReduceOp::kMax: return !at::isComplexType(dtype);
    case ReduceOp::kAverage: return dtype != at::kBool;
    default: return is_integral;
  }
}

std::vector<at::Tensor> values_of_all(int size, at::IntArrayRef shape, at::ScalarType dtype,
                                      int salt = 0) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values_of(rank + salt, shape, dtype));
  return all;
}

// Rank r's block: r elements more than the others, none for rank 1.
int64_t uneven_length(int rank) { return rank == 1 ? 0 : 3 + 2 * rank; }

void check_one_reduction(Communicator& group, at::ScalarType dtype, ReduceOp operation,
                         int64_t count) {
  const std::string what = concat("rank ", group.rank(), " ", c10::toString(dtype), " op ",
                                  static_cast<int>(operation), " n=", count);
  const auto all = values_of_all(group.size(), {count}, dtype);
  const at::Tensor expected = model_of(all, operation);
  const at::Tensor mine = all[group.rank()];
  at::Tensor data = mine.clone();
  group.all_reduce(data, {.operation = operation})->wait();
  assert_same_bits(data, expected, "all_reduce " + what);
  const int root = group.size() - 1;
  data = mine.clone();
  group.reduce(data, root, {.operation = operation})->wait();
  assert_same_bits(data, group.rank() == root ? expected : mine, "reduce " + what);
}

void check_one_reduce_scatter(Communicator& group, at::ScalarType dtype, ReduceOp operation,
                              bool is_uneven) {
  std::vector<at::Tensor> inputs;
  for (int peer = 0; peer < group.size(); ++peer) {
    inputs.push_back(
        values_of(group.rank() + 10 * peer, {is_uneven ? uneven_length(peer) : 5}, dtype));
  }
  std::vector<at::Tensor> for_me;
  for (int peer = 0; peer < group.size(); ++peer) {
    for_me.push_back(values_of(peer + 10 * group.rank(), inputs[group.rank()].sizes(), dtype));
  }
  const at::Tensor output = at::empty_like(inputs[group.rank()]);
  group.reduce_scatter(output, inputs, {.operation = operation})->wait();
  assert_same_bits(output, model_of(for_me, operation),
                   concat("reduce_scatter ", c10::toString(dtype), " uneven=", is_uneven));
}

}  // namespace

void check_reductions(Communicator& group) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const ReduceOp operation : kOperations) {
      if (!is_defined(operation, dtype)) continue;
      check_one_reduction(group, dtype, operation, 37);
      check_one_reduce_scatter(group, dtype, operation, true);
      check_one_reduce_scatter(group, dtype, operation, false);
    }
  }
  for (const int64_t count : {0, 1, 2, 4097, 300001}) {
    check_one_reduction(group, at::kFloat, ReduceOp::kSum, count);
    check_one_reduction(group, at::kBFloat16, ReduceOp::kAverage, count);
  }
}

void check_unsupported_pairs(Communicator& group) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const ReduceOp operation : kOperations) {
      if (is_defined(operation, dtype)) continue;
      const at::Tensor data = at::ones({3}).to(dtype);
      const std::vector<at::Tensor> blocks(group.size(), data);
      const Options options{.operation = operation};
      EXPECT_ERROR(ConfigError, group.all_reduce(data, options), "is not defined on");
      EXPECT_ERROR(ConfigError, group.reduce(data, 0, options), "is not defined on");
      EXPECT_ERROR(ConfigError, group.reduce_scatter(data.clone(), blocks, options),
                   "is not defined on");
    }
  }
  EXPECT_THROW(static_cast<void>(group.all_reduce(at::empty({2}, at::kFloat8_e5m2))), ConfigError);
  // As many bytes of another dtype would be read as what they are not.
  const at::Tensor data = at::ones({3});
  const std::vector<at::Tensor> ints(group.size(), at::ones({3}, at::kInt));
  EXPECT_THROW(static_cast<void>(group.all_gather(ints, data)), ConfigError);
  EXPECT_THROW(static_cast<void>(group.reduce_scatter(data, ints)), ConfigError);
  std::vector<at::Tensor> mixed(group.size(), data);
  mixed.back() = ints.back();
  if (group.size() > 1) {
    EXPECT_THROW(static_cast<void>(group.all_to_all(mixed, ints)), ConfigError);
  }
  EXPECT_THROW(static_cast<void>(group.all_gather(mixed, data)), ConfigError);
  group.barrier()->wait();
}

void check_refused_calls(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  const at::Tensor data = at::ones({3}), undefined;
  const std::vector<at::Tensor> blocks(size, data);
  std::vector<at::Tensor> wrong = blocks, ints(size, at::ones({3}, at::kInt));
  wrong[me] = at::ones({4});
  const auto refused = [](const std::string& text, auto call) {
    EXPECT_ERROR(ConfigError, call(), text);
  };
  for (const int root : {-1, size}) {
    const std::string text = concat("rank ", root, " is not in group ", group.name());
    refused("reduce: " + text, [&] { return group.reduce(data, root); });
    refused("broadcast: " + text, [&] { return group.broadcast(data, root); });
    refused("gather: " + text, [&] { return group.gather(blocks, data, root); });
    refused("scatter: " + text, [&] { return group.scatter(data, blocks, root); });
  }
  const std::string self = concat("rank ", me, " is this rank");
  refused("send: " + self, [&] { return group.send(data, me); });
  refused("recv: " + self, [&] { return group.recv(data, me); });
  refused(self, [&] { return group.borrow({3}, at::kFloat, me); });
  for (const int tag : {-1, kMostTag + 1}) {
    const std::string text = concat(": tag ", tag, "; expected 0 to 67108863");
    const int peer = (me + 1) % size;
    refused("send" + text, [&] { return group.send(data, peer, {.tag = tag}); });
    refused("recv" + text, [&] { return group.recv(data, peer, {.tag = tag}); });
    refused("borrow" + text, [&] { return group.borrow({3}, at::kFloat, peer, {.tag = tag}); });
  }
  const std::string nothing = ": got an undefined tensor";
  refused("all_reduce" + nothing, [&] { return group.all_reduce(undefined); });
  refused("all_gather" + nothing, [&] { return group.all_gather(blocks, undefined); });
  refused("reduce_scatter" + nothing, [&] { return group.reduce_scatter(undefined, blocks); });
  refused("gather" + nothing, [&] { return group.gather(blocks, undefined, me); });
  refused("scatter" + nothing, [&] { return group.scatter(undefined, blocks, me); });
  const std::string own = ": this rank's own tensor has 12 bytes and its block of the list 16";
  refused("all_gather" + own, [&] { return group.all_gather(wrong, data); });
  refused("reduce_scatter" + own, [&] { return group.reduce_scatter(data, wrong); });
  refused("gather" + own, [&] { return group.gather(wrong, data, me); });
  refused("scatter" + own, [&] { return group.scatter(data, wrong, me); });
  refused("all_to_all: this rank keeps 12 bytes for itself and their place has 16",
          [&] { return group.all_to_all(wrong, blocks); });
  const std::string dtypes = ": got tensors of Int and Float";
  refused("all_gather" + dtypes, [&] { return group.all_gather(ints, data); });
  refused("gather" + dtypes, [&] { return group.gather(ints, data, me); });
  refused("scatter" + dtypes, [&] { return group.scatter(data, ints, me); });
  // What is wrong with the lists comes before what is wrong with the reduction.
  refused("reduce_scatter" + own,
          [&] { return group.reduce_scatter(data, wrong, {.operation = ReduceOp::kBitAnd}); });

  // Lists beside the root are not looked at.
  const std::vector<at::Tensor> rooms = values_of_all(size, {3}, at::kFloat);
  group.gather(me == 0 ? rooms : std::vector<at::Tensor>{data}, data, 0)->wait();
  if (me == 0) assert_same_bits(rooms[size - 1], data, "gather");
  group.scatter(rooms[0], me == 0 ? blocks : std::vector<at::Tensor>{data}, 0)->wait();
  assert_same_bits(rooms[0], data, "scatter");
  if (size > 1) {  // with the largest tag
    const WorkPtr sent = group.send(data, (me + 1) % size, {.tag = kMostTag, .background = true});
    const at::Tensor arrived = at::zeros({3});
    group.recv(arrived, (me + size - 1) % size, {.tag = kMostTag})->wait();
    sent->wait();
    assert_same_bits(arrived, data, "recv");
  }
  group.barrier()->wait();
}

void check_moves(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  for (const int64_t count : {0, 1, 5, 100003}) {
    for (int root = 0; root < size; ++root) {
      at::Tensor data = values_of(me, {count}, at::kDouble);
      group.broadcast(data, root)->wait();
      assert_same_bits(data, values_of(root, {count}, at::kDouble), "broadcast");
    }
  }
  for (const auto length_of :
       {+[](int) -> int64_t { return 4; }, +[](int r) { return uneven_length(r); },
        +[](int r) -> int64_t { return r == 0 ? 70001 : 1; }}) {
    const auto block = [&](int from, int to) {  // [length_of(from) + to]
      return values_of(from * 16 + to, {length_of(from) * (to + 1)}, at::kFloat);
    };
    std::vector<at::Tensor> outputs(size), inputs(size);
    for (int peer = 0; peer < size; ++peer) outputs[peer] = at::empty_like(block(peer, 0));
    group.all_gather(outputs, block(me, 0))->wait();
    for (int peer = 0; peer < size; ++peer)
      assert_same_bits(outputs[peer], block(peer, 0), "all_gather");

    for (int peer = 0; peer < size; ++peer) {
      inputs[peer] = block(me, peer);
      outputs[peer] = at::empty_like(block(peer, me));
    }
    group.all_to_all(outputs, inputs)->wait();
    for (int peer = 0; peer < size; ++peer)
      assert_same_bits(outputs[peer], block(peer, me), "all_to_all");

    for (int root = 0; root < size; ++root) {
      std::vector<at::Tensor> gathered;
      for (int peer = 0; peer < size && me == root; ++peer)
        gathered.push_back(at::empty_like(block(peer, 0)));
      group.gather(gathered, block(me, 0), root)->wait();
      for (size_t peer = 0; peer < gathered.size(); ++peer)
        assert_same_bits(gathered[peer], block(static_cast<int>(peer), 0), "gather");

      std::vector<at::Tensor> scattered;
      for (int peer = 0; peer < size && me == root; ++peer) scattered.push_back(block(peer, root));
      at::Tensor mine = at::empty_like(block(me, root));
      group.scatter(mine, scattered, root)->wait();
      assert_same_bits(mine, block(me, root), "scatter");
    }
  }
}

void check_strided_tensors(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  const auto strided = [](int rank) { return values_of(rank, {4, 6}, at::kFloat).t(); };
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(strided(rank).contiguous());
  at::Tensor data = strided(me);
  group.all_reduce(data)->wait();
  assert_same_bits(data.contiguous(), model_of(all, ReduceOp::kSum), "all_reduce");
  data = strided(me);
  group.reduce(data, 0)->wait();
  assert_same_bits(data.contiguous(), me == 0 ? model_of(all, ReduceOp::kSum) : all[me], "reduce");
  data = strided(me);
  group.broadcast(data, size - 1)->wait();
  assert_same_bits(data.contiguous(), all[size - 1], "broadcast");
  std::vector<at::Tensor> outputs;
  for (int rank = 0; rank < size; ++rank) outputs.push_back(at::zeros({4, 6}).t());
  group.all_gather(outputs, strided(me))->wait();
  for (int rank = 0; rank < size; ++rank)
    assert_same_bits(outputs[rank].contiguous(), all[rank], "all_gather");
  const std::vector<at::Tensor> inputs(size, strided(me));
  group.all_to_all(outputs, inputs)->wait();
  for (int rank = 0; rank < size; ++rank)
    assert_same_bits(outputs[rank].contiguous(), all[rank], "all_to_all");
  at::Tensor output = at::zeros({4, 6}).t();
  group.reduce_scatter(output, inputs)->wait();
  assert_same_bits(output.contiguous(), model_of(all, ReduceOp::kSum), "reduce_scatter");
}

void check_point_to_point(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  for (const int64_t count : {0, 1, 30011}) {
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> received(2 * size);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == me) continue;
      for (int tag = 0; tag < 2; ++tag) {
        works.push_back(group.send(values_of(me + tag, {count}, at::kDouble), peer,
                                   {.tag = tag, .background = true}));
      }
      for (const int tag : {1, 0}) {  // not in the order they are sent in
        received[2 * peer + tag] = at::empty({count}, at::kDouble);
        works.push_back(
            group.recv(received[2 * peer + tag], peer, {.tag = tag, .background = true}));
      }
    }
    for (const WorkPtr& work : works) work->wait();
    for (int peer = 0; peer < size; ++peer) {
      for (int tag = 0; tag < 2 && peer != me; ++tag) {
        assert_same_bits(received[2 * peer + tag], values_of(peer + tag, {count}, at::kDouble),
                         "recv");
      }
    }
  }
  if (size < 2 || me > 1) return;
  // In the foreground: messages with one tag arrive in the order they are sent in.
  for (int i = 0; i < 5; ++i) {
    at::Tensor data = at::full({3}, me == 0 ? i : -1);
    if (me == 0) group.send(data, 1)->wait();
    if (me == 1) group.recv(data, 0)->wait();
    EXPECT_EQ(data[2].item<int64_t>(), i);
  }
}

void check_any_source(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  if (me != 0) {
    group.send(at::full({4}, me), 0, {.tag = 3})->wait();
    at::Tensor second = at::full({4}, 10 * me);
    group.send(second, 0, {.tag = 3, .background = true})->wait();
  } else {
    std::vector<int> count(size);
    for (int i = 0; i < 2 * (size - 1); ++i) {
      at::Tensor data = at::zeros({4}, at::kLong);
      const WorkPtr work = group.recv(data, kAnySource, {.tag = 3, .background = i % 2 == 1});
      work->wait();
      const int source = work->source();
      ASSERT_GT(source, 0);
      ASSERT_LT(source, size);
      EXPECT_EQ(data[3].item<int64_t>(), count[source]++ == 0 ? source : 10 * source);
    }
    for (int peer = 1; peer < size; ++peer) EXPECT_EQ(count[peer], 2);
  }
  group.barrier()->wait();
}

void check_background(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  std::vector<at::Tensor> data;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 6; ++i) {
    data.push_back(values_of(me + i, {1000 * i + 1}, at::kFloat));
    works.push_back(group.all_reduce(data.back(), {.background = true}));
  }
  works[5]->wait();
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(works[i]->poll());  // those before it are done
    works[i]->wait();
    EXPECT_EQ(works[i]->source(), -1);
    assert_same_bits(data[i],
                     model_of(values_of_all(size, {1000 * i + 1}, at::kFloat, i), ReduceOp::kSum),
                     "background all_reduce");
  }
  if (size > 1) {  // a wait that gives up does not end the recv
    at::Tensor message = at::zeros({2});
    if (me == 0) {
      const WorkPtr work = group.recv(message, 1, {.background = true});
      EXPECT_FALSE(work->wait_for(std::chrono::milliseconds(20)));
      group.barrier()->wait();
      EXPECT_TRUE(work->wait_for(std::chrono::milliseconds(60000)));
      EXPECT_TRUE(work->poll());
      EXPECT_EQ(message[1].item<float>(), 1);
    } else {
      group.barrier()->wait();
      if (me == 1) group.send(at::ones({2}), 0)->wait();
    }
  }
  group.barrier({.background = true})->wait();
}

void check_split(Communicator& group) {
  const int me = group.rank();
  const auto odd = group.split(me % 2, -me, me % 2 == 0 ? "even" : "odd");
  ASSERT_NE(odd, nullptr);
  EXPECT_EQ(odd->size(), (group.size() + 1 - me % 2) / 2);
  EXPECT_EQ(odd->rank(), odd->size() - 1 - me / 2);
  EXPECT_EQ(odd->name(), me % 2 == 0 ? "even" : "odd");
  at::Tensor sum = at::full({2}, 1 << me);
  odd->all_reduce(sum)->wait();
  int64_t expected = 0;
  for (int rank = me % 2; rank < group.size(); rank += 2) expected += 1 << rank;
  EXPECT_EQ(sum[1].item<int64_t>(), expected);

  const auto some = group.split(me == 0 ? -1 : 0, 0, "some");
  EXPECT_EQ(some == nullptr, me == 0);
  if (some != nullptr) {
    EXPECT_EQ(some->rank(), me - 1);
    some->barrier()->wait();
    const auto again = some->split(0, 0, "again");  // a split of a split
    again->barrier()->wait();
  }
  group.barrier()->wait();
}

void check_abort(Communicator& group) {
  const auto doomed = group.split(0, group.rank(), "doomed");
  doomed->barrier()->wait();
  if (group.rank() == 0) {
    // The last rank to come never comes; nobody but abort() can end the others' wait.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    doomed->abort("enough of this");
    doomed->abort("and of that");
  }
  EXPECT_ERROR(CommError, doomed->all_reduce(at::ones({5}))->wait(), "enough of this");
  EXPECT_ERROR(CommError, doomed->barrier()->wait(), "enough of this");

  const auto other = group.split(0, group.rank(), "other");
  other->barrier()->wait();
  if (group.rank() == group.size() - 1) {  // in a synchronous call while another thread aborts
    std::thread watchdog([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      other->abort("the watchdog barked");
    });
    if (group.size() > 1) {
      EXPECT_ERROR(CommError, other->recv(at::ones({5}), 0)->wait(), "the watchdog barked");
    }
    watchdog.join();
  }
  group.barrier()->wait();
}

void check_symmetric_memory(Communicator& group) {
  at::Tensor data = group.symmetric_empty({3, 5}, at::kFloat);
  EXPECT_EQ(data.sizes(), (std::vector<int64_t>{3, 5}));
  data.fill_(1);
  group.all_reduce(data)->wait();
  EXPECT_EQ(data.sum().item<float>(), 15 * group.size());
}

void check_borrow(Communicator& group) {
  const int me = group.rank();
  const int size = group.size();
  if (size == 1) {
    EXPECT_THROW(static_cast<void>(group.borrow({1}, at::kFloat, 0)), ConfigError);
    return;
  }
  const int next = (me + 1) % size;
  const int previous = (me + size - 1) % size;
  for (const bool is_symmetric : {true, false}) {
    for (const int64_t count : {0, 1, 30011}) {
      const auto own = [&](int tag) {
        const at::Tensor values = values_of(me + tag, {2, count}, at::kDouble);
        if (!is_symmetric) return values;
        const at::Tensor data = group.symmetric_empty({2, count}, at::kDouble);
        data.copy_(values);
        return data;
      };
      std::vector<WorkPtr> sends;
      std::vector<LoanPtr> loans;
      for (int tag = 0; tag < 3; ++tag) {
        sends.push_back(group.send(own(tag), next, {.tag = tag, .background = true}));
      }
      for (const int tag : {2, 0, 1}) {
        loans.push_back(
            group.borrow({2, count}, at::kDouble, previous, {.tag = tag, .background = tag != 0}));
      }
      loans.pop_back();  // whether it has come or not
      for (size_t i = 0; i < loans.size(); ++i) {
        loans[i]->wait();
        EXPECT_EQ(loans[i]->source(), previous);
        assert_same_bits(loans[i]->data(),
                         values_of(previous + (i == 0 ? 2 : 0), {2, count}, at::kDouble), "borrow");
      }
      // What is borrowed is sent on.
      sends.push_back(group.send(loans[0]->data(), next, {.tag = 4, .background = true}));
      loans.clear();
      {
        const LoanPtr second = group.borrow({2, count}, at::kDouble, previous, {.tag = 4});
        assert_same_bits(second->data(),
                         values_of((previous + size - 1) % size + 2, {2, count}, at::kDouble),
                         "sent on");
      }
      for (const WorkPtr& work : sends) work->wait();
    }
  }
  group.barrier()->wait();
}

}  // namespace trireme::comm
