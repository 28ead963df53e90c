#include "tests/comm/c10d/native_suite.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

at::Tensor filled(int64_t length, double value, c10::Device device) {
  return at::full({length}, value, at::TensorOptions().device(device).dtype(at::kDouble));
}

void expect_filled(const at::Tensor& found, double value) {
  const at::Tensor values = found.cpu();
  EXPECT_TRUE(at::equal(values, at::full_like(values, value))) << values << " is not " << value;
}

double sum_of_ranks(int size) { return size * (size - 1) / 2.0; }

}  // namespace

void check_native_reductions(Communicator& group, c10::Device device) {
  const int me = group.rank();
  const int size = group.size();
  const at::Tensor strided = filled(6, me, device).view({2, 3}).t();
  group.all_reduce(strided)->wait();
  expect_filled(strided, sum_of_ranks(size));
  at::Tensor largest = filled(5, me, device);
  group.all_reduce(largest, {.operation = ReduceOp::kMax, .background = true})->wait();
  expect_filled(largest, size - 1);
  at::Tensor at_root = filled(4, me, device);
  group.reduce(at_root, size - 1)->wait();
  expect_filled(at_root, me == size - 1 ? sum_of_ranks(size) : me);
  for (const bool is_even : {true, false}) {
    const auto length = [&](int rank) { return is_even ? 4 : 3 * rank; };
    std::vector<at::Tensor> inputs;
    for (int rank = 0; rank < size; ++rank) {
      inputs.push_back(filled(length(rank), me + 10 * rank, device));
    }
    const at::Tensor output = filled(length(me), -1, device);
    group.reduce_scatter(output, inputs)->wait();
    expect_filled(output, sum_of_ranks(size) + 10 * me * size);
    expect_filled(inputs.back(), me + 10 * (size - 1));
  }
  const at::Tensor symmetric = group.symmetric_empty({7}, at::kFloat);
  EXPECT_EQ(symmetric.device().type(), device.type());
  symmetric.fill_(me);
  group.all_reduce(symmetric)->wait();
  expect_filled(symmetric, sum_of_ranks(size));
}

void check_native_moves(Communicator& group, c10::Device device) {
  const int me = group.rank();
  const int size = group.size();
  at::Tensor data = filled(3, me, device);
  group.broadcast(data, size - 1)->wait();
  expect_filled(data, size - 1);
  for (const bool is_even : {true, false}) {
    const auto length = [&](int from, int to) { return is_even ? 2 : from + 2 * to; };
    std::vector<at::Tensor> gathered;
    std::vector<at::Tensor> received;
    std::vector<at::Tensor> sent;
    for (int rank = 0; rank < size; ++rank) {
      gathered.push_back(filled(length(rank, 1), -1, device));
      received.push_back(filled(length(rank, me), -1, device));
      sent.push_back(filled(length(me, rank), 100 * me + rank, device));
    }
    group.all_gather(gathered, filled(length(me, 1), me, device))->wait();
    group.all_to_all(received, sent)->wait();
    for (int rank = 0; rank < size; ++rank) {
      expect_filled(gathered[rank], rank);
      expect_filled(received[rank], 100 * rank + me);
    }
  }
  std::vector<at::Tensor> list;
  for (int rank = 0; me == 0 && rank < size; ++rank) list.push_back(filled(2, -1, device));
  group.gather(list, filled(2, me, device), 0)->wait();
  for (int rank = 0; me == 0 && rank < size; ++rank) expect_filled(list[rank], rank);
  const at::Tensor mine = filled(2, -1, device);
  group.scatter(mine, list, 0)->wait();
  expect_filled(mine, me);
  group.barrier()->wait();
}

void check_native_messages(Communicator& group, c10::Device device) {
  const int me = group.rank();
  const int size = group.size();
  if (size == 1) return;
  const Options background{.background = true};
  const at::Tensor token = filled(1000, me, device);
  const at::Tensor arrived = filled(1000, -1, device);
  // A backend may want both ends of a pair at once: even ranks send first.
  WorkPtr send;
  if (me % 2 == 0) send = group.send(token, (me + 1) % size, background);
  group.recv(arrived, (me + size - 1) % size)->wait();
  if (me % 2 == 1) send = group.send(token, (me + 1) % size, background);
  send->wait();
  expect_filled(arrived, (me + size - 1) % size);
}

void check_native_split(Communicator& group, c10::Device device) {
  const int me = group.rank();
  const auto part = group.split(me % 2, -me, "half");
  at::Tensor data = filled(3, 1, device);
  part->all_reduce(data)->wait();
  expect_filled(data, part->size());
  EXPECT_EQ(group.split(-1, 0, "none"), nullptr);
}

}  // namespace trireme::comm
