// T5 against Hugging Face's transformers, which loads our weights with the config.json that an
// export writes: logits, loss and every gradient.
#include "trireme/model/t5/t5.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/read_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/generate.h"
#include "trireme/model/hugging_face.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using testing::HasSubstr;
using T5Tensors = std::map<std::string, at::Tensor>;

// Longer than the distance from which on biases are shared, and a decoder of another depth.
const ModelConfig kTinyT5{
    .family = "t5",
    .layers = 2,
    .width = 24,
    .heads = 4,
    .kv_heads = 4,
    .ffn_width = 40,
    .sequence_length = 30,
    .vocab_size = 31,
    .norm_epsilon = 1e-3,
    .tied_embedding = true,
    .attention = {.head_width = 5},
    .seq2seq = {
        .decoder_layers = 3, .target_length = 17, .relative_buckets = 8, .relative_distance = 12}};

// google/t5-v1_1-small with 1/4 of its width and an eighth of its vocabulary, and fewer layers.
const ModelConfig kSmallT5{
    .family = "t5",
    .layers = 2,
    .width = 128,
    .heads = 6,
    .kv_heads = 6,
    .ffn_width = 256,
    .sequence_length = 300,
    .vocab_size = 4016,
    .norm_epsilon = 1e-6,
    .attention = {.head_width = 16},
    .seq2seq = {.target_length = 70, .feed_forward = FeedForwardForm::kGatedGelu}};

// Norms are not all one, and scores are not too large for a softmax of many terms.
std::unique_ptr<LanguageModel> some_t5(const ModelConfig& config) {
  auto model = make_model(config, 7, at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& item : model->module().named_parameters()) {
    const at::Tensor index = at::arange(item.value().numel(), at::kDouble);
    if (item.key() == "shared.weight") item.value().mul_(0.3);
    item.value().add_(index.mul(0.7).sin().mul(0.1).view(item.value().sizes()));
  }
  return model;
}

struct T5Tokens {
  at::Tensor tokens, decoder_tokens, targets;
};
T5Tokens some_t5_tokens(const ModelConfig& config) {
  const auto drawn = [&](int64_t length, int64_t factor) {
    return at::arange(2 * length, at::kLong)
        .mul(factor)
        .add(2)
        .remainder(config.vocab_size)
        .view({2, length});
  };
  const int64_t U = config.seq2seq.target_length;
  const at::Tensor targets = drawn(U, 5);
  const at::Tensor place = at::arange(2 * U, at::kLong).view({2, U});
  return {drawn(config.sequence_length, 7), drawn(U, 11),
          targets.masked_fill(place.remainder(6).eq(1), kIgnoredTarget)};
}

std::string name_in_transformers(const std::string& name) {
  const size_t at = name.find(".relative_attention_bias");
  return at == name.npos ? name
                         : name.substr(0, at) + ".block.0.layer.0.SelfAttention" + name.substr(at);
}

void write_t5(const std::filesystem::path& folder, const ModelConfig& config) {
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json")
      << hugging_face_config(config, at::kDouble, /*end_of_document=*/std::nullopt);
  T5Tensors weights;
  const auto model = some_t5(config);
  for (const auto& item : model->module().named_parameters()) {
    weights[name_in_transformers(item.key())] = item.value().detach();
  }
  checkpoint::write_safetensors(folder / "model.safetensors", weights, {{"format", "pt"}});
  const auto [tokens, decoder_tokens, targets] = some_t5_tokens(config);
  checkpoint::write_safetensors(
      folder / "tokens.safetensors",
      {{"tokens", tokens}, {"decoder_tokens", decoder_tokens}, {"targets", targets}}, {});
}

// All is fp64, and sums are of at most 4016 terms.
void expect_result_of_t5(const std::filesystem::path& folder, const ModelConfig& config) {
  constexpr double kTolerance = 1e-11;
  const T5Tensors expected = harness::read_tensors(folder / "result.safetensors");
  const T5Tensors gradients = harness::read_tensors(folder / "gradients/model.safetensors");
  const auto model = some_t5(config);
  const auto [tokens, decoder_tokens, targets] = some_t5_tokens(config);
  harness::assert_close(model->logits(tokens, decoder_tokens).detach(), expected.at("logits"),
                        kTolerance, kTolerance, "logits");
  const at::Tensor hidden =
      model->forward_part({.tokens_BT = tokens, .decoder_tokens_BU = decoder_tokens}).hidden;
  const at::Tensor loss = model->head_loss(hidden, targets).sum;
  loss.backward();
  harness::assert_close(loss.detach(), expected.at("loss"), kTolerance, 0, "loss");
  EXPECT_EQ(gradients.size(), model->module().parameters().size());
  for (const auto& item : model->module().named_parameters()) {
    const std::string name = name_in_transformers(item.key());
    ASSERT_TRUE(gradients.contains(name)) << name;
    const double largest = gradients.at(name).abs().max().item<double>();
    harness::assert_close(item.value().grad(), gradients.at(name), kTolerance, kTolerance * largest,
                          name);
  }
}

TEST(T5, AgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  const std::pair<const char*, ModelConfig> cases[] = {{"tiny", kTinyT5}, {"small", kSmallT5}};
  std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_TRANSFORMERS_REFERENCE, "'");
  for (const auto& [name, config] : cases) {
    write_t5(folder.path() / name, config);
    command += concat(" '", (folder.path() / name).string(), "'");
  }
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (const auto& [name, config] : cases) {
    SCOPED_TRACE(name);
    expect_result_of_t5(folder.path() / name, config);
  }
}

TEST(T5, DistancesHaveTheBucketsOfItsCode) {
  const EncoderDecoderConfig config{.relative_buckets = 8, .relative_distance = 12};
  // Distances -8 to 8. Both directions: two for single distances, two for ranges, for each.
  const std::vector<int64_t> both = {3, 3, 3, 3, 2, 2, 2, 1, 0, 5, 6, 6, 6, 7, 7, 7, 7};
  const std::vector<int64_t> back = {6, 6, 5, 4, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const auto list = [](const at::Tensor& x) {
    return std::vector<int64_t>(x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + 17);
  };
  EXPECT_EQ(list(distance_buckets(9, config, true)), both);
  EXPECT_EQ(list(distance_buckets(9, config, false)), back);
}

TEST(T5, TheDecoderReadsNoLaterTargetAndEveryInput) {
  const auto model = some_t5(kTinyT5);
  const at::NoGradGuard no_grad;
  const auto [tokens, decoder_tokens, targets] = some_t5_tokens(kTinyT5);
  const at::Tensor before = model->logits(tokens, decoder_tokens);
  const at::Tensor changed = decoder_tokens.clone();
  changed.select(1, 9).add_(1).remainder_(31);
  const at::Tensor after = model->logits(tokens, changed);
  harness::assert_close(after.slice(1, 0, 9), before.slice(1, 0, 9), 0, 1e-12, "earlier logits");
  EXPECT_GT((after.select(1, 9) - before.select(1, 9)).abs().max().item<double>(), 1e-6);
  const at::Tensor other = tokens.clone();
  other.select(1, 29).add_(1).remainder_(31);
  const at::Tensor difference = (model->logits(other, decoder_tokens) - before).abs();
  EXPECT_GT(difference.select(1, 0).max().item<double>(), 1e-9);
}

const std::vector<std::vector<int64_t>> kT5Prompts = {
    {5}, {3, 4, 9, 11, 2, 7, 30}, {8, 8, 1}, {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 1}};

TEST(T5, WritesTheLikeliestTokensOfItsLogits) {
  const at::NoGradGuard no_grad;
  const std::pair<ModelConfig, int64_t> cases[] = {{kTinyT5, 16}, {kSmallT5, 4}};
  for (const auto& [config, max_tokens] : cases) {
    const auto model = some_t5(config);
    const auto found = generate_texts(
        *model, kT5Prompts, {.max_tokens = max_tokens, .temperature = 0, .texts_at_once = 3});
    for (size_t i = 0; i < kT5Prompts.size(); ++i) {
      std::vector<int64_t> read = {0};
      for (const int64_t token : found[i]) {
        const at::Tensor logits = model->logits(at::tensor(kT5Prompts[i], at::kLong).unsqueeze(0),
                                                at::tensor(read, at::kLong).unsqueeze(0));
        ASSERT_EQ(token, logits[0][-1].argmax().item<int64_t>()) << i << ", " << read.size();
        read.push_back(token);
      }
      EXPECT_EQ(std::ssize(read), max_tokens + 1);
    }
  }
}

// Positions are distances, so that a text may be longer than any in training.
TEST(T5, WritesTheSameTokensWithoutACache) {
  const auto model = some_t5(kTinyT5);
  GenerateOptions options{.max_tokens = kTinyT5.seq2seq.target_length + 6, .temperature = 0};
  const auto found = generate_texts(*model, kT5Prompts, options);
  EXPECT_EQ(std::ssize(found[1]), options.max_tokens);
  options.keeps_keys = false;
  EXPECT_EQ(generate_texts(*model, kT5Prompts, options), found);
  options.decoder_start = 3;
  EXPECT_NE(generate_texts(*model, kT5Prompts, options), found);
}

// google-t5/t5-small: 60,506,624 parameters.
constexpr const char* kT5SmallJson = R"({
  "architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64, "d_model": 512,
  "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0,
  "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06, "model_type": "t5",
  "n_positions": 512, "num_heads": 8, "num_layers": 6, "output_past": true, "pad_token_id": 0,
  "relative_attention_num_buckets": 32, "task_specific_params": {}, "vocab_size": 32128})";

TEST(T5, ReadsTheConfigOfT5Small) {
  const HuggingFaceModel found = parse_hugging_face_config(kT5SmallJson, "config.json");
  validate(found.config);
  EXPECT_EQ(found.config.decoder_layers(), 6);
  EXPECT_TRUE(found.config.tied_embedding);
  EXPECT_EQ(found.config.dropout, 0.1);
  EXPECT_EQ(num_parameters(found.config), 60506624);
}

TEST(T5, CountsTheOperationsOfBothHalves) {
  const ModelConfig& c = kTinyT5;
  const double T = 30, U = 17, D = 24, H = 20, F = 40;
  const double encoder = 2 * (T * (4 * D * H + 2 * D * F) + 2 * T * T * H);
  const double decoder = 3 * (U * (6 * D * H + 2 * D * F) + T * 2 * D * H + 2 * U * (U + T) * H);
  EXPECT_DOUBLE_EQ(flops_per_sequence(c), 6 * (encoder + decoder + U * 31 * D));
}

TEST(T5, ConfigsOfOtherModelsAreRefused) {
  for (const auto& [from, to, words] :
       {std::tuple(R"("n_positions": 512)", R"("feed_forward_proj": "gated-silu")",
                   "feed_forward_proj is \"gated-silu\"; expected \"relu\" or \"gated-gelu\""),
        {R"("is_encoder_decoder": true)", R"("is_encoder_decoder": false)", "is_encoder_decoder"},
        {R"("n_positions": 512)", R"("is_gated_act_other": 1)", "is_gated_act_other"}}) {
    std::string text = kT5SmallJson;
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_THAT(
        harness::message_of<ConfigError>([&] { parse_hugging_face_config(text, "config.json"); }),
        HasSubstr(words));
  }
}

TEST(T5, RefusesWhatItDoesNotHave) {
  const auto refusal = [](const auto& change) {
    ModelConfig config = kTinyT5;
    change(config);
    return harness::message_of<ConfigError>([&] { validate(config); });
  };
  EXPECT_THAT(refusal([](auto& c) { c.kv_heads = 1; }), HasSubstr("t5 has no grouped queries"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rotary_share = 0.5; }),
              HasSubstr("t5 learns its positions"));
  EXPECT_THAT(refusal([](auto& c) { c.seq2seq.relative_buckets = 7; }), HasSubstr("even number"));
  EXPECT_THAT(refusal([](auto& c) { c.seq2seq.relative_distance = 4; }), HasSubstr("above 4"));
  EXPECT_THAT(refusal([](auto& c) {
                c.family = "llama";
                c.attention.head_width = 6;
              }),
              HasSubstr("which has no encoder and decoder"));
  const auto model = make_model(kTinyT5, 1, at::kFloat);
  const at::Tensor tokens = at::zeros({1, 4}, at::kLong);
  EXPECT_THROW(model->logits(tokens), ConfigError);
  EXPECT_THROW(model->logits(tokens, at::zeros({1, 18}, at::kLong)), ConfigError);
}

}  // namespace
}  // namespace trireme::model
