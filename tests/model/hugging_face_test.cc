#include "trireme/model/hugging_face.h"

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {
namespace {

// Every size another one, so that no two can be mistaken for each other.
const ModelConfig kLlama{.family = "llama",
                         .layers = 2,
                         .width = 24,
                         .heads = 6,
                         .kv_heads = 3,
                         .ffn_width = 40,
                         .sequence_length = 17,
                         .vocab_size = 29,
                         .norm_epsilon = 2e-6,
                         .rope_base = 5e5};

ModelConfig gpt2() {
  ModelConfig config = kLlama;
  config.family = "gpt2";
  config.kv_heads = config.heads;
  config.dropout = 0.1;
  return config;
}

std::map<std::string, HuggingFaceTensor> by_name(const ModelConfig& config) {
  std::map<std::string, HuggingFaceTensor> result;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(config)) {
    EXPECT_TRUE(result.emplace(tensor.name, tensor).second) << tensor.name;
  }
  return result;
}

using Shape = std::vector<int64_t>;

TEST(HuggingFace, EveryParameterIsPartOfOneTensorWithAllItsElements) {
  ModelConfig tied = kLlama;
  tied.tied_embedding = true;
  for (const ModelConfig& config : {kLlama, tied, gpt2()}) {
    std::multiset<std::string> parts, parameters;
    int64_t elements = 0;
    for (const HuggingFaceTensor& tensor : hugging_face_tensors(config)) {
      parts.insert(tensor.parts.begin(), tensor.parts.end());
      elements += c10::multiply_integers(tensor.shape);
    }
    const ModelPlan plan = make_plan(config);
    for (const auto& parameter : plan.parameters()) parameters.insert(parameter.name);
    EXPECT_EQ(parts, parameters);
    EXPECT_EQ(elements, num_parameters(config));
  }
}

TEST(HuggingFace, LlamaHasOurNamesAndShapes) {
  const auto tensors = by_name(kLlama);
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(tensor.parts, std::vector<std::string>{name});
    EXPECT_FALSE(tensor.is_transposed);
  }
  EXPECT_EQ(tensors.at("model.layers.1.self_attn.k_proj.weight").shape, (Shape{12, 24}));
  EXPECT_EQ(tensors.count("lm_head.weight"), 1u);
}

TEST(HuggingFace, Gpt2HasConv1dMatricesAndOneProjectionForQueryKeyAndValue) {
  // Of transformers 5.23.0: {name: shape} of GPT2LMHeadModel(...).state_dict() with these sizes,
  // but for the tied lm_head.weight.
  std::map<std::string, Shape> expected = {{"transformer.wte.weight", {29, 24}},
                                           {"transformer.wpe.weight", {17, 24}},
                                           {"transformer.ln_f.weight", {24}},
                                           {"transformer.ln_f.bias", {24}}};
  for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
    expected.insert({{layer + "ln_1.weight", {24}},
                     {layer + "ln_1.bias", {24}},
                     {layer + "attn.c_attn.weight", {24, 72}},
                     {layer + "attn.c_attn.bias", {72}},
                     {layer + "attn.c_proj.weight", {24, 24}},
                     {layer + "attn.c_proj.bias", {24}},
                     {layer + "ln_2.weight", {24}},
                     {layer + "ln_2.bias", {24}},
                     {layer + "mlp.c_fc.weight", {24, 40}},
                     {layer + "mlp.c_fc.bias", {40}},
                     {layer + "mlp.c_proj.weight", {40, 24}},
                     {layer + "mlp.c_proj.bias", {24}}});
  }
  std::map<std::string, Shape> found;
  const auto tensors = by_name(gpt2());
  for (const auto& [name, tensor] : tensors) found[name] = tensor.shape;
  EXPECT_EQ(found, expected);
  EXPECT_EQ(tensors.at("transformer.h.1.attn.c_attn.bias").parts,
            (std::vector<std::string>{"transformer.h.1.attn.q_proj.bias",
                                      "transformer.h.1.attn.k_proj.bias",
                                      "transformer.h.1.attn.v_proj.bias"}));
}

TEST(HuggingFace, JoinedPartsMultiplyAsOnesOfTheirOwn) {
  const auto tensors = by_name(gpt2());
  const auto part = [](int i, Shape shape) {
    return at::arange(c10::multiply_integers(shape), at::kDouble).view(shape) + 1000 * i;
  };
  const std::vector<at::Tensor> weights = {part(0, {24, 24}), part(1, {24, 24}), part(2, {24, 24})};
  const std::vector<at::Tensor> biases = {part(0, {24}), part(1, {24}), part(2, {24})};
  const at::Tensor w = join_parts(tensors.at("transformer.h.0.attn.c_attn.weight"), weights);
  const at::Tensor b = join_parts(tensors.at("transformer.h.0.attn.c_attn.bias"), biases);
  EXPECT_TRUE(w.is_contiguous());
  // transformers' Conv1D, then GPT2Attention's split into query, key and value.
  const at::Tensor x = at::arange(48, at::kDouble).view({2, 24});
  const auto split = (at::matmul(x, w) + b).split(24, 1);
  for (int i = 0; i < 3; ++i) {
    harness::assert_same_bits(split[i].contiguous(), at::linear(x, weights[i], biases[i]), "part");
  }
  // What is neither transposed nor joined keeps its bits and its memory.
  const at::Tensor wte = part(0, {29, 24});
  EXPECT_TRUE(join_parts(tensors.at("transformer.wte.weight"), {&wte, 1}).is_same(wte));
}

TEST(HuggingFace, SplitPartsAreThoseThatWereJoined) {
  ModelConfig sparse = kLlama;
  sparse.family = "mixtral";
  sparse.sparse.experts = 4;
  for (const ModelConfig& config : {kLlama, gpt2(), sparse}) {
    std::map<std::string, at::Tensor> parameters;
    const ModelPlan plan = make_plan(config);
    for (const auto& parameter : plan.parameters()) {
      const Shape shape = parameter.layout.whole_shape();
      parameters[parameter.name] =
          at::arange(c10::multiply_integers(shape), at::kDouble).view(shape) +
          1000. * static_cast<double>(parameters.size());
    }
    for (const HuggingFaceTensor& tensor : hugging_face_tensors(config)) {
      std::vector<at::Tensor> parts;
      for (const std::string& name : tensor.parts) parts.push_back(parameters.at(name));
      const auto found = split_parts(tensor, join_parts(tensor, parts));
      ASSERT_EQ(found.size(), parts.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        const at::Tensor expected = tensor.slice < 0 ? parts[i] : parts[i].select(0, tensor.slice);
        harness::assert_same_bits(found[i].contiguous(), expected.contiguous(), tensor.name);
      }
      EXPECT_THROW(split_parts(tensor, at::zeros({1})), InternalError);
    }
  }
}

TEST(HuggingFace, RotaryRowsThatLieInPairsAreSplitIntoHalves) {
  const HuggingFaceTensor tensor{.name = "q_b_proj.weight",
                                 .shape = {14, 1},
                                 .parts = {"q_b_proj.weight"},
                                 .head_rows = 7,
                                 .rotary_rows = 4};
  const at::Tensor rows = at::arange(14, at::kFloat).view({14, 1});
  harness::assert_same_bits(split_parts(tensor, rows, /*adjacent_pairs=*/true)[0].flatten(),
                            at::tensor({0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 12, 11, 13}, at::kFloat),
                            "rows");
  harness::assert_same_bits(split_parts(tensor, rows)[0], rows, "rows as they are");
}

TEST(HuggingFace, AClassWithPairsSideBySideIsWrittenSo) {
  for (const Shape& shape : {Shape{14, 2}, Shape{14}}) {
    const HuggingFaceTensor tensor{.name = "q_proj",
                                   .shape = shape,
                                   .parts = {"q_proj"},
                                   .head_rows = 7,
                                   .rotary_rows = 4,
                                   .rotary_first = true,
                                   .has_adjacent_pairs = true};
    const at::Tensor own = at::arange(c10::multiply_integers(shape), at::kFloat).view(shape);
    const at::Tensor order = at::tensor({0, 2, 1, 3, 4, 5, 6, 7, 9, 8, 10, 11, 12, 13}, at::kLong);
    const at::Tensor written = join_parts(tensor, std::vector<at::Tensor>{own});
    harness::assert_same_bits(written, own.index_select(0, order), "written");
    harness::assert_same_bits(split_parts(tensor, written)[0], own, "read");
  }
}

TEST(HuggingFace, ALlamaConfigSaysEverySize) {
  const auto config = nlohmann::json::parse(hugging_face_config(kLlama, at::kBFloat16, 28));
  const nlohmann::json expected = {{"architectures", {"LlamaForCausalLM"}},
                                   {"model_type", "llama"},
                                   {"vocab_size", 29},
                                   {"hidden_size", 24},
                                   {"intermediate_size", 40},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 6},
                                   {"num_key_value_heads", 3},
                                   {"head_dim", 4},
                                   {"hidden_act", "silu"},
                                   {"max_position_embeddings", 17},
                                   {"rms_norm_eps", 2e-6},
                                   {"rope_theta", 5e5},
                                   {"tie_word_embeddings", false},
                                   {"attention_bias", false},
                                   {"mlp_bias", false},
                                   {"torch_dtype", "bfloat16"},
                                   {"bos_token_id", 28},
                                   {"eos_token_id", 28}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config.at(key), value) << key;
}

TEST(HuggingFace, AGpt2ConfigSaysEverySizeAndWhatIsDropped) {
  const auto config = nlohmann::json::parse(hugging_face_config(gpt2(), at::kFloat, std::nullopt));
  const nlohmann::json expected = {{"architectures", {"GPT2LMHeadModel"}},
                                   {"model_type", "gpt2"},
                                   {"vocab_size", 29},
                                   {"n_embd", 24},
                                   {"n_inner", 40},
                                   {"n_layer", 2},
                                   {"n_head", 6},
                                   {"n_positions", 17},
                                   {"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", 2e-6},
                                   {"embd_pdrop", 0.1},
                                   {"resid_pdrop", 0.1},
                                   {"attn_pdrop", 0.0},
                                   {"tie_word_embeddings", true},
                                   {"torch_dtype", "float32"},
                                   {"bos_token_id", nullptr},
                                   {"eos_token_id", nullptr}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config.at(key), value) << key;
}

}  // namespace
}  // namespace trireme::model
