#include "trireme/tasks/language/hugging_face_export.h"

#include <cmath>
#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/saved.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/train/language_config.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/language/hugging_face_import.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using harness::names_in;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int kRanks = 3;

train::RunConfig gpt2_config(const std::string& precision = "fp32") {
  train::RunConfig config = train::language_config();
  train::model_of(config) = {.family = "gpt2",
                             .layers = 2,
                             .width = 8,
                             .heads = 4,
                             .kv_heads = 4,
                             .ffn_width = 24,
                             .sequence_length = 5,
                             .vocab_size = 11};
  config.train.precision = choose(train::kPrecisions, "precision", precision);
  return config;
}

Tensors random_weights(const train::RunConfig& config) {
  const model::ModelPlan plan = model::make_plan(train::model_of(config));
  Tensors tensors;
  for (const auto& parameter : plan.parameters()) {
    tensors[parameter.name] = at::randn(parameter.layout.whole_shape()).to(config.dtype());
  }
  return tensors;
}

// A run's folder with one checkpoint: tensor after tensor is split along one dimension, along the
// other one, unevenly, or not at all.
struct SavedRun {
  explicit SavedRun(const train::RunConfig& config, Tensors saved) : tensors(std::move(saved)) {
    const std::string state = train::to_json({.step = 7, .config = train::to_toml(config)});
    harness::run_ranks(kRanks, [&](comm::Communicator& world) {
      std::vector<checkpoint::Entry> entries;
      for (const auto& [name, tensor] : tensors) {
        const size_t form = entries.size() % 4;
        const auto dim = static_cast<int>(form == 1 ? tensor.dim() - 1 : 0);
        const mesh::Placement placement =
            form == 3   ? mesh::Placement{}
            : form == 2 ? mesh::Placement::sharded(0, {0, 0, 2, tensor.size(0)})
                        : mesh::Placement::sharded(dim);
        const mesh::Layout layout(tensor.sizes().vec(), {{"tensor", kRanks}}, {placement});
        entries.push_back(checkpoint::part_of(name, tensor, layout, world.rank()));
      }
      checkpoint::save(folder / "checkpoints", 7, entries, state, world, {.fsync = false});
    });
    dataset::save_tokenizer(*dataset::make_bytes_tokenizer(), (folder / "tokenizer").string());
  }
  fs::path file() const {
    return folder / "checkpoints/step-000007" / "rank-001-of-003.safetensors";
  }
  ExportReport export_with(const ExportOptions& options = {}) const {
    return export_to_hugging_face(folder.path(), output(), options);
  }
  fs::path output() const { return folder / "output"; }

  harness::TemporaryFolder folder;
  Tensors tensors;
};

// The exported tensors of all files.
Tensors exported(const SavedRun& run, const ExportReport& report) {
  Tensors tensors;
  for (const std::string& file : report.files) {
    const checkpoint::SafetensorsReader reader(run.output() / file);
    EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
    for (const auto& info : reader.tensors()) tensors[info.name] = reader.read(info.name);
  }
  return tensors;
}

// What an export of these parameters, in their dtype, must hold.
Tensors expected(const train::RunConfig& config,
                 const std::function<at::Tensor(std::string)>& parameter) {
  Tensors tensors;
  for (const auto& tensor : model::hugging_face_tensors(train::model_of(config))) {
    std::vector<at::Tensor> parts;
    for (const std::string& name : tensor.parts) parts.push_back(parameter(name));
    tensors[tensor.name] = model::join_parts(tensor, parts);
  }
  return tensors;
}

void assert_same(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    harness::assert_same_bits(actual.at(name), tensor, name);
  }
}

template <typename Exception>
std::string refusal(const SavedRun& run, const ExportOptions& options = {}) {
  try {
    run.export_with(options);
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST(ExportReport, PiecesOfAnyLayoutBecomeWholeTensorsInOneFile) {
  const train::RunConfig config = gpt2_config();
  const SavedRun run(config, random_weights(config));
  const ExportReport report = run.export_with();
  EXPECT_THAT(report.files, ElementsAre("model.safetensors"));
  EXPECT_THAT(names_in(run.output()), ElementsAre("README.md", "config.json", "model.safetensors"));
  assert_same(exported(run, report),
              expected(config, [&](const std::string& name) { return run.tensors.at(name); }));
  EXPECT_EQ(report.step, 7);
  EXPECT_EQ(report.num_parameters, num_parameters(train::model_of(config)));
  EXPECT_EQ(report.num_bytes, 4 * report.num_parameters);
  EXPECT_EQ(report.tokenizer, dataset::TokenizerKind::kBytes);
  EXPECT_EQ(read_file(run.output() / "config.json"),
            model::hugging_face_config(train::model_of(config), at::kFloat, 256));
}

TEST(ExportReport, TheSameTensorsForTorchDistributed) {
  const train::RunConfig config = gpt2_config();
  const SavedRun run(config, random_weights(config));
  const ExportReport report = run.export_with({.form = ExportForm::kDcp});
  EXPECT_THAT(report.files, ElementsAre("__0_0.distcp", ".metadata"));
  EXPECT_THAT(names_in(run.output()), ElementsAre(".metadata", "__0_0.distcp"));
  const auto source = checkpoint::open_tensors(run.output());
  Tensors tensors;
  for (const auto& [name, info] : source->tensors()) tensors[name] = source->read(name);
  assert_same(tensors,
              expected(config, [&](const std::string& name) { return run.tensors.at(name); }));
}

TEST(ExportReport, LargeModelsBecomeFilesBelowTheLimitWithAnIndexOfThem) {
  const train::RunConfig config = gpt2_config();
  const SavedRun run(config, random_weights(config));
  constexpr int64_t kLimit = 1000;
  const ExportReport report = run.export_with({.max_shard_bytes = kLimit});
  ASSERT_GT(report.files.size(), 3u);
  EXPECT_EQ(report.files[1], concat("model-00002-of-0000", report.files.size(), ".safetensors"));
  const auto index =
      nlohmann::json::parse(read_file(run.output() / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], report.num_bytes);
  EXPECT_EQ(index["weight_map"].size(), static_cast<size_t>(report.num_tensors));
  for (const std::string& file : report.files) {
    const checkpoint::SafetensorsReader reader(run.output() / file);
    int64_t bytes = 0;
    for (const auto& info : reader.tensors()) {
      bytes += static_cast<int64_t>(info.end - info.begin);
      EXPECT_EQ(index["weight_map"][info.name], file);
    }
    EXPECT_TRUE(bytes <= kLimit || reader.tensors().size() == 1) << file << ": " << bytes;
  }
  assert_same(exported(run, report),
              expected(config, [&](const std::string& name) { return run.tensors.at(name); }));
}

TEST(ExportReport, AnotherDtypeIsMadeOfTheMasterWeights) {
  const train::RunConfig config = gpt2_config("bf16");
  Tensors tensors = random_weights(config);
  for (const auto& [name, tensor] : random_weights(gpt2_config())) {
    tensors["optimizer.master." + name] = tensor;
    tensors["optimizer.exp_avg." + name] = tensor;
    tensors[name] = tensor.to(at::kBFloat16);
  }
  for (const auto dtype : {at::kBFloat16, at::kFloat, at::kHalf}) {
    const SavedRun run(config, tensors);
    const ExportReport report =
        dtype == at::kBFloat16 ? run.export_with() : run.export_with({.dtype = dtype});
    EXPECT_EQ(report.dtype, dtype);
    EXPECT_EQ(report.from_masters, dtype != at::kBFloat16);
    assert_same(exported(run, report), expected(config, [&](const std::string& name) {
                  return tensors.at("optimizer.master." + name).to(dtype);
                }));
  }
}

TEST(ExportReport, AValueThatTheDtypeCannotHoldIsRefusedAndNothingIsLeft) {
  const train::RunConfig config = gpt2_config();
  Tensors tensors = random_weights(config);
  tensors["transformer.h.1.mlp.c_fc.bias"][3] = -1e5;
  const SavedRun run(config, tensors);
  EXPECT_THAT(refusal<ConfigError>(run, {.dtype = at::kHalf}),
              AllOf(HasSubstr("transformer.h.1.mlp.c_fc.bias"), HasSubstr("100000"),
                    HasSubstr("bf16 or fp32")));
  EXPECT_THAT(names_in(run.folder.path()), ElementsAre("checkpoints", "tokenizer.tokenizer.json"));
  EXPECT_EQ(refusal<ConfigError>(run, {.dtype = at::kBFloat16}), "");
}

// Checksums say that the values are what was saved, not that a model can use them.
TEST(ExportReport, WeightsThatAreNotFiniteAreRefusedByNameHereAndByGenerate) {
  train::RunConfig config = gpt2_config();
  train::model_of(config).vocab_size = 300;  // room for the tokenizer's
  const std::string name = "transformer.h.1.mlp.c_fc.bias";
  for (const double value : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
    Tensors tensors = random_weights(config);
    EXPECT_EQ(refusal<CheckpointError>(SavedRun(config, tensors)), "");
    tensors[name][3] = value;
    tensors[name][5] = value;
    const SavedRun run(config, tensors);
    const auto says_which = AllOf(HasSubstr("2 of the 24 values of \"" + name + "\""),
                                  HasSubstr("use an earlier checkpoint"));
    EXPECT_THAT(refusal<CheckpointError>(run), says_which);
    EXPECT_FALSE(fs::exists(run.output()));
    EXPECT_THAT(checkpoint::checkpoint_error([&] { load_trained_model(run.folder.path()); }),
                says_which);
  }
}

TEST(ExportReport, ADamagedOrIncompleteCheckpointIsRefusedAndNothingIsLeft) {
  const train::RunConfig config = gpt2_config();
  Tensors tensors = random_weights(config);
  const SavedRun damaged(config, tensors);
  const std::string content = read_file(damaged.file());
  checkpoint::overwrite(damaged.file(),
                        checkpoint::with_flipped_bit(content, content.size() * 8 - 1));
  EXPECT_THAT(refusal<CheckpointError>(damaged),
              AllOf(HasSubstr("rank-001-of-003"), HasSubstr("digest")));
  EXPECT_FALSE(fs::exists(damaged.output()));

  tensors.erase("transformer.h.1.attn.v_proj.bias");
  const SavedRun incomplete(config, tensors);
  EXPECT_THAT(refusal<CheckpointError>(incomplete),
              HasSubstr("no tensor \"transformer.h.1.attn.v_proj.bias\""));
  EXPECT_FALSE(fs::exists(incomplete.output()));
}

TEST(ExportReport, AFullDiskIsNotTheCheckpointsFault) {
  const train::RunConfig config = gpt2_config();
  const SavedRun run(config, random_weights(config));
  const harness::FileSizeLimit limit(8 << 10);
  try {
    run.export_with();
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    FAIL() << error.what();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.safetensors"), HasSubstr("make room")));
  }
  EXPECT_FALSE(fs::exists(run.output()));
}

TEST(ExportReport, AnOutputThatHoldsSomethingStaysAsItIs) {
  const train::RunConfig config = gpt2_config();
  const SavedRun run(config, random_weights(config));
  run.export_with();
  const std::string before = read_file(run.output() / "model.safetensors");
  EXPECT_THAT(refusal<ConfigError>(run, {.dtype = at::kHalf}), HasSubstr("not empty"));
  EXPECT_EQ(read_file(run.output() / "model.safetensors"), before);
}

TEST(ExportReport, IsImportedWithTheSameValues) {
  const train::RunConfig config = gpt2_config();
  const SavedRun run(config, random_weights(config));
  const ExportReport out = run.export_with();
  const harness::TemporaryFolder folder;
  const HuggingFaceImport in = import_from_hugging_face(run.output(), folder / "imported");
  EXPECT_EQ(in.architecture, out.architecture);
  EXPECT_EQ(in.num_parameters, out.num_parameters);
  const SavedRun again(config, run.tensors);
  const ExportReport back = export_to_hugging_face(folder / "imported", again.output());
  const Tensors first = exported(run, out), second = exported(again, back);
  ASSERT_EQ(first.size(), second.size());
  for (const auto& [name, tensor] : first) EXPECT_TRUE(at::equal(tensor, second.at(name))) << name;
}

}  // namespace
}  // namespace trireme::tasks
