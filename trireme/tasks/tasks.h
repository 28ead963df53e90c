// The tasks that the program `trireme` offers. A new task adds its folder and one line in tasks.cc.
#pragma once

#include "trireme/train/task/task.h"

namespace trireme::tasks {

train::TaskTable all_tasks();

}  // namespace trireme::tasks
