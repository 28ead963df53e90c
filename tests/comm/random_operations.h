// A long script of random operations on random groups, the same on every rank, checked against the
// scalar model. What differs between ranks (delays, which operands are symmetric, what runs in the
// background) must not show.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "tests/comm/scalar_model.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {

class RandomOperations {
 public:
  RandomOperations(Communicator& world, uint64_t seed)
      : world_(world), script_(seed), own_(seed + 1000 + world.rank()) {
    groups_.push_back({&world, nullptr, {}});
    for (int rank = 0; rank < world.size(); ++rank) groups_[0].members.push_back(rank);
    for (int i = 0; i < 3; ++i) add_group();
  }

  // Throws: Error when a value is wrong; CommError when a peer goes
  void run(int num_operations) {
    for (int i = 0; i < num_operations; ++i) {
      step(i);
      if (pending_.size() > 8 || own_() % 7 == 0) finish();
    }
    finish();
  }

 private:
  struct Group {
    Communicator* communicator;
    std::unique_ptr<Communicator> owned;
    std::vector<int> members;  // world ranks, in the group's order
  };
  // An operation under way: its tensors and what they must become.
  struct Pending {
    WorkPtr work;
    std::vector<at::Tensor> actual, expected;
    std::string what;
  };

  int draw(int count) { return static_cast<int>(script_() % count); }

  void add_group() {
    std::vector<int> order(world_.size());
    for (int rank = 0; rank < world_.size(); ++rank) order[rank] = rank;
    std::shuffle(order.begin(), order.end(), script_);
    const int size = 1 + draw(world_.size());
    const std::vector<int> members(order.begin(), order.begin() + size);
    const auto self = std::ranges::find(members, world_.rank());
    auto group =
        world_.split(self == members.end() ? -1 : 0, static_cast<int>(self - members.begin()),
                     concat("group", groups_.size()));
    Communicator* communicator = group.get();
    groups_.push_back({communicator, std::move(group), members});
  }

  // Of this rank: symmetric or not, contiguous or not.
  at::Tensor place(const at::Tensor& values, Communicator& group) {
    at::Tensor tensor;
    switch (own_() % 4) {
      case 0: tensor = at::empty_like(values); break;
      case 1: tensor = at::empty({values.numel(), 3}, values.options()).select(1, 1); break;
      default: tensor = group.symmetric_empty(values.sizes(), values.scalar_type()); break;
    }
    return tensor.copy_(values);
  }

  void step(int index) {
    static constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                                 at::kLong,  at::kInt,    at::kByte, at::kBool};
    static constexpr int64_t kCounts[] = {0, 1, 5, 12, 13, 300, 2048, 2049, 9001, 40000};
    // Everything is drawn on every rank, members or not.
    const Group& group = groups_[draw(static_cast<int>(groups_.size()))];
    const int kind = draw(9);
    const at::ScalarType dtype = kDtypes[draw(8)];
    const int64_t count = kCounts[draw(10)];
    const int root = draw(static_cast<int>(group.members.size()));
    const auto operation = static_cast<ReduceOp>(draw(8));
    const int salt = draw(1000);
    if (group.communicator == nullptr) return;
    if (own_() % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 300));
    Options options;
    options.operation = operation;
    options.background = own_() % 2 == 0;
    try {
      check_reducible(dtype, operation);
    } catch (const ConfigError&) {
      options.operation = ReduceOp::kMax;
      if (dtype == at::kBool) options.operation = ReduceOp::kSum;
    }
    issue(*group.communicator, kind, dtype, count, root, salt, options,
          concat("operation ", index, " (", kind, ") of ", count, " ", c10::toString(dtype), " on ",
                 group.communicator->name(), " rank ", group.communicator->rank()));
  }

  void issue(Communicator& group, int kind, at::ScalarType dtype, int64_t count, int root, int salt,
             const Options& options, const std::string& what) {
    const int size = group.size();
    const int self = group.rank();
    const auto block = [&](int from, int to) {
      return values_of(100 * from + to + salt, {count + (kind > 2 ? (from + 2 * to) % 3 : 0)},
                       dtype);
    };
    const auto column = [&](int to) {
      std::vector<at::Tensor> values;
      for (int from = 0; from < size; ++from)
        values.push_back(values_of(100 * from + to + salt, {count + to % 3}, dtype));
      return values;
    };
    Pending pending;
    pending.what = what;
    const auto expect = [&](const at::Tensor& actual, const at::Tensor& expected) {
      pending.actual.push_back(actual);
      pending.expected.push_back(expected);
    };
    std::vector<at::Tensor> inputs, outputs;
    switch (kind) {
      case 0:
      case 1: {  // all_reduce, reduce
        std::vector<at::Tensor> values;
        for (int from = 0; from < size; ++from) values.push_back(block(from, 0));
        const at::Tensor data = place(values[self], group);
        pending.work =
            kind == 0 ? group.all_reduce(data, options) : group.reduce(data, root, options);
        expect(data,
               kind == 0 || self == root ? model_of(values, options.operation) : values[self]);
        break;
      }
      case 2: {
        const at::Tensor data = place(block(self, 0), group);
        pending.work = group.broadcast(data, root, options);
        expect(data, block(root, 0));
        break;
      }
      case 3: {  // in place: the input is its place in the outputs
        for (int from = 0; from < size; ++from) {
          const at::Tensor value = values_of(from + salt, {count + from % 3}, dtype);
          outputs.push_back(place(from == self ? value : at::zeros_like(value), group));
          expect(outputs.back(), value);
        }
        pending.work = group.all_gather(outputs, outputs[self], options);
        break;
      }
      case 4: {  // in place: the output is its place in the inputs
        for (int to = 0; to < size; ++to)
          inputs.push_back(
              place(values_of(100 * self + to + salt, {count + to % 3}, dtype), group));
        pending.work = group.reduce_scatter(inputs[self], inputs, options);
        expect(inputs[self], model_of(column(self), options.operation));
        break;
      }
      case 5: {
        for (int peer = 0; peer < size; ++peer) {
          inputs.push_back(place(block(self, peer), group));
          outputs.push_back(place(at::zeros_like(block(peer, self)), group));
          expect(outputs.back(), block(peer, self));
        }
        pending.work = group.all_to_all(outputs, inputs, options);
        break;
      }
      case 6: {
        for (int from = 0; self == root && from < size; ++from) {
          outputs.push_back(place(at::zeros_like(block(from, root)), group));
          expect(outputs.back(), block(from, root));
        }
        inputs.push_back(place(block(self, root), group));
        pending.work = group.gather(outputs, inputs[0], root, options);
        break;
      }
      case 7: {
        for (int to = 0; self == root && to < size; ++to)
          inputs.push_back(place(block(root, to), group));
        const at::Tensor output = place(at::zeros_like(block(root, self)), group);
        pending.work = group.scatter(output, inputs, root, options);
        expect(output, block(root, self));
        break;
      }
      default: {  // around the ring
        if (size == 1) return;
        Options in_background = options;
        in_background.background = true;
        in_background.tag = salt;
        const int next = (self + 1) % size;
        const int last = (self + size - 1) % size;
        const at::Tensor data = place(block(self, 0), group);
        pending_.push_back({group.send(data, next, in_background), {data}, {block(self, 0)}, what});
        const at::Tensor output = place(at::zeros_like(block(last, 0)), group);
        pending.work = group.recv(output, last, in_background);
        expect(output, block(last, 0));
        break;
      }
    }
    pending_.push_back(std::move(pending));
  }

  void finish() {
    for (const Pending& pending : pending_) {
      pending.work->wait();
      for (size_t i = 0; i < pending.actual.size(); ++i) {
        const bool equal = at::equal(pending.actual[i].contiguous(), pending.expected[i]);
        if (!equal) throw Error("wrong value: " + pending.what);
      }
    }
    pending_.clear();
  }

  Communicator& world_;
  std::mt19937_64 script_;  // the same on every rank
  std::mt19937_64 own_;
  std::vector<Group> groups_;
  std::vector<Pending> pending_;
};

}  // namespace trireme::comm
