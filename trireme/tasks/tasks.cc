#include "trireme/tasks/tasks.h"

#include "trireme/tasks/language/language.h"

namespace trireme::tasks {
namespace {

constexpr train::TaskKind kTasks[] = {
    kLanguage,
};

}  // namespace

train::TaskTable all_tasks() { return kTasks; }

}  // namespace trireme::tasks
