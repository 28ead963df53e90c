#include "trireme/train/profile/span_recording.h"

#include <algorithm>
#include <future>
#include <string_view>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/clock.h"
#include "trireme/comm/background_work.h"

namespace trireme::train {
namespace {

constexpr int64_t kTolerance = 1'000'000;  // nanoseconds: the time of day is slewed

std::vector<OperatorSpan> named(const std::vector<OperatorSpan>& spans, const std::string& name) {
  std::vector<OperatorSpan> found;
  std::ranges::copy_if(spans, std::back_inserter(found),
                       [&](const OperatorSpan& span) { return span.name == name; });
  return found;
}

TEST(OperatorRecording, HasOperatorsOfForwardAndBackwardOnTheMonotonicClock) {
  const at::Tensor x = at::ones({8, 16}).requires_grad_();
  const at::Tensor w = at::ones({16, 4}).requires_grad_();
  OperatorRecording recording;
  EXPECT_FALSE(recording.is_running());
  recording.start();
  EXPECT_TRUE(recording.is_running());
  const int64_t begin = monotonic_ns();
  x.mm(w).sum().backward();
  const int64_t end = monotonic_ns();
  const std::vector<OperatorSpan> spans = recording.stop();
  EXPECT_FALSE(recording.is_running());

  const auto products = named(spans, "aten::mm");
  ASSERT_EQ(products.size(), 3u);  // one forward, two backward
  EXPECT_EQ(products[0].flops, 2 * 8 * 16 * 4);
  for (const OperatorSpan& product : products) {
    EXPECT_EQ(product.thread, 0);
    EXPECT_EQ(product.device, -1);
    EXPECT_GE(product.time.begin_ns, begin - kTolerance);
    EXPECT_LE(product.time.end_ns, end + kTolerance);
  }
  const auto nodes = named(spans, "MmBackward0");
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_LE(nodes[0].time.begin_ns, products[1].time.begin_ns);
  EXPECT_GE(nodes[0].time.end_ns, products[2].time.end_ns);
}

struct DoublingFunction : torch::autograd::Function<DoublingFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * 2};
  }
};

TEST(OperatorRecording, NamesTheBackwardOfAFunctionThatIsNotLibtorchs) {
  const at::Tensor x = at::ones({8}).requires_grad_();
  OperatorRecording recording;
  recording.start();
  DoublingFunction::apply(x).sum().backward();
  EXPECT_EQ(named(recording.stop(), "Doubling backward").size(), 1u);
}

TEST(OperatorRecording, ShowsTheTimeSpentWaitingForWork) {
  comm::PendingWork work(std::make_shared<comm::AbortSwitch>([] {}));
  static std::promise<void> waits_now;
  const auto callback = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        if (std::string_view(function.name()) == comm::kWaitEvent) waits_now.set_value();
        return nullptr;
      }));
  OperatorRecording recording;
  recording.start();
  int64_t finished = 0;
  std::thread finisher([&] {
    waits_now.get_future().wait();
    finished = monotonic_ns();
    work.finish(nullptr);
  });
  work.wait();
  work.wait();  // done: no wait
  finisher.join();
  const auto waits = named(recording.stop(), comm::kWaitEvent);
  at::removeCallback(callback);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].thread, 0);
  EXPECT_LE(waits[0].time.begin_ns, finished + kTolerance);
  EXPECT_GE(waits[0].time.end_ns, finished - kTolerance);
}

TEST(OperatorRecording, EachStartBeginsAnew) {
  OperatorRecording recording;
  for (int round = 0; round < 3; ++round) {
    recording.start();
    at::ones({2, 2}).mm(at::ones({2, 2}));
    EXPECT_EQ(named(recording.stop(), "aten::mm").size(), 1u);
  }
  {
    OperatorRecording forgotten;
    forgotten.start();
  }
  recording.start();  // nothing is left running
  EXPECT_TRUE(named(recording.stop(), "aten::mm").empty());
}

}  // namespace
}  // namespace trireme::train
