#include "trireme/verify/reference.h"

#include <fstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/live_bytes.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/verify/recorded.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/verify/comparison.h"

namespace trireme::verify {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kNames = {"model.layers.0.weight", "lm_head.weight"};
constexpr const char* kProbes =
    R"({"probes": ["model.layers.0", "norm"], "replicas_differ": {}, "left_out": []})";

class ReferenceTest : public testing::Test {
 protected:
  // A run with two activations of two sequences of three tokens, and the same as a reference.
  void write(at::ScalarType dtype, const std::string& precision) {
    const at::Tensor x = at::linspace(-1, 1, 24, at::kDouble).view({6, 4});
    const at::Tensor w = at::linspace(0, 3, 12, at::kDouble).view({3, 4});
    RecordedStep step{.loss = 2.5, .norm = 1.5};
    for (const std::string& name : kNames) step.gradients[name] = w.to(dtype);
    step.checkpoint["lm_head.weight"] = w.to(dtype);
    const fs::path run = folder_.path() / ("run-" + precision);
    write_run(run, kNames, {step});
    save_tensors(run / "activations", 1, {{"model.layers.0", x.to(dtype)}, {"norm", x.to(dtype)}},
                 kProbes);
    const fs::path other = folder_.path() / precision;
    fs::create_directories(other / "gradients");
    checkpoint::write_safetensors(
        other / "activations.safetensors",
        {{"decoder.0.out", x.view({2, 3, 4}).to(dtype)}, {"model.norm", x.to(dtype)}});
    write_gradients(precision, w.to(dtype));
    std::ofstream(other / "step.json") << R"({"loss": 2.5, "grad_norm": 1.5})";
  }
  void write_gradients(const std::string& precision, const at::Tensor& w) {
    checkpoint::write_safetensors(folder_.path() / precision / "gradients/model.safetensors",
                                  {{kNames[0], w}, {kNames[1], w}, {"extra.bias", at::ones({2})}});
  }
  CommonTensors common(const std::string& precision, const NameMap& names = kMap) {
    const ReferenceStep reference{
        .folder = folder_.path() / precision, .names = names, .open_gradients = [](const auto& at) {
          return checkpoint::open_tensors(at / "model.safetensors");
        }};
    return write_common(reference, folder_.path() / ("run-" + precision),
                        folder_.path() / ("a-" + precision), folder_.path() / ("b-" + precision));
  }
  Comparison compared() {
    const RecordedRun a32(folder_.path() / "a-fp32"), b32(folder_.path() / "b-fp32");
    const RecordedRun a64(folder_.path() / "a-fp64"), b64(folder_.path() / "b-fp64");
    return compare({a32, b32}, {a64, b64});
  }
  static const NameMap kMap;

  harness::TemporaryFolder folder_;
};
const NameMap ReferenceTest::kMap = {{"decoder.*.out", "model.layers.*"}, {"model.norm", "norm"}};

TEST_F(ReferenceTest, TheSameStepHasTheSameBitsUnderOtherNamesAndShapes) {
  write(at::kFloat, "fp32");
  write(at::kDouble, "fp64");
  const CommonTensors found = common("fp32");
  EXPECT_EQ(found.num_activations, 2);
  EXPECT_EQ(found.num_gradients, 2);
  EXPECT_TRUE(found.only_run.empty());
  EXPECT_EQ(found.only_reference, std::vector<std::string>{"extra.bias"});
  common("fp64");
  const Comparison comparison = compared();
  EXPECT_EQ(comparison.finding(), Finding::kSame);
  EXPECT_EQ(comparison.num_probes, 2 + 2 + 2);  // and loss and norm
}

TEST_F(ReferenceTest, OneTensorAtATimeIsInMemory) {
  write(at::kFloat, "fp32");
  const at::Tensor x = at::rand({1024, 1024});  // 4 MiB
  Tensors ours, theirs;
  for (int i = 0; i < 8; ++i) {
    ours[concat("model.layers.", i)] = x;
    theirs[concat("decoder.", i, ".out")] = x.to(at::kDouble);
  }
  save_tensors(folder_.path() / "run-fp32/activations", 1, ours, kProbes);
  checkpoint::write_safetensors(folder_.path() / "fp32/activations.safetensors", theirs);
  const auto live = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  EXPECT_EQ(common("fp32").num_activations, 8);
  EXPECT_LE(live->peak(), 13 << 20);  // one in fp64 and its copy in fp32
}

TEST_F(ReferenceTest, ARunWithoutActivationsHasItsGradientsInCommon) {
  for (const auto& [precision, dtype] :
       {std::pair("fp32", at::kFloat), std::pair("fp64", at::kDouble)}) {
    write(dtype, precision);
    fs::remove_all(folder_.path() / concat("run-", precision) / "activations");
    const CommonTensors found = common(precision);
    EXPECT_EQ(found.num_activations, 0);
    EXPECT_EQ(found.num_gradients, 2);
  }
  EXPECT_EQ(compared().num_probes, 2 + 2);  // and loss and norm
}

TEST_F(ReferenceTest, AGradientThatDiffersIsNamed) {
  write(at::kFloat, "fp32");
  write(at::kDouble, "fp64");
  for (const auto& [precision, dtype] :
       {std::pair("fp32", at::kFloat), std::pair("fp64", at::kDouble)}) {
    write_gradients(precision, at::linspace(0, 3.5, 12, at::kDouble).view({3, 4}).to(dtype));
    common(precision);
  }
  const Comparison comparison = compared();
  EXPECT_EQ(comparison.finding(), Finding::kBug);
  EXPECT_EQ(comparison.first()->name, "lm_head.weight");
}

TEST_F(ReferenceTest, WhatDoesNotFitIsRefused) {
  write(at::kFloat, "fp32");
  const auto message = [&](const NameMap& names = kMap) {
    return harness::message_of<ConfigError>([&] { common("fp32", names); });
  };
  write_gradients("fp32", at::ones({3, 5}));
  EXPECT_THAT(message(), testing::AllOf(testing::HasSubstr("[3, 5]"), testing::HasSubstr("[3, 4]"),
                                        testing::HasSubstr("the same batch")));
  write_gradients("fp32", at::ones({3, 4}, at::kLong));
  EXPECT_THAT(message(), testing::HasSubstr("floating point"));
  std::ofstream(folder_.path() / "fp32/step.json") << R"({"loss": null, "grad_norm": 1})";
  EXPECT_THAT(message(), testing::HasSubstr("lacks loss or grad_norm"));
  fs::remove(folder_.path() / "fp32/step.json");
  EXPECT_THAT(message(), testing::HasSubstr("trireme_torch.record()"));
}

TEST_F(ReferenceTest, NothingInCommonIsRefused) {
  write(at::kFloat, "fp32");
  checkpoint::write_safetensors(folder_.path() / "fp32/gradients/model.safetensors",
                                {{"other", at::ones({2})}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { common("fp32", {}); }),
              testing::HasSubstr("--map"));
}

TEST(NameMapTest, HasOneStarOrNone) {
  const NameMap names = {{"layers.*.mlp", "model.layers.*"}, {"final", "norm"}};
  EXPECT_EQ(mapped(names, "layers.12.mlp"), "model.layers.12");
  EXPECT_EQ(mapped(names, "final"), "norm");
  EXPECT_EQ(mapped(names, "layers.12.attention"), "layers.12.attention");
  EXPECT_EQ(mapped(transformers_names(), "model.norm"), "norm");
  EXPECT_EQ(mapped(transformers_names(), "vit.layers.3"), "vit.encoder.layer.3");
  EXPECT_NE(mapped(transformers_names(), "vit.layers.3.attention"),
            "vit.encoder.layer.3.attention");
  EXPECT_NE(mapped(transformers_names(), "bert.encoder.layer.3.attention"),
            "bert.encoder.layer.3.attention");
}

TEST(NameMapTest, AFileIsBoundedAndChecked) {
  const harness::TemporaryFolder folder;
  const fs::path file = folder.path() / "map.json";
  const auto message = [&](const std::string& text) {
    std::ofstream(file) << text;
    return harness::message_of<ConfigError>([&] { read_name_map(file); });
  };
  EXPECT_THAT(message("[1]"), testing::HasSubstr("no JSON object"));
  EXPECT_THAT(message(R"({"a": 1})"), testing::HasSubstr("expected a text"));
  EXPECT_THAT(message(R"({"a.*": "b"})"), testing::HasSubstr("stars"));
  EXPECT_THAT(message(R"({"a.*.*": "b.*.*"})"), testing::HasSubstr("stars"));
  std::ofstream(file) << R"({"a.*": "b.*"})";
  EXPECT_EQ(mapped(read_name_map(file), "a.1"), "b.1");
}

}  // namespace
}  // namespace trireme::verify
