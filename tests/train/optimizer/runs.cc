#include "tests/train/optimizer/runs.h"
#include "tests/harness/read_tensors.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

constexpr int kSteps = 6;

double rate_at(const OptimizerConfig& config, int step) {
  return config.learning_rate * (1 - 0.1 * step);
}

const char* name_of(Gradients gradients) {
  return gradients == Gradients::kAnySign ? "any_sign" : "one_sign";
}

// sin and cos of the index: fp32 values, so that fp64 and fp32 start from the same numbers.
at::Tensor wave(at::IntArrayRef shape, double frequency, double phase) {
  const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
  return (index * frequency + phase).sin().to(at::kFloat).to(at::kDouble);
}

parallel::Shard make_shard(const std::string& name, const std::vector<int64_t>& shape,
                           at::ScalarType dtype) {
  return {.name = name,
          .weights = wave(shape, 0.9, 0.3).to(dtype),
          .layout = mesh::Layout(shape, {{"shard", 1}})};
}

using Tensors = std::map<std::string, at::Tensor>;

Tensors run_reference(const OptimizerConfig& config) {
  nlohmann::json run = {{"name", config.name},         {"beta1", config.beta1},
                        {"beta2", config.beta2},       {"epsilon", config.epsilon},
                        {"momentum", config.momentum}, {"nesterov", config.nesterov}};
  Tensors input;
  const std::vector<parallel::Shard> shards = make_shards(at::kDouble);
  const std::vector<ParameterSettings> settings =
      parameter_settings(shards, parse_parameter_groups(config.groups), config.weight_decay);
  for (int step = 1; step <= kSteps; ++step) run["rates"].push_back(rate_at(config, step));
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string& name = shards[i].name;
    input["start." + name] = shards[i].weights;
    run["parameters"][name] = {{"decay", settings[i].weight_decay},
                               {"rate", settings[i].rate_scale}};
  }
  for (const Gradients gradients : {Gradients::kAnySign, Gradients::kOneSign}) {
    run["gradients"].push_back(name_of(gradients));
    for (const parallel::Shard& shard : shards) {
      for (int step = 1; step <= kSteps; ++step) {
        input[concat(name_of(gradients), ".", step, ".", shard.name)] =
            gradient_at(step, shard, at::kDouble, gradients);
      }
    }
  }
  const harness::TemporaryFolder folder;
  checkpoint::write_safetensors(folder / "input.safetensors", input, {{"run", run.dump()}});
  const std::string command = concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_OPTIMIZER_REFERENCE,
                                     "' '", folder.path().string(), "'");
  if (std::system(command.c_str()) != 0) throw Error("the reference failed: " + command);
  return harness::read_tensors(folder / "reference.safetensors");
}

std::vector<parallel::Shard> train(const OptimizerConfig& config, at::ScalarType dtype,
                                   Gradients gradients) {
  std::vector<parallel::Shard> shards = make_shards(dtype);
  Optimizer optimizer(shards, config);
  for (int step = 1; step <= kSteps; ++step) {
    for (parallel::Shard& shard : shards) {
      shard.gradient = gradient_at(step, shard, dtype, gradients);
    }
    optimizer.step(rate_at(config, step));
  }
  return shards;
}

// A vector of `length` on as many ranks as there are pieces between the cuts.
std::vector<parallel::Shard> cut_vector(int64_t length, const std::vector<int64_t>& cuts) {
  const at::Tensor whole = wave({length}, 0.9, 0.3).to(at::kFloat);
  const mesh::Layout layout({length}, {{"shard", static_cast<int>(cuts.size()) - 1}},
                            {mesh::Placement::sharded(0, cuts)});
  std::vector<parallel::Shard> pieces;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    pieces.push_back({.name = concat("piece", i),
                      .weights = whole.narrow(0, cuts[i], cuts[i + 1] - cuts[i]).clone(),
                      .layout = layout});
  }
  return pieces;
}

// Weights and states after three steps, each put together again.
std::vector<at::Tensor> train_pieces(const OptimizerConfig& config, int64_t length,
                                     const std::vector<int64_t>& cuts) {
  std::vector<parallel::Shard> pieces = cut_vector(length, cuts);
  Optimizer optimizer(pieces, config);
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor gradient = wave({length}, 1.3, step).to(at::kFloat);
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].gradient = gradient.narrow(0, cuts[i], cuts[i + 1] - cuts[i]).clone();
    }
    optimizer.step(1e-2);
  }
  const std::vector<checkpoint::Entry> state = optimizer.state();
  const size_t num_states = state.size() / pieces.size();
  std::vector<at::Tensor> results;
  for (size_t k = 0; k <= num_states; ++k) {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < pieces.size(); ++i) {
      parts.push_back(k == 0 ? pieces[i].weights : state[i * num_states + k - 1].local);
    }
    results.push_back(at::cat(parts));
  }
  return results;
}

}  // namespace

std::vector<parallel::Shard> make_shards(at::ScalarType dtype) {
  return {make_shard("scalar", {1}, dtype),          make_shard("bias", {5}, dtype),
          make_shard("norm.weight", {67}, dtype),    make_shard("wide.weight", {3, 70}, dtype),
          make_shard("tall.weight", {70, 3}, dtype), make_shard("embed.weight", {9, 16}, dtype),
          make_shard("experts", {4, 5, 6}, dtype),   make_shard("empty", {0}, dtype),
          make_shard("empty.weight", {0, 4}, dtype)};
}

at::Tensor gradient_at(int step, const parallel::Shard& shard, at::ScalarType dtype,
                       Gradients gradients) {
  const at::IntArrayRef shape = shard.weights.sizes();
  const at::Tensor any = wave(shape, 1.3, step + 0.1 * static_cast<double>(shard.name.size()));
  if (gradients == Gradients::kAnySign) return any.to(dtype);
  return (any * 0.5 + 1).mul(wave(shape, 2.1, 0.5).sign()).to(at::kFloat).to(dtype);
}

void run_steps(Optimizer& optimizer, std::vector<parallel::Shard>& shards, int first, int last) {
  for (int step = first; step <= last; ++step) {
    for (parallel::Shard& shard : shards) {
      shard.gradient = gradient_at(step, shard, shard.weights.scalar_type());
    }
    optimizer.step(1e-2 / step);
  }
}

void compare_with_reference(OptimizerConfig config, const StepError& step) {
  config.groups = "tall*: decay=0.05, rate=0.5; scalar: decay=0.2";
  const Tensors reference = run_reference(config);
  const auto expected = [&](Gradients gradients, const parallel::Shard& shard) {
    return reference.at(concat(name_of(gradients), ".", shard.name));
  };
  for (const auto& shard : train(config, at::kDouble, Gradients::kAnySign)) {
    harness::assert_close(shard.weights, expected(Gradients::kAnySign, shard), 1e-10, 0,
                          shard.name + " in fp64");
  }
  // Of the weights, in each step: the factor of the decay, the product with it, the sum.
  const double unit = std::pow(2.0, -24);
  const double of_weights = kSteps * 3 * unit;
  const double of_steps = kSteps * config.learning_rate * step.size * step.roundings * unit;
  for (const auto& shard : train(config, at::kFloat, Gradients::kOneSign)) {
    harness::assert_close(shard.weights, expected(Gradients::kOneSign, shard), 0,
                          of_weights * (1 + kSteps * config.learning_rate * step.size) + of_steps,
                          shard.name + " in fp32");
  }
}

void expect_same_bits_in_pieces(const OptimizerConfig& config) {
  constexpr int64_t kLength = 200037;
  const int num_threads = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> whole = train_pieces(config, kLength, {0, kLength});
  for (int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto uncut = train_pieces(config, kLength, {0, kLength});
    const auto pieces =
        train_pieces(config, kLength, {0, 64, 64, (1 << 16) + 128, 200000, kLength});
    for (size_t i = 0; i < whole.size(); ++i) {
      const std::string what = concat(config.name, " tensor ", i, " on ", threads, " threads");
      harness::assert_same_bits(uncut[i], whole[i], what);
      harness::assert_same_bits(pieces[i], whole[i], what + " in pieces");
    }
  }
  at::set_num_threads(num_threads);
}

}  // namespace trireme::train
