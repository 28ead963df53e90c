// Our BERT that classifies texts against transformers' BertForSequenceClassification, which loads
// our weights with the config.json that an export writes: logits, loss and every gradient. Texts
// have different lengths, with padding behind them.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/messages.h"
#include "tests/model/transformers_agreement.h"

namespace trireme::model {
namespace {

constexpr int64_t kTexts = 3;

const ModelConfig kTinyClassifier{.family = "bert",
                                  .layers = 2,
                                  .width = 24,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .ffn_width = 40,
                                  .sequence_length = 12,
                                  .vocab_size = 31,
                                  .norm_epsilon = 1e-3,
                                  .token_types = 3,
                                  .classes = 5};

// google-bert/bert-base-uncased with a sixth of its width and vocabulary, and 2 layers.
const ModelConfig kBaseClassifier{.family = "bert",
                                  .layers = 2,
                                  .width = 128,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .ffn_width = 512,
                                  .sequence_length = 64,
                                  .vocab_size = 5087,
                                  .norm_epsilon = 1e-12,
                                  .classes = 2};

struct ClassifierCase {
  std::string name;
  ModelConfig config;
  at::ScalarType dtype;
  // fp64: sums are of at most 5087 terms. fp32: the same, each rounded to 2^-24 of the largest.
  double tolerance;
};

struct Texts {
  at::Tensor tokens_BT, lengths_B, documents_BT, labels_B;
};

// Whole, half, and all but one place.
Texts some_texts(const ModelConfig& config) {
  const int64_t T = config.sequence_length;
  const at::Tensor tokens = at::arange(kTexts * T, at::kLong).view({kTexts, T}).mul(7).add(3);
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{T, T / 2, T - 1});
  const at::Tensor is_padding = at::arange(T, at::kLong).ge(lengths.unsqueeze(1));
  return {tokens.remainder(config.vocab_size).masked_fill(is_padding, 0), lengths,
          at::zeros({kTexts, T}, at::kLong).masked_fill(is_padding, -1),
          at::arange(kTexts, at::kLong).mul(3).add(1).remainder(config.classes)};
}

void write_classifier(const std::filesystem::path& folder, const ClassifierCase& one) {
  const Texts texts = some_texts(one.config);
  write_reference_folder(
      folder, *some_model(one.config, one.dtype), one.dtype,
      {{"tokens", texts.tokens_BT}, {"targets", texts.labels_B}, {"lengths", texts.lengths_B}});
}

// A score's gradient is what its probability's exceeds the mean by. Where scores are close, this is
// far less than the terms, which fp32 rounds: these are as large as those of the values' gradient.
double scale_of_gradient(const std::string& name, const ClassifierCase& one,
                         const TensorMap& gradients) {
  const auto largest = [&](const std::string& of) {
    return gradients.at(of).abs().max().item<double>();
  };
  for (const std::string scores : {".self.query.", ".self.key."}) {
    const size_t at = name.find(scores);
    if (at == name.npos || one.dtype != at::kFloat) continue;
    std::string values = name;
    values.replace(at, scores.size(), ".self.value.");
    return std::max(largest(name), largest(values));
  }
  return largest(name);
}

void expect_result_of_classifier(const std::filesystem::path& folder, const ClassifierCase& one) {
  const TensorMap expected = harness::read_tensors(folder / "result.safetensors");
  const TensorMap gradients = harness::read_tensors(folder / "gradients/model.safetensors");
  const auto model = some_model(one.config, one.dtype);
  const Texts texts = some_texts(one.config);
  const PartOutput out =
      model->forward_part({.tokens_BT = texts.tokens_BT, .documents_BT = texts.documents_BT});
  const ClassLoss loss = model->class_loss(out.hidden, texts.labels_B);
  const double largest_logit = expected.at("logits").abs().max().item<double>();
  harness::assert_close(loss.logits_BC, expected.at("logits"), 0, one.tolerance * largest_logit,
                        "logits");
  EXPECT_EQ(loss.of_texts.count, kTexts);
  loss.of_texts.sum.backward();
  harness::assert_close(loss.of_texts.sum.detach().to(one.dtype), expected.at("loss"),
                        one.tolerance, 0, "loss");
  EXPECT_EQ(gradients.size(), model->module().parameters().size());
  const double largest = largest_of(gradients);
  for (const auto& item : model->module().named_parameters()) {
    ASSERT_TRUE(gradients.contains(item.key())) << item.key();
    // Softmax does not see the biases of keys, whose gradient is but rounding.
    const bool is_key_bias = item.key().ends_with(".key.bias");
    const double scale = is_key_bias ? largest : scale_of_gradient(item.key(), one, gradients);
    // On both sides the backward adds as many roundings as the forward has.
    harness::assert_close(item.value().grad(), gradients.at(item.key()), 0,
                          2 * one.tolerance * scale, item.key());
  }
}

TEST(BertClassifier, AgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  const ClassifierCase cases[] = {{"tiny", kTinyClassifier, at::kDouble, 1e-10},
                                  {"tiny-fp32", kTinyClassifier, at::kFloat, 1e-5},
                                  {"base", kBaseClassifier, at::kDouble, 1e-10},
                                  {"base-fp32", kBaseClassifier, at::kFloat, 1e-5}};
  std::vector<std::filesystem::path> folders;
  for (const ClassifierCase& one : cases) {
    folders.push_back(folder.path() / one.name);
    write_classifier(folders.back(), one);
  }
  ASSERT_NO_FATAL_FAILURE(run_reference(folders));
  for (const ClassifierCase& one : cases) {
    SCOPED_TRACE(one.name);
    expect_result_of_classifier(folder.path() / one.name, one);
  }
}

TEST(BertClassifier, PaddingChangesNothing) {
  const ClassifierCase one{"tiny", kTinyClassifier, at::kDouble, 0};
  const auto model = some_model(one.config, one.dtype);
  const at::NoGradGuard no_grad;
  const Texts texts = some_texts(one.config);
  const auto pooled = [&](const at::Tensor& tokens_BT) {
    return model->forward_part({.tokens_BT = tokens_BT, .documents_BT = texts.documents_BT}).hidden;
  };
  const at::Tensor other =
      at::where(texts.documents_BT.lt(0), at::full({}, 9, at::kLong), texts.tokens_BT);
  harness::assert_same_bits(pooled(other), pooled(texts.tokens_BT), "pooled");
}

TEST(BertClassifier, HasTheParametersAndOperationsOfBertBase) {
  ModelConfig base{.family = "bert",
                   .layers = 12,
                   .width = 768,
                   .heads = 12,
                   .kv_heads = 12,
                   .ffn_width = 3072,
                   .sequence_length = 512,
                   .vocab_size = 30522,
                   .classes = 2};
  // BertForSequenceClassification of transformers.
  EXPECT_EQ(num_parameters(base), 109483778);
  const double blocks = 12 * (4 * 768.0 * 768 + 2 * 768.0 * 3072);
  EXPECT_DOUBLE_EQ(flops_per_sequence(base),
                   512 * (6 * blocks + 12 * 12 * 512.0 * 768) + 6 * (768.0 * 768 + 2 * 768));
}

TEST(BertClassifier, ConfigsAreReadWithTheirClasses) {
  const auto read = [](const std::string& labels) {
    return parse_hugging_face_config(
        R"({"architectures": ["BertForSequenceClassification"], "model_type": "bert",
            "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
            "num_hidden_layers": 12, "vocab_size": 30522)" +
            labels + "}",
        "config.json");
  };
  EXPECT_EQ(read(R"(, "id2label": {"0": "a", "1": "b", "2": "c"})").config.classes, 3);
  EXPECT_EQ(read("").config.classes, 2);
  const auto refusal = [&](const std::string& labels) {
    return harness::message_of<ConfigError>([&] { read(labels); });
  };
  EXPECT_THAT(refusal(R"(, "id2label": {"0": "a"})"), testing::HasSubstr("at least two classes"));
  EXPECT_THAT(refusal(R"(, "problem_type": "regression")"), testing::HasSubstr("problem_type"));
  EXPECT_THAT(read(R"(, "classifier_dropout": 0.3)").notes,
              testing::Contains(testing::HasSubstr("classifier_dropout is 0.3")));
}

TEST(BertClassifier, OtherFamiliesHaveNoClasses) {
  ModelConfig config{.classes = 3};
  EXPECT_THAT(harness::message_of<ConfigError>([&] { validate(config); }),
              testing::HasSubstr("model.classes is 3 and model.family \"llama\""));
  config = kTinyClassifier;
  config.classes = 1;
  EXPECT_THAT(harness::message_of<ConfigError>([&] { validate(config); }),
              testing::HasSubstr("at least 2"));
}

}  // namespace
}  // namespace trireme::model
