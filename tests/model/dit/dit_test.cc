// Our diffusion transformer against a composition of plain operators and against diffusers, which
// loads our weights under their names: the noise and every gradient.
#include "trireme/model/dit/dit.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/one_thread.h"
#include "tests/harness/read_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/model/dit/small_dit.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/dit/noise_schedule.h"

namespace trireme::model {
namespace {

using TensorMap = std::map<std::string, at::Tensor>;

// A run of reference.py, which takes seconds to start, for all cases that it is asked.
class Reference {
 public:
  // kind: "model" or "schedule"
  void add(const std::string& kind, nlohmann::json config, const TensorMap& input) {
    const std::filesystem::path folder = folder_ / std::to_string(num_cases_++);
    std::filesystem::create_directory(folder);
    config["kind"] = kind;
    std::ofstream(folder / "config.json") << config;
    checkpoint::write_safetensors(folder / "input.safetensors", input, {});
  }
  void run() const {
    std::string command = concat("'", TRIREME_TEST_PYTHON, "' -B '", TRIREME_DIT_REFERENCE, "'");
    for (int i = 0; i < num_cases_; ++i)
      command += concat(" '", (folder_ / std::to_string(i)).string(), "'");
    if (std::system(command.c_str()) != 0) throw Error("the reference failed: " + command);
  }
  TensorMap result(int number) const {
    return harness::read_tensors(folder_ / std::to_string(number) / "output.safetensors");
  }

 private:
  harness::TemporaryFolder folder_;
  int num_cases_ = 0;
};

at::Tensor some_target(const at::Tensor& images) { return images.mul(3).cos(); }

// A gradient is summed from terms as large as those of its weight. Softmax does not see the bias of
// the keys.
double scale_of(const std::string& name, const TensorMap& gradients, const std::string& prefix) {
  const auto largest = [&](const std::string& of) {
    return gradients.at(prefix + of).abs().max().item<double>();
  };
  if (!name.ends_with(".bias")) return largest(name);
  return std::max(largest(name), largest(name.substr(0, name.size() - 4) + "weight"));
}

struct Case {
  DitConfig config;
  at::ScalarType dtype;
  double tolerance;
};

void expect_diffusers_results(const std::vector<Case>& cases) {
  constexpr int64_t kImages = 3;
  Reference reference;
  std::vector<std::unique_ptr<DiffusionTransformer>> models;
  for (const auto& [config, dtype, tolerance] : cases) {
    models.push_back(make_diffusion_transformer(config, 7, dtype));
    // The wide model stays close, as its sums are long and softmax must not saturate.
    move_from_start(models.back()->module(), config.width > 100 ? 0.02 : 0.1);
    const auto [images, timesteps, classes] = noisy_images(config, kImages, dtype);
    TensorMap input = {{"images", images},
                       {"timesteps", timesteps},
                       {"classes", classes},
                       {"target", some_target(images)}};
    for (const auto& item : models.back()->module().named_parameters())
      input[item.key()] = item.value().detach();
    reference.add("model",
                  {{"num_attention_heads", config.heads},
                   {"attention_head_dim", config.width / config.heads},
                   {"in_channels", config.channels},
                   {"num_layers", config.layers},
                   {"sample_size", config.image_size},
                   {"patch_size", config.patch_size},
                   {"num_embeds_ada_norm", config.classes},
                   {"norm_eps", config.norm_epsilon}},
                  input);
  }
  reference.run();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(concat("case ", i));
    const auto& [config, dtype, tolerance] = cases[i];
    const TensorMap expected = reference.result(static_cast<int>(i));
    const auto [images, timesteps, classes] = noisy_images(config, kImages, dtype);
    const at::Tensor noise = models[i]->noise_in(images, timesteps, classes);
    const at::Tensor loss = at::mse_loss(noise, some_target(images), at::Reduction::Sum);
    loss.backward();
    const double largest = expected.at("noise").abs().max().item<double>();
    harness::assert_close(noise.detach(), expected.at("noise"), 0, tolerance * largest, "noise");
    harness::assert_close(loss.detach(), expected.at("loss"), tolerance, 0, "loss");
    EXPECT_EQ(expected.size(), models[i]->module().named_parameters().size() + 2);
    for (const auto& item : models[i]->module().named_parameters()) {
      ASSERT_TRUE(expected.contains("grad." + item.key())) << item.key();
      harness::assert_close(item.value().grad(), expected.at("grad." + item.key()), 0,
                            tolerance * scale_of(item.key(), expected, "grad."), item.key());
    }
  }
}

TEST(Dit, AgreesWithDiffusers) {
  const harness::OneThread one_thread;
  DitConfig other = small_dit();  // grey, of large patches, with diffusers' own epsilon
  other.channels = 1;
  other.patch_size = 3;
  other.norm_epsilon = 1e-5;
  // Two blocks with the proportions of DiT-S/2.
  const DitConfig of_s2{.image_size = 16, .channels = 3, .layers = 2, .classes = 10};
  expect_diffusers_results({{small_dit(), at::kDouble, 1e-10},
                            {small_dit(), at::kFloat, 1e-5},
                            {other, at::kDouble, 1e-10},
                            {of_s2, at::kDouble, 1e-10},
                            {of_s2, at::kFloat, 1e-5}});
}

// The paper's equations, one image and one head at a time.
at::Tensor compose(const DitConfig& config, const TensorMap& w, const NoisyImages& in) {
  const int64_t P = config.patch_size, side = config.image_size / P, D = config.width,
                H = D / config.heads;
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, w.at(name + ".weight").t()) + w.at(name + ".bias");
  };
  const auto silu = [](const at::Tensor& x) { return x / (1 + (-x).exp()); };
  const auto norm = [&](const at::Tensor& x, double epsilon) {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + epsilon).sqrt();
  };
  std::vector<at::Tensor> noises;
  for (int64_t b = 0; b < in.images.size(0); ++b) {
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < side; ++i) {
      for (int64_t j = 0; j < side; ++j) {
        const at::Tensor patch = in.images[b].narrow(1, i * P, P).narrow(2, j * P, P);
        std::vector<double> place;
        for (const int64_t at_grid : {j, i}) {
          for (const bool cosine : {false, true}) {
            for (int64_t k = 0; k < D / 4; ++k) {
              const double rate =
                  std::pow(10000.0, -static_cast<double>(k) / static_cast<double>(D / 4));
              const double angle = static_cast<double>(at_grid) * rate;
              place.push_back(static_cast<float>(cosine ? std::cos(angle) : std::sin(angle)));
            }
          }
        }
        rows.push_back(at::matmul(w.at("pos_embed.proj.weight").flatten(1), patch.flatten()) +
                       w.at("pos_embed.proj.bias") + at::tensor(place, at::kDouble));
      }
    }
    at::Tensor x = at::stack(rows);
    const at::Tensor waves = timestep_waves(in.timesteps.narrow(0, b, 1)).to(at::kDouble)[0];
    const at::Tensor c =
        linear(silu(linear(waves, "emb.timestep_embedder.linear_1")),
               "emb.timestep_embedder.linear_2") +
        w.at("emb.class_embedder.embedding_table.weight")[in.classes[b].item<int64_t>()];
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = concat("transformer_blocks.", layer, ".");
      const auto m = linear(silu(c), block + "norm1.linear").view({6, D});
      const at::Tensor h = norm(x, 1e-6) * (1 + m[1]) + m[0];
      std::vector<at::Tensor> heads;
      for (int64_t n = 0; n < config.heads; ++n) {
        const auto part = [&](const char* name) {
          return linear(h, block + name).narrow(1, n * H, H);
        };
        const at::Tensor scores = at::matmul(part("attn1.to_q"), part("attn1.to_k").t()) /
                                  std::sqrt(static_cast<double>(H));
        heads.push_back(at::matmul(scores.softmax(-1), part("attn1.to_v")));
      }
      x = x + m[2] * linear(at::cat(heads, 1), block + "attn1.to_out.0");
      const at::Tensor g = norm(x, config.norm_epsilon) * (1 + m[4]) + m[3];
      const at::Tensor up = linear(g, block + "ff.net.0.proj");
      const at::Tensor gelu =
          0.5 * up * (1 + (std::sqrt(2 / M_PI) * (up + 0.044715 * up.pow(3))).tanh());
      x = x + m[5] * linear(gelu, block + "ff.net.2");
    }
    const auto m = linear(silu(c), "proj_out_1").view({2, D});
    const at::Tensor out = linear(norm(x, 1e-6) * (1 + m[1]) + m[0], "proj_out_2");
    std::vector<at::Tensor> lines;
    for (int64_t i = 0; i < side; ++i) {
      std::vector<at::Tensor> patches;
      for (int64_t j = 0; j < side; ++j)
        patches.push_back(out[i * side + j].view({P, P, config.channels}));
      lines.push_back(at::cat(patches, 1));
    }
    noises.push_back(at::cat(lines, 0).permute({2, 0, 1}));
  }
  return at::stack(noises);
}

TEST(Dit, IsTheComposition) {
  const DitConfig config = small_dit();
  const auto model = make_diffusion_transformer(config, 7, at::kDouble);
  move_from_start(model->module());
  const NoisyImages in = noisy_images(config, 2);
  const at::Tensor target = some_target(in.images);
  TensorMap copies;
  for (const auto& item : model->module().named_parameters())
    copies[item.key()] = item.value().detach().clone().requires_grad_();
  const at::Tensor expected = compose(config, copies, in);
  const at::Tensor noise = model->noise_in(in.images, in.timesteps, in.classes);
  const double largest = expected.abs().max().item<double>();
  harness::assert_close(noise.detach(), expected.detach(), 0, 1e-11 * largest, "noise");
  at::mse_loss(noise, target, at::Reduction::Sum).backward();
  at::mse_loss(expected, target, at::Reduction::Sum).backward();
  TensorMap gradients;
  for (const auto& [name, copy] : copies) gradients[name] = copy.grad();
  for (const auto& item : model->module().named_parameters()) {
    harness::assert_close(item.value().grad(), gradients.at(item.key()), 0,
                          1e-11 * scale_of(item.key(), gradients, ""), item.key());
  }
}

TEST(NoiseSchedule, AgreesWithDiffusers) {
  struct Schedule {
    NoiseOptions options;
    nlohmann::json config;
    int64_t steps;
  };
  const std::vector<Schedule> schedules = {
      {{}, {{"beta_schedule", "linear"}}, 10},
      {{.timesteps = 300, .beta_start = 1e-3, .beta_end = 0.05},
       {{"beta_schedule", "linear"}, {"beta_start", 1e-3}, {"beta_end", 0.05}},
       7},
      {{.form = NoiseForm::kCosine}, {{"beta_schedule", "squaredcos_cap_v2"}}, 50}};
  const auto timesteps_of = [](const NoiseOptions& options) {
    const int64_t last = options.timesteps - 1;
    return at::tensor({int64_t{0}, last / 3, last / 2, last}, at::kLong);
  };
  constexpr int64_t kImages = 4;
  Reference reference;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (auto [options, config, steps] : schedules) {
      config["num_train_timesteps"] = options.timesteps;
      config["steps"] = steps;
      const at::Tensor images = noisy_images(small_dit(), kImages, dtype).images;
      reference.add("schedule", config,
                    {{"images", images},
                     {"noise", some_target(images)},
                     {"timesteps", timesteps_of(options)}});
    }
  }
  reference.run();
  int number = 0;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    // Both compute the same operations in the same order, on numbers of up to 2.
    const double rounding = dtype == at::kFloat ? 0x1p-23 : 0x1p-52;
    for (const auto& [options, config, steps] : schedules) {
      SCOPED_TRACE(concat("case ", number));
      const TensorMap expected = reference.result(number++);
      const NoiseSchedule schedule(options);
      const at::Tensor images = noisy_images(small_dit(), kImages, dtype).images;
      const at::Tensor noise = some_target(images);
      harness::assert_close(schedule.add_noise(images, noise, timesteps_of(options)),
                            expected.at("noisy"), 0, 2 * rounding, "noisy");
      const std::vector<int64_t> sampling = schedule.sampling_timesteps(steps);
      EXPECT_TRUE(at::tensor(sampling, at::kLong).equal(expected.at("sampling")));
      at::Tensor x = images;
      for (const int64_t timestep : sampling) {
        x = schedule.remove_noise(x, noise, timestep, steps);
        // A first step divides by the root of what is kept, at least 1e-5 of the variance, and
        // later ones keep at most that error.
        harness::assert_close(x, expected.at(concat("after ", timestep)), 0, 400 * rounding,
                              concat("after ", timestep));
      }
    }
  }
}

TEST(NoiseSchedule, RefusesWhatMakesNone) {
  EXPECT_THROW(NoiseSchedule({.timesteps = 0}), ConfigError);
  EXPECT_THROW(NoiseSchedule({.beta_start = 0}), ConfigError);
  EXPECT_THROW(NoiseSchedule({.beta_start = 0.1, .beta_end = 0.05}), ConfigError);
  EXPECT_THROW(NoiseSchedule({.beta_end = 1}), ConfigError);
  EXPECT_THROW(NoiseSchedule({}).sampling_timesteps(0), ConfigError);
  EXPECT_THROW(NoiseSchedule({}).sampling_timesteps(1001), ConfigError);
}

}  // namespace
}  // namespace trireme::model
