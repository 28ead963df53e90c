// Checkpoints of other programs: Hugging Face's shards, PyTorch's state dicts and distributed
// checkpoints; and what diffusers, transformers and timm say of a model.
#include <map>

#include <ATen/ops/arange.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/foreign/forged.h"
#include "tests/hostile/format.h"
#include "tests/hostile/zip_damage.h"
#include "trireme/base/bounds.h"
#include "trireme/checkpoint/foreign/dcp_writer.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tasks/diffusion/diffusers_config.h"
#include "trireme/tasks/vision/foreign_image_config.h"
#include "trireme/tasks/vision/image_configs.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

// Opens `path`, whose files have so many bytes, and reads every tensor.
void read_all(const std::filesystem::path& path, size_t num_bytes) {
  expect_refusal_or_sense([&] {
    const auto source = checkpoint::open_tensors(path);
    for (const auto& [name, info] : source->tensors()) {
      // One damaged tensor does not excuse the next.
      expect_refusal_or_sense([&, name = name, info = info] {
        const at::Tensor tensor = source->read(name);
        require(tensor.sizes() == at::IntArrayRef(info.shape), "a tensor of another shape");
        require(tensor.scalar_type() == info.dtype, "a tensor of another dtype");
        require(tensor.nbytes() <= num_bytes, "a tensor larger than its files");
      });
    }
  });
}

class Shards : public Format {
 public:
  explicit Shards(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::create_directories(folder);
    checkpoint::write_safetensors(folder / "1.safetensors", {{"a", at::arange(4, at::kFloat)},
                                                             {"b", at::arange(3, at::kLong)}});
    checkpoint::write_safetensors(folder / "2.safetensors", {{"c", at::arange(9, at::kHalf)}});
    index_ = {
        {"metadata", {{"total_size", 58}}},
        {"weight_map", {{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}}}};
  }
  std::string name() const override { return "shards"; }
  void write(Random& random) override {
    put_file(folder_ / "model.safetensors.index.json", damaged_json(index_, 2, random));
  }
  void read() override { read_all(folder_, 1000); }

 private:
  std::filesystem::path folder_;
  ordered_json index_;
};

// Replaces instructions, and the numbers that follow them, by others that a pickle may have.
void damage_pickle(std::string& pickle, Random& random) {
  constexpr std::string_view kCodes =
      "\x80(.NIJKLMGUTXPQRSVabcdehijlopqrstu)]}0123"
      "\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96";
  for (size_t count = 1 + random.below(3); count > 0 && pickle.size() > 16; --count) {
    const size_t at = 2 + random.below(pickle.size() - 12);
    switch (random.below(5)) {
      case 0: pickle[at] = kCodes[random.below(kCodes.size())]; break;
      case 1: pickle.insert(at, 1, kCodes[random.below(kCodes.size())]); break;
      case 2: {
        // A number in front of its last byte: any of 64 bits.
        const size_t integer = pickle.find('K', at);
        if (integer == std::string::npos || integer + 2 > pickle.size()) break;
        pickle.replace(integer, 2, "\x8a\x08" + std::string(8, '\0'));
        put_edge(pickle, integer + 2, 8, random);
        break;
      }
      case 3: {
        // The same name again or a part twice: what is built is closed and follows itself.
        const size_t size = random.below(pickle.size() - at);
        pickle.insert(at, pickle.substr(at, size));
        break;
      }
      default: damage_bytes(pickle, random); break;
    }
  }
}

class StateDict : public Format {
 public:
  explicit StateDict(const std::filesystem::path& folder) : path_(folder / "a.pt") {
    std::filesystem::create_directories(folder);
    checkpoint::Pickler pickler;
    pickler.empty_dict().mark().text("model").empty_dict().mark();
    add_tensor(pickler.text("w"), {});
    add_tensor(pickler.text("t"), {.shape = {3, 2}, .strides = {1, 3}});
    add_tensor(pickler.text("row"), {.offset = 3, .shape = {3}, .strides = {1}});
    pickler.set_items().text("step").integer(7).text("list").empty_list();
    add_tensor(pickler, {.shape = {}, .strides = {}});
    pickle_ = pickler.append().set_items().finish();
  }
  std::string name() const override { return "state-dict"; }

  void write(Random& random) override {
    std::string pickle = pickle_;
    if (!random.one_in(3)) damage_pickle(pickle, random);
    harness::Zip zip = harness::make_zip({{"archive/data.pkl", pickle},
                                          {"archive/byteorder", "little"},
                                          {"archive/data/0", std::string(24, 'x')}},
                                         random.one_in(3));
    if (random.one_in(3)) damage_zip(zip, random);
    if (random.one_in(6)) damage_bytes(zip.bytes, random);
    num_bytes_ = zip.bytes.size();
    put_file(path_, zip.bytes);
  }
  void read() override { read_all(path_, num_bytes_); }

 private:
  std::filesystem::path path_;
  std::string pickle_;
  size_t num_bytes_ = 0;
};

class DistributedCheckpoint : public Format {
 public:
  explicit DistributedCheckpoint(const std::filesystem::path& folder) : folder_(folder / "dcp") {
    std::filesystem::create_directories(folder);
    const std::map<std::string, at::Tensor> tensors = {
        {"a", at::arange(12, at::kFloat).view({3, 4})},
        {"b", at::arange(3, at::kBFloat16)},
        {"empty", at::arange(0, at::kByte)},
        {"scalar", at::arange(1, at::kLong).view({})}};
    std::vector<std::pair<std::string, checkpoint::SourceTensor>> infos;
    for (const auto& [name, tensor] : tensors)
      infos.push_back({name, {.dtype = tensor.scalar_type(), .shape = tensor.sizes().vec()}});
    checkpoint::write_dcp(folder_, infos, [&](const std::string& name, const mesh::Box& box) {
      return checkpoint::view_box(tensors.at(name), box);
    });
    metadata_ = get_file(folder_ / ".metadata");
    chunks_ = get_file(folder_ / "__0_0.distcp");
  }
  std::string name() const override { return "dcp"; }

  void write(Random& random) override {
    std::string metadata = metadata_, chunks = chunks_;
    if (!random.one_in(4)) damage_pickle(metadata, random);
    if (random.one_in(3)) damage_bytes(chunks, random);
    put_file(folder_ / ".metadata", metadata);
    put_file(folder_ / "__0_0.distcp", chunks);
    num_bytes_ = chunks.size();
  }
  void read() override { read_all(folder_, num_bytes_); }

 private:
  std::filesystem::path folder_;
  std::string metadata_;
  std::string chunks_;
  size_t num_bytes_ = 0;
};

class DiffusersJson : public Format {
 public:
  std::string name() const override { return "diffusers-json"; }

  void write(Random& random) override {
    config_ = damaged_json(ordered_json::parse(tasks::diffusers_config(kDit)), 2, random);
    scheduler_ = damaged_json(ordered_json::parse(tasks::diffusers_scheduler({})), 2, random);
    if (random.one_in(4)) damage_text(config_, random);
    if (random.one_in(4)) damage_text(scheduler_, random);
  }
  void read() override {
    expect_refusal_or_sense([&] {
      const model::DitConfig dit = tasks::parse_diffusers_config(config_, "config.json").dit;
      require(dit.width % dit.heads == 0 && dit.num_tokens() > 0, "a model that cannot be");
    });
    expect_refusal_or_sense([&] {
      tasks::NoiseConfig noise;
      tasks::take_diffusers_scheduler(scheduler_, "scheduler_config.json", noise);
      require(noise.timesteps > 0, "a schedule without timesteps");
    });
  }

 private:
  static constexpr model::DitConfig kDit = {
      .image_size = 8, .channels = 3, .layers = 3, .width = 24, .heads = 4, .classes = 5};

  std::string config_;
  std::string scheduler_;
};

// What transformers, timm and exports of weights say of an image classifier.
class ImageConfig : public Format {
 public:
  std::string name() const override { return "image-config"; }

  void write(Random& random) override {
    tasks::ExportedImageModel model{.problem = {}, .classes = {"a", "b"}};
    model.problem.shape = {.channels = 3, .height = 8, .width = 8};
    model.problem.config.vit = {
        .image_size = 8, .patch_size = 4, .layers = 2, .width = 12, .heads = 2, .ffn_width = 16};
    const bool is_vit = random.one_in(2);
    model.problem.config.model.family =
        is_vit ? tasks::ImageFamily::kVit : tasks::ImageFamily::kResNet50;
    const std::string text = random.one_in(3)   ? tasks::transformers_config(model, at::kFloat)
                             : random.one_in(2) ? tasks::timm_config(model)
                                                : tasks::own_config(model);
    text_ = damaged_json(ordered_json::parse(text), 2, random);
    if (random.one_in(4)) damage_text(text_, random);
  }
  void read() override {
    expect_refusal_or_sense([&] {
      const auto found = tasks::parse_foreign_image_config(text_, "config.json");
      require(found.vit.classes >= 0 && found.vit.classes <= kMaxClasses, "so many classes");
      const bool is_vit = found.model.family == tasks::ImageFamily::kVit;
      require(!is_vit || found.vit.width % found.vit.heads == 0, "a model that cannot be");
    });
  }

 private:
  std::string text_;
};

}  // namespace

void add_foreign_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Shards>(folder / "shards"));
  formats.push_back(std::make_unique<StateDict>(folder / "state-dict"));
  formats.push_back(std::make_unique<DistributedCheckpoint>(folder / "distributed"));
  formats.push_back(std::make_unique<DiffusersJson>());
  formats.push_back(std::make_unique<ImageConfig>());
}

}  // namespace trireme::hostile
