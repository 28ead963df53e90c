#include "trireme/comm/device_group.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// The same calls on tensors of the host and of the device give the same bits.
TEST(DeviceGroup, EveryCallGoesWhereItsTensorsAre) {
  harness::run_device_ranks(3, [](Communicator& group, at::Device device) {
    const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
    std::vector<std::vector<at::Tensor>> found;
    for (const at::Device place : {at::Device(at::kCPU), device}) {
      const auto numbers = [&](int64_t size, int seed) {
        return (at::arange(size, at::kFloat) * 1.37 + group.rank() + 10 * seed).to(place);
      };
      const auto empty = [&](int64_t size) { return at::empty({size}, at::device(place)); };
      std::vector<at::Tensor> out;
      const auto blocks = [&](int seed) {
        return std::vector<at::Tensor>{numbers(2, seed), numbers(2, seed + 1),
                                       numbers(2, seed + 2)};
      };
      out.push_back(numbers(5, 0));
      group.all_reduce(out.back())->wait();
      out.push_back(numbers(5, 1));
      group.broadcast(out.back(), 2)->wait();
      out.push_back(numbers(5, 2));
      group.reduce(out.back(), 1)->wait();
      if (group.rank() != 1) out.back().zero_();
      const auto gathered = std::vector<at::Tensor>{empty(4), empty(4), empty(4)};
      group.all_gather(gathered, numbers(4, 3))->wait();
      out.insert(out.end(), gathered.begin(), gathered.end());
      out.push_back(empty(2));
      group.reduce_scatter(out.back(), blocks(4), {.background = true})->wait();
      const auto exchanged = std::vector<at::Tensor>{empty(2), empty(2), empty(2)};
      group.all_to_all(exchanged, blocks(7))->wait();
      out.insert(out.end(), exchanged.begin(), exchanged.end());
      const bool is_root = group.rank() == 0;
      const auto at_root = is_root ? std::vector<at::Tensor>{empty(3), empty(3), empty(3)}
                                   : std::vector<at::Tensor>{};
      group.gather(at_root, numbers(3, 10), 0)->wait();
      out.insert(out.end(), at_root.begin(), at_root.end());
      out.push_back(empty(2));
      group.scatter(out.back(), is_root ? blocks(11) : std::vector<at::Tensor>{}, 0)->wait();
      const WorkPtr sent = group.send(numbers(3, 14), next, {.background = true});
      out.push_back(empty(3));
      group.recv(out.back(), last)->wait();
      sent->wait();
      const WorkPtr lent = group.send(numbers(3, 15), next, {.background = true});
      const LoanPtr loan = group.borrow({3}, at::device(place).dtype(at::kFloat), last);
      loan->wait();
      out.push_back(loan->data());
      lent->wait();
      for (at::Tensor& each : out) {
        EXPECT_EQ(each.device(), place);
        each = each.to(at::kCPU);
      }
      found.push_back(out);
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    for (size_t i = 0; i < found[0].size(); ++i) {
      harness::assert_same_bits(found[1][i], found[0][i], std::to_string(i));
    }
    group.barrier()->wait();
  });
}

TEST(DeviceGroup, SplitsIntoGroupsOfBoth) {
  harness::run_device_ranks(3, [](Communicator& group, at::Device device) {
    const auto part = group.split(group.rank() == 0 ? -1 : 0, group.rank(), "part");
    ASSERT_EQ(part == nullptr, group.rank() == 0);
    if (part == nullptr) return;
    EXPECT_EQ(part->name(), "part");
    EXPECT_EQ(part->size(), 2);
    for (const at::Device place : {at::Device(at::kCPU), device}) {
      const at::Tensor sum = at::full({2}, group.rank(), at::device(place));
      part->all_reduce(sum)->wait();
      EXPECT_EQ(sum.sum().item<double>(), 6);
    }
    EXPECT_EQ(part->symmetric_empty({2}, at::kFloat).device(), at::kCPU);
  });
}

TEST(DeviceGroup, RefusesACallWithTensorsOfBoth) {
  harness::run_device_ranks(2, [](Communicator& group, at::Device device) {
    const at::Tensor host = at::zeros({2}), other = at::zeros({2}, at::device(device));
    const auto refused = [&](auto call) {
      EXPECT_ERROR(ConfigError, call(), "tensors of the host and of its device");
    };
    refused([&] { return group.all_gather({host, host}, other); });
    refused([&] { return group.reduce_scatter(host, {other, other}); });
    refused([&] { return group.all_to_all({host, host}, {other, other}); });
    refused([&] { return group.all_to_all({host, host}, {host, other}); });
  });
}

TEST(DeviceGroup, AnAbortEndsBoth) {
  harness::run_device_ranks(2, [](Communicator& group, at::Device device) {
    group.barrier()->wait();
    if (group.rank() == 0) group.abort("enough");
    EXPECT_ERROR(CommError, group.all_reduce(at::zeros({2}))->wait(), "enough");
    EXPECT_ERROR(CommError, group.all_reduce(at::zeros({2}, at::device(device)))->wait(), "enough");
  });
}

}  // namespace
}  // namespace trireme::comm
