// Our residual networks against torchvision's definition in Python: logits, loss, every gradient
// and the running statistics. On several ranks, against one rank with the whole batch.
#include "trireme/model/resnet/resnet.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/read_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/layers/batch_norm.h"

namespace trireme {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

// The promise for fp64, relative to the largest element of each tensor.
constexpr double kTolerance = 1e-10;

at::Tensor images(int64_t B, int64_t size) {
  return at::arange(B * 3 * size * size, at::kDouble).mul_(0.73).sin_().view({B, 3, size, size});
}

class Network {
 public:
  Network(const model::ResNetConfig& config, int64_t size, const model::BatchAxis& axis = {}) {
    at::manual_seed(7);
    for (const model::ResNetPart& part : model::resnet_parts(config, size)) {
      layers_.emplace_back(part.name, part.make());
    }
    const c10::AutoGradMode no_grad(false);
    for (const auto& [name, layer] : layers_) {
      layer->to(at::kDouble);
      for (model::BatchNormImpl* norm : model::batch_norms_of(*layer)) norm->axis = axis;
      // Away from the initial symmetry: norms are not all one, biases not all zero.
      for (at::Tensor& parameter : layer->parameters()) {
        parameter.add_(at::arange(parameter.numel(), at::kDouble)
                           .mul_(0.7)
                           .sin_()
                           .mul_(0.02)
                           .view(parameter.sizes()));
      }
    }
  }

  at::Tensor forward(at::Tensor x, bool trains) {
    for (const auto& [name, layer] : layers_) {
      layer->train(trains);
      x = layer->forward(x);
    }
    return x;
  }

  // Parameters and buffers under torchvision's names.
  Tensors state() const {
    Tensors state = parameters();
    state.merge(buffers());
    return state;
  }
  Tensors parameters() const {
    return collect([](const model::ResNetLayer& layer) { return layer.named_parameters(); });
  }
  Tensors buffers() const {
    return collect([](const model::ResNetLayer& layer) { return layer.named_buffers(); });
  }

 private:
  template <typename List>
  Tensors collect(List list) const {
    Tensors tensors;
    for (const auto& [name, layer] : layers_) {
      for (const auto& item : list(*layer)) {
        tensors[name.empty() ? item.key() : concat(name, ".", item.key())] = item.value();
      }
    }
    return tensors;
  }

  std::vector<std::pair<std::string, std::shared_ptr<model::ResNetLayer>>> layers_;
};

at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& labels) {
  return at::nll_loss(at::log_softmax(logits, 1), labels, {}, at::Reduction::Sum);
}

Tensors run_reference(const Tensors& input, int depth) {
  const harness::TemporaryFolder folder;
  Tensors copies;
  for (const auto& [name, tensor] : input) copies[name] = tensor.detach().clone();
  checkpoint::write_safetensors(folder / "input.safetensors", copies,
                                {{"depth", std::to_string(depth)}});
  const std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' -B '", TRIREME_TORCHVISION_REFERENCE, "' '",
             folder.path().string(), "'");
  if (std::system(command.c_str()) != 0) throw Error("the reference failed: " + command);
  return harness::read_tensors(folder / "reference.safetensors");
}

class ResNetParity : public ::testing::TestWithParam<int> {};

TEST_P(ResNetParity, EqualsTorchvision) {
  const int depth = GetParam();
  Network network({.depth = depth, .classes = 5}, 64);
  const at::Tensor x = images(3, 64), labels = at::tensor({4, 0, 2}, at::kLong);
  Tensors input = network.state();
  input["images"] = x;
  input["labels"] = labels;
  const Tensors reference = run_reference(input, depth);
  const auto close = [&](const at::Tensor& found, const std::string& name) {
    harness::assert_close(found.to(at::kDouble), reference.at(name).to(at::kDouble), kTolerance, 0,
                          name);
  };
  const at::Tensor logits = network.forward(x, /*trains=*/true);
  const at::Tensor loss = loss_sum(logits, labels);
  loss.backward();
  close(logits.detach(), "logits");
  close(loss.detach(), "loss");
  for (const auto& [name, parameter] : network.parameters()) {
    close(parameter.grad(), "grad." + name);
  }
  for (const auto& [name, buffer] : network.buffers()) close(buffer, "buffer." + name);
  close(network.forward(x, /*trains=*/false).detach(), "evaluated");
}

// ResNet-34 has the blocks of 18 in the numbers of 50, and ResNet-101 those of 50 in others.
INSTANTIATE_TEST_SUITE_P(Depths, ResNetParity, ::testing::Values(18, 50, 152));

// The gradients of every rank's own samples, summed, and the running statistics.
TEST(ResNetRanks, UnevenBatchesAreOneBatch) {
  const model::ResNetConfig config{.classes = 5, .has_small_stem = true};
  constexpr int64_t kSize = 8;
  const std::vector<std::vector<int64_t>> spreads = {{4}, {3, 1}, {1, 0, 3}};
  const at::Tensor x = images(4, kSize), labels = at::tensor({4, 0, 2, 2}, at::kLong);
  Network whole(config, kSize);
  const at::Tensor logits = whole.forward(x, /*trains=*/true);
  const at::Tensor loss = loss_sum(logits, labels);
  loss.backward();
  const Tensors expected = whole.parameters(), statistics = whole.buffers();
  for (const std::vector<int64_t>& spread : spreads) {
    std::vector<Tensors> buffers(spread.size());
    harness::run_ranks(static_cast<int>(spread.size()), [&](comm::Communicator& group) {
      const auto rank = static_cast<size_t>(group.rank());
      int64_t begin = 0;
      for (size_t r = 0; r < rank; ++r) begin += spread[r];
      Network network = [&] {
        static std::mutex building;  // from torch's one generator
        const std::lock_guard lock(building);
        return Network(config, kSize, {.group = &group});
      }();
      const auto own = [&](const at::Tensor& all) { return all.narrow(0, begin, spread[rank]); };
      const at::Tensor found = network.forward(own(x), /*trains=*/true);
      const at::Tensor own_loss = loss_sum(found, own(labels));
      own_loss.backward();
      harness::assert_close(found.detach(), own(logits).detach(), kTolerance, 1e-10, "logits");
      const at::Tensor sum = own_loss.detach().clone();
      group.all_reduce(sum)->wait();
      harness::assert_close(sum, loss.detach(), kTolerance, 0, "loss");
      for (const auto& [name, parameter] : network.parameters()) {
        const at::Tensor gradient = parameter.grad().contiguous();
        group.all_reduce(gradient)->wait();
        harness::assert_close(gradient, expected.at(name).grad(), kTolerance, 0, name);
      }
      buffers[rank] = network.buffers();
      for (const auto& [name, buffer] : buffers[rank]) {
        harness::assert_close(buffer.to(at::kDouble), statistics.at(name).to(at::kDouble),
                              kTolerance, 0, name);
      }
    });
    for (const Tensors& each : buffers) harness::assert_same_bits(each, buffers[0]);
  }
}

}  // namespace
}  // namespace trireme
