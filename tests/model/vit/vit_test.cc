// Our Vision Transformer against Hugging Face's transformers, which loads our weights under their
// names: logits, loss and every gradient.
#include "trireme/model/vit/vit.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/read_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/model/vit/small_vit.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/vit/image_transformer.h"

namespace trireme::model {
namespace {

using TensorMap = std::map<std::string, at::Tensor>;

void write_config(const VitConfig& config, const std::filesystem::path& path) {
  nlohmann::json labels;
  for (int64_t i = 0; i < config.classes; ++i) labels[std::to_string(i)] = std::to_string(i);
  const nlohmann::json object = {{"architectures", {"ViTForImageClassification"}},
                                 {"model_type", "vit"},
                                 {"image_size", config.image_size},
                                 {"patch_size", config.patch_size},
                                 {"num_channels", config.channels},
                                 {"num_hidden_layers", config.layers},
                                 {"hidden_size", config.width},
                                 {"num_attention_heads", config.heads},
                                 {"intermediate_size", config.ffn_width},
                                 {"layer_norm_eps", config.norm_epsilon},
                                 {"id2label", labels}};
  std::ofstream(path) << object;
}

// Runs reference.py on the model's weights.
void run_reference(const std::filesystem::path& folder, const VitConfig& config,
                   const TensorMap& weights, const TensorMap& input) {
  std::filesystem::create_directory(folder / "model");
  write_config(config, folder / "model/config.json");
  checkpoint::write_safetensors(folder / "model/model.safetensors", weights, {{"format", "pt"}});
  checkpoint::write_safetensors(folder / "input.safetensors", input, {});
  const std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_VIT_REFERENCE, "' '", folder.string(), "'");
  if (std::system(command.c_str()) != 0) throw Error("the reference failed: " + command);
}

// A gradient is summed from terms as large as those of its weight.
double scale_of(const std::string& name, const TensorMap& gradients) {
  const auto largest = [&](const std::string& of) {
    return gradients.at(of).abs().max().item<double>();
  };
  if (!name.ends_with(".bias")) return largest(name);
  return std::max(largest(name), largest(name.substr(0, name.size() - 4) + "weight"));
}

void expect_transformers_result(const VitConfig& config, int64_t num_images) {
  const auto model = make_image_transformer(config, 7, at::kDouble);
  TensorMap weights;
  for (const auto& item : model->module().named_parameters()) {
    // Away from the initial symmetry: norms are not all one, biases not all zero.
    const at::NoGradGuard no_grad;
    const at::Tensor index = at::arange(item.value().numel(), at::kDouble);
    item.value().add_(index.mul(0.7).sin().mul(0.1).view(item.value().sizes()));
    weights[item.key()] = item.value().detach();
  }
  const at::Tensor images = some_images(config, num_images);
  const at::Tensor labels = some_labels(config, num_images);
  const harness::TemporaryFolder folder;
  run_reference(folder.path(), config, weights, {{"images", images}, {"labels", labels}});
  const TensorMap expected = harness::read_tensors(folder.path() / "logits.safetensors");
  const TensorMap gradients = harness::read_tensors(folder.path() / "gradients/model.safetensors");

  const at::Tensor logits = model->logits_of(images);
  const at::Tensor loss = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum);
  loss.backward();
  harness::assert_close(logits.detach(), expected.at("logits"), 1e-10, 0, "logits");
  harness::assert_close(loss.detach(), expected.at("loss"), 1e-10, 0, "loss");
  EXPECT_EQ(gradients.size(), weights.size());
  for (const auto& item : model->module().named_parameters()) {
    ASSERT_TRUE(gradients.contains(item.key())) << item.key();
    harness::assert_close(item.value().grad(), gradients.at(item.key()), 0,
                          1e-10 * scale_of(item.key(), gradients), item.key());
  }
}

TEST(Vit, AgreesWithTransformers) { expect_transformers_result(small_vit(), 3); }

TEST(Vit, WithGreyImagesAndLargePatchesAgreesWithTransformers) {
  expect_transformers_result({.image_size = 28,
                              .channels = 1,
                              .patch_size = 14,
                              .layers = 3,
                              .width = 48,
                              .heads = 3,
                              .ffn_width = 96,
                              .classes = 10,
                              .norm_epsilon = 1e-6},
                             2);
}

}  // namespace
}  // namespace trireme::model
