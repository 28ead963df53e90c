#include "trireme/tasks/vision/image_model.h"

#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {

std::unique_ptr<ImageModel> make_image_model(const ImageProblem& problem) {
  switch (problem.config.model.family) {
    case ImageFamily::kVit: return make_vit_model(problem);
    case ImageFamily::kResNet18:
    case ImageFamily::kResNet34:
    case ImageFamily::kResNet50: return make_resnet_model(problem);
  }
  TRIREME_ASSERT(false, "a model of no family");
}

}  // namespace trireme::tasks::inline internal
