#include "trireme/tasks/tasks.h"

#include "trireme/tasks/diffusion/diffusion.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/vision/vision.h"

namespace trireme::tasks {
namespace {

constexpr train::TaskKind kTasks[] = {
    kLanguage,
    kVision,
    kDiffusion,
    kRecommend,
};

}  // namespace

train::TaskTable all_tasks() { return kTasks; }

}  // namespace trireme::tasks
