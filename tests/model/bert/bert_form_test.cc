// Our BERT against Hugging Face's transformers, which loads our weights with the config.json that
// an export writes: logits, loss and every gradient.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/messages.h"
#include "tests/model/transformers_agreement.h"

namespace trireme::model {
namespace {

const ModelConfig kTiny{.family = "bert",
                        .layers = 2,
                        .width = 24,
                        .heads = 4,
                        .kv_heads = 4,
                        .ffn_width = 40,
                        .sequence_length = 12,
                        .vocab_size = 31,
                        .norm_epsilon = 1e-3,
                        .token_types = 3};

// google-bert/bert-base-uncased with 1/6 of the width and as much of the vocabulary, and 2 layers.
const ModelConfig kSmallBase{.family = "bert",
                             .layers = 2,
                             .width = 128,
                             .heads = 2,
                             .kv_heads = 2,
                             .ffn_width = 512,
                             .sequence_length = 64,
                             .vocab_size = 5087,
                             .norm_epsilon = 1e-12};

// Of every six tokens one is a target.
std::pair<at::Tensor, at::Tensor> some_masked(const ModelConfig& config) {
  const int64_t T = config.sequence_length;
  const at::Tensor place = at::arange(2 * T, at::kLong).view({2, T});
  const at::Tensor targets = place.mul(5).add(2).remainder(config.vocab_size);
  return {place.mul(7).remainder(config.vocab_size),
          targets.masked_fill(place.remainder(6).ne(1), kIgnoredTarget)};
}

void write_bert(const std::filesystem::path& folder, const ModelConfig& config) {
  const auto [tokens, targets] = some_masked(config);
  write_reference_folder(folder, *some_model(config), at::kDouble,
                         {{"tokens", tokens}, {"targets", targets}});
}

// All is fp64, and sums are of at most 5087 terms.
void expect_result_of_bert(const std::filesystem::path& folder, const ModelConfig& config) {
  constexpr double kTolerance = 1e-11;
  const TensorMap expected = harness::read_tensors(folder / "result.safetensors");
  const TensorMap gradients = harness::read_tensors(folder / "gradients/model.safetensors");
  const auto model = some_model(config);
  const auto [tokens, targets] = some_masked(config);
  harness::assert_close(model->logits(tokens).detach(), expected.at("logits"), kTolerance, 0,
                        "logits");
  const at::Tensor loss = model->loss(tokens, targets).sum;
  loss.backward();
  harness::assert_close(loss.detach(), expected.at("loss"), kTolerance, 0, "loss");
  EXPECT_EQ(gradients.size(), model->module().parameters().size());
  const double largest = largest_of(gradients);
  for (const auto& item : model->module().named_parameters()) {
    ASSERT_TRUE(gradients.contains(item.key())) << item.key();
    // Softmax does not see the biases of keys, whose gradient is but rounding.
    const bool is_key_bias = item.key().ends_with(".key.bias");
    harness::assert_close(item.value().grad(), gradients.at(item.key()),
                          is_key_bias ? 0 : kTolerance, is_key_bias ? kTolerance * largest : 0,
                          item.key());
  }
}

TEST(Bert, AgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  const std::pair<const char*, ModelConfig> cases[] = {{"tiny", kTiny}, {"base", kSmallBase}};
  std::vector<std::filesystem::path> folders;
  for (const auto& [name, config] : cases) {
    folders.push_back(folder.path() / name);
    write_bert(folders.back(), config);
  }
  ASSERT_NO_FATAL_FAILURE(run_reference(folders));
  for (const auto& [name, config] : cases) {
    SCOPED_TRACE(name);
    expect_result_of_bert(folder.path() / name, config);
  }
}

// The keys that google-bert/bert-base-uncased has.
constexpr const char* kBaseJson = R"({
  "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
  "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
  "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
  "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
  "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
  "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0",
  "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522})";

TEST(Bert, ReadsTheConfigOfBertBase) {
  const HuggingFaceModel found = parse_hugging_face_config(kBaseJson, "config.json");
  validate(found.config);
  EXPECT_EQ(found.config.family, "bert");
  EXPECT_EQ(found.config.kv_heads, 12);
  EXPECT_EQ(found.config.sequence_length, 512);
  EXPECT_EQ(found.config.norm_epsilon, 1e-12);
  EXPECT_EQ(found.config.dropout, 0.1);
  EXPECT_EQ(num_parameters(found.config), 109514298);
  // Its probabilities are never dropped here.
  EXPECT_THAT(found.notes,
              testing::ElementsAre(testing::HasSubstr("attention_probs_dropout_prob is 0.1")));
}

TEST(Bert, ConfigsOfOtherModelsAreRefused) {
  for (const auto& [from, to, words] :
       {std::tuple(R"("hidden_act": "gelu")", R"("hidden_act": "relu")", "hidden_act is \"relu\""),
        {R"("position_embedding_type": "absolute")", R"("position_embedding_type": "relative_key")",
         "position_embedding_type"},
        {R"("use_cache": true)", R"("is_decoder": true)", "is_decoder is true"},
        {R"("use_cache": true)", R"("tie_word_embeddings": false)", "tie_word_embeddings"}}) {
    std::string text = kBaseJson;
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_THAT(
        harness::message_of<ConfigError>([&] { parse_hugging_face_config(text, "config.json"); }),
        testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace trireme::model
