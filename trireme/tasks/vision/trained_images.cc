#include "trireme/tasks/vision/trained_images.h"

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::tasks {
namespace {

// A name of up to 255 bytes for each class, which JSON may write as six characters each.
constexpr JsonLimits kTrainedImagesLimits{
    .max_bytes = size_t{64} << 20, .max_values = size_t{1} << 21, .max_depth = 3};

}  // namespace

std::string to_json(const TrainedImages& images) {
  const nlohmann::ordered_json root = {{"channels", images.shape.channels},
                                       {"height", images.shape.height},
                                       {"width", images.shape.width},
                                       {"classes", images.classes}};
  // Names of folders need not be UTF-8.
  return root.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) + "\n";
}

TrainedImages read_trained_images(const std::filesystem::path& path) {
  const std::string source = path.string();
  const std::string text =
      dataset::as_config_error([&] { return read_file(path, kTrainedImagesLimits.max_bytes); });
  const nlohmann::json root = parse_json(text, source, kTrainedImagesLimits);
  const JsonView view(root, source);
  TrainedImages images{.shape = {.channels = view.at("channels").integer(1, 3),
                                 .height = view.at("height").integer(1, kMaxImageSize),
                                 .width = view.at("width").integer(1, kMaxImageSize)}};
  for (const JsonView& name : view.at("classes").elements()) images.classes.push_back(name.word());
  TRIREME_CHECK(!images.classes.empty() && std::ssize(images.classes) <= kMaxClasses, source,
                " has ", images.classes.size(), " classes; expected 1 to ", kMaxClasses);
  return images;
}

}  // namespace trireme::tasks
