// Every registered family against the contract of Family: a new one is tested as soon as it has its
// line in families.cc.
#include <map>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/tensors.h"
#include "tests/model/small_config.h"
#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

at::Tensor some_tokens() { return at::arange(16, at::kLong).mul(7).remainder(11).view({2, 8}); }

int64_t matrix_elements(const ModelConfig& config) {
  const ModelPlan plan = make_plan(config);
  int64_t elements = 0;
  for (const ParameterPlan& parameter : plan.parameters()) {
    const auto& shape = parameter.layout.shape();
    if (shape.size() >= 2) elements += c10::multiply_integers(shape);
  }
  return elements;
}

TEST(Families, HaveNamesOfTheirOwnAndTheDefaultIsOne) {
  const std::vector<std::string> names = family_names();
  const std::set<std::string> unique(names.begin(), names.end());
  EXPECT_EQ(unique.size(), names.size());
  EXPECT_TRUE(unique.contains(ModelConfig{}.family));
}

TEST(Families, AnUnknownNameIsRefusedWithAllNames) {
  std::string names;
  for (const std::string& name : family_names()) names += (names.empty() ? "" : ", ") + name;
  try {
    family_of(small_config("mamba", 0));
    FAIL() << "mamba is no family";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), "model.family = \"mamba\" is unknown; expected one of " + names +
                                ": choose one of them");
  }
}

TEST(Families, ThePlanListsTheNetworksParametersInItsOrder) {
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    const ModelConfig config = small_config(name, 0);
    const auto model = make_model(config, 1, at::kFloat);
    const auto parameters = model->module().named_parameters();
    const ModelPlan plan = make_plan(config);
    ASSERT_EQ(plan.parameters().size(), parameters.size());
    int64_t elements = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(plan.parameters()[i].name, parameters[i].key());
      EXPECT_EQ(at::IntArrayRef(plan.parameters()[i].layout.shape()), parameters[i]->sizes());
      elements += parameters[i]->numel();
    }
    EXPECT_EQ(num_parameters(config), elements);
  }
}

// The default rule goes by names, and a norm that it does not know would start at random.
TEST(Families, MatricesStartAtRandomAndVectorsDoNot) {
  for (const std::string& name : family_names()) {
    const ModelConfig config = small_config(name, 0);
    const ModelPlan plan = make_plan(config);
    for (const ParameterPlan& parameter : plan.parameters()) {
      EXPECT_EQ(initialiser_of(config, parameter.name).std > 0,
                parameter.layout.shape().size() >= 2)
          << name << " " << parameter.name;
    }
  }
}

TEST(Families, UnitsHaveEveryParameterOnce) {
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    const auto model = make_model(small_config(name, 0), 1, at::kFloat);
    std::map<const void*, int> uses;
    for (const at::Tensor& p : model->module().parameters()) uses[p.unsafeGetTensorImpl()] = 0;
    for (const parallel::Unit& unit : model->units()) {
      for (const at::Tensor& p : unit.parameters) ++uses.at(p.unsafeGetTensorImpl());
    }
    for (const auto& [parameter, count] : uses) EXPECT_EQ(count, 1);
  }
}

TEST(Families, TwoStagesComputeTheBitsOfTheWholeModel) {
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    const ModelConfig config = small_config(name, 0);
    const auto whole = make_model(config, 1, at::kFloat);
    const auto first = make_model(config, 1, at::kFloat, {}, {.num_layers = 1, .has_head = false});
    const auto last = make_model(config, 1, at::kFloat, {}, {.first_layer = 1, .embeds = false});
    const at::Tensor tokens = some_tokens();
    const Loss expected = whole->loss(tokens, tokens);
    const at::Tensor read = at::constant_pad_nd(tokens.slice(1, 0, -1), {1, 0});
    const PartOutput passed = first->forward_part({.tokens_BT = tokens, .decoder_tokens_BU = read});
    EXPECT_EQ(passed.head_weight.defined(), config.has_tied_head());
    const PartOutput out = last->forward_part({.tokens_BT = tokens,
                                               .hidden = passed.hidden,
                                               .decoder_tokens_BU = read,
                                               .carried = passed.carried});
    const Loss loss = last->head_loss(out.hidden, tokens, passed.head_weight);
    harness::assert_same_bits(loss.sum.detach(), expected.sum.detach(), "loss");
  }
}

TEST(Families, EveryParameterLearnsInEveryPrecision) {
  for (const std::string& name : family_names()) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(concat(name, " ", c10::toString(dtype)));
      const auto model = make_model(small_config(name, 0), 1, dtype);
      model->loss(some_tokens(), some_tokens()).sum.backward();
      for (const auto& item : model->module().named_parameters()) {
        ASSERT_TRUE(item.value().grad().defined()) << item.key();
        EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
      }
    }
  }
}

TEST(Families, MatmulParametersAreTheMatricesOfABlock) {
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    ModelConfig config = small_config(name, 0);
    const bool sparse = config.sparse.experts > 0;
    const int64_t of_two = matrix_elements(config);
    config.layers = 1;
    const int64_t unused = sparse ? (config.sparse.experts - config.sparse.experts_per_token) * 3 *
                                        config.width * config.expert_width()
                                  : 0;
    EXPECT_EQ(family_of(config).matmul_parameters(config, sparse),
              static_cast<double>(of_two - matrix_elements(config) - unused));
  }
}

TEST(Families, CountTheParametersThatTheirPlanHas) {
  for (const std::string& name : family_names()) {
    for (const int64_t dense_layers : {0, 1}) {
      ModelConfig config = small_config(name, 0);
      config.layers = 3;
      if (config.sparse.experts > 0)
        config.sparse = {
            .experts = 4, .expert_width = 5, .shared_experts = 2, .dense_layers = dense_layers};
      const ModelPlan plan = make_plan(config);
      int64_t elements = 0;
      for (const ParameterPlan& parameter : plan.parameters()) {
        elements += c10::multiply_integers(parameter.layout.shape());
      }
      EXPECT_EQ(num_parameters(config), elements) << name;
    }
  }
}

TEST(Families, HuggingFacesTensorsHaveEveryParameterOnceWithAllItsElements) {
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    const ModelConfig config = small_config(name, 0);
    const ModelPlan plan = make_plan(config);
    const HuggingFaceForm form = family_of(config).hugging_face_form(plan);
    EXPECT_FALSE(form.kind->architecture.empty());
    std::multiset<std::string> parts, parameters;
    std::set<std::string> names;
    int64_t elements = 0;
    for (const HuggingFaceTensor& tensor : form.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      // A parameter in slices counts with its first one.
      if (tensor.slice <= 0) parts.insert(tensor.parts.begin(), tensor.parts.end());
      elements += c10::multiply_integers(tensor.shape);
    }
    for (const ParameterPlan& parameter : plan.parameters()) parameters.insert(parameter.name);
    EXPECT_EQ(parts, parameters);
    EXPECT_EQ(elements, num_parameters(config));
  }
}

}  // namespace
}  // namespace trireme::model
