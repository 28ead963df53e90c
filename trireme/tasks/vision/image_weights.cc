#include "trireme/tasks/vision/image_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/tasks/vision/image_configs.h"
#include "trireme/tasks/vision/image_names.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, checkpoint::SourceTensor>;

constexpr const char* kImageConfigFile = "config.json";
constexpr size_t kMaxImageConfigBytes = size_t{64} << 20;
// The files of a folder without a config.
constexpr const char* kStateDictFiles[] = {"model.safetensors", "pytorch_model.bin"};
// Of torchvision's names, the one by which a state_dict within another is found.
constexpr std::string_view kFirstBlock = "layer1.0.conv1.weight";
// A counter that only a norm without momentum reads.
constexpr std::string_view kCounter = "num_batches_tracked";

bool is_state_dict(const fs::path& path) {
  if (is_file(path)) return true;
  return !is_file(path / "manifest.json") &&
         std::ranges::any_of(kStateDictFiles,
                             [&](const char* name) { return is_file(path / name); });
}

// "layer3.10.conv1.weight" has group 3 and block 10.
std::optional<std::pair<size_t, int64_t>> block_of_resnet(std::string_view name) {
  constexpr std::string_view kGroup = "layer";
  constexpr size_t kDot = kGroup.size() + 1;
  if (!name.starts_with(kGroup) || name.size() <= kDot || name[kDot] != '.') return std::nullopt;
  const char group = name[kGroup.size()];
  int64_t block = -1;
  std::from_chars(name.data() + kDot + 1, name.data() + name.size(), block);
  if (group < '1' || group > '4' || block < 0) return std::nullopt;
  return std::pair(static_cast<size_t>(group - '1'), block);
}

// The family whose blocks the names have.
ImageFamily family_of_names(const fs::path& path, const Tensors& tensors,
                            const std::string& prefix) {
  std::array<std::set<int64_t>, 4> blocks;
  ResNetShape shape;
  for (const auto& [stored, tensor] : tensors) {
    if (!stored.starts_with(prefix)) continue;
    const std::string name = stored.substr(prefix.size());
    if (const auto found = block_of_resnet(name)) blocks[found->first].insert(found->second);
    shape.is_bottleneck |= name == "layer1.0.conv3.weight";
  }
  for (const auto& group : blocks) shape.depths.push_back(std::ssize(group));
  if (const auto family = find_resnet(shape)) return *family;
  throw ConfigError(concat(path.string(), " has tensors of a ResNet with groups of ",
                           shape.depths[0], ", ", shape.depths[1], ", ", shape.depths[2], " and ",
                           shape.depths[3], shape.is_bottleneck ? " bottlenecks" : " blocks",
                           "; expected those of a ResNet-18, 34, 50, 101 or 152"));
}

std::string find_prefix(const fs::path& path, const Tensors& tensors) {
  std::set<std::string> prefixes;
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with(kFirstBlock)) continue;
    const std::string prefix = name.substr(0, name.size() - kFirstBlock.size());
    if (prefix.empty() || prefix.ends_with('.')) prefixes.insert(prefix);
  }
  TRIREME_CHECK(!prefixes.empty(), path.string(),
                " has no config.json and no tensors with the names of torchvision's ResNets, such "
                "as ",
                kFirstBlock, "; expected a run, a folder with config.json, or such a state_dict");
  if (prefixes.size() > 1)
    throw CheckpointError(concat(path.string(), " has several models",
                                 listed("names that one begins with", prefixes),
                                 "; save only one of them"));
  return *prefixes.begin();
}

std::string_view head_of(const ForeignImageConfig& config) {
  if (config.model.family == ImageFamily::kVit) return "classifier.weight";
  return config.names == ResNetNames::kTransformers ? "classifier.1.weight" : "fc.weight";
}

// The tensors decide; a config that says another number was not theirs.
void settle_classes(const fs::path& path, ForeignImages& images) {
  const std::string head = concat(images.prefix, head_of(images.config));
  const auto found = images.tensors->tensors().find(head);
  const bool is_matrix =
      found != images.tensors->tensors().end() && found->second.shape.size() == 2;
  if (!is_matrix)
    throw CheckpointError(concat(path.string(), " has no matrix ", head,
                                 ", the head of a classifier; save the whole model"));
  const int64_t rows = found->second.shape.front();
  int64_t& classes = images.config.vit.classes;
  TRIREME_CHECK(classes == 0 || classes == rows, path.string(), ": its config has ", classes,
                " classes and ", head, " has ", rows, "; save the model again");
  classes = rows;
}

std::vector<model::HuggingFaceTensor> named_tensors(const ForeignImageConfig& config,
                                                    const ImageProblem& of_run) {
  ImageProblem problem = of_run;
  problem.config.model = config.model;
  problem.config.vit = config.vit;
  const auto plan = make_image_model(problem)->parameters({});
  if (config.model.family == ImageFamily::kVit) return own_tensors(plan);
  return config.names == ResNetNames::kTransformers ? hf_resnet_tensors(plan)
                                                    : resnet_tensors(plan);
}

}  // namespace

std::optional<ForeignImages> open_foreign_images(const fs::path& path) {
  const fs::path file = path / kImageConfigFile;
  ForeignImages images;
  if (is_file(file)) {
    images.config =
        parse_foreign_image_config(read_file(file, kMaxImageConfigBytes), file.string());
    images.tensors = checkpoint::open_tensors(path);
  } else if (is_state_dict(path)) {
    images.tensors = checkpoint::open_tensors(path);
    const Tensors& tensors = images.tensors->tensors();
    images.prefix = find_prefix(path, tensors);
    images.config.model.family = family_of_names(path, tensors, images.prefix);
  } else {
    return std::nullopt;
  }
  settle_classes(path, images);
  return images;
}

void require_same_model(const fs::path& path, const ForeignImageConfig& found,
                        const ImageProblem& problem) {
  const auto same = [&](std::string_view key, const auto& own, const auto& theirs) {
    TRIREME_CHECK(own == theirs, key, " is ", own, ", and by ", path.string(), " it is ", theirs,
                  "; leave it out or set it to that");
  };
  const VisionConfig& own = problem.config;
  same("model.family", name_of(kImageFamilies, own.model.family),
       name_of(kImageFamilies, found.model.family));
  if (found.model.family != ImageFamily::kVit) {
    same("model.stem", name_of(kResNetStems, own.model.stem),
         name_of(kResNetStems, found.model.stem));
    return;
  }
  visit_keys<model::VitConfig>([&](const auto& key) {
    const std::string_view name = key.name;
    if (name == "classes" || name == "dropout") return;  // of a new head, and of training only
    same(concat("model.", name), own.vit.*key.member, found.vit.*key.member);
  });
  // Gradients that another program recorded are read before the data are open.
  const auto& [channels, height, width] = problem.shape;
  TRIREME_CHECK(height == 0 || height == found.vit.image_size, "the images are ", height, " x ",
                width, " pixels, and by ", path.string(), " they have ", found.vit.image_size,
                "; set data.image_size to that");
}

ImageWeights::ImageWeights(const fs::path& path, ForeignImages images, const ImageProblem& problem)
    : path_(path), images_(std::move(images)) {
  const Tensors& source = images_.tensors->tensors();
  std::set<std::string> wanted, missing, unexpected, different;
  for (const model::HuggingFaceTensor& tensor : named_tensors(images_.config, problem)) {
    const std::string name = concat(images_.prefix, tensor.name);
    wanted.insert(name);
    const auto found = source.find(name);
    if (found == source.end()) {
      missing.insert(name);
      continue;
    }
    const auto& [dtype, shape] = found->second;
    if (shape != tensor.shape || !c10::isFloatingType(dtype)) {
      different.insert(concat(name, " is ", c10::toString(dtype), " ", at::IntArrayRef(shape),
                              " and should be ", at::IntArrayRef(tensor.shape)));
    }
    stored_[tensor.parts.front()] = name;
    tensors_[tensor.parts.front()] = found->second;
  }
  for (const auto& [name, tensor] : source) {
    if (wanted.contains(name) || name.ends_with(kCounter)) continue;
    if (name.starts_with(images_.prefix)) {
      unexpected.insert(name);
    } else {
      ++num_beside_;
    }
  }
  if (missing.empty() && unexpected.empty() && different.empty()) return;
  throw CheckpointError(concat(
      path_.string(), " is not the ", name_of(kImageFamilies, images_.config.model.family),
      " that its names or config.json say", listed("missing", missing),
      listed("unexpected", unexpected), listed("with a different shape or dtype", different)));
}

at::Tensor ImageWeights::read(const std::string& name) const {
  const auto found = stored_.find(name);
  if (found == stored_.end())
    throw CheckpointError(concat(path_.string(), " has no tensor of the parameter \"", name, "\""));
  at::Tensor values = images_.tensors->read(found->second);
  train::require_finite(values, found->second, path_);
  return values;
}

int64_t ImageWeights::num_rounded(c10::ScalarType dtype) const {
  return std::ranges::count_if(tensors_, [&](const auto& item) {
    return at::promote_types(item.second.dtype, dtype) != dtype;
  });
}

}  // namespace trireme::tasks
