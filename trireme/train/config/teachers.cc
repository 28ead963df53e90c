// Checks the keys of ranks that hold a teacher.
#include "trireme/base/error.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/setting_rules.h"

namespace trireme::train {

void check_teachers(const RunConfig& config, int num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t teachers = parallel.teachers, tensor = parallel.teacher_tensor;
  if (teachers == 0) {
    TRIREME_CHECK(tensor == 1, "parallel.teacher_tensor is ", tensor,
                  " without parallel.teachers; set parallel.teachers, for example to ", tensor,
                  ", or leave it out");
    return;
  }
  const SettingRule rules[] = {
      {concat("parallel.servers = ", parallel.servers), parallel.servers > 0,
       "both take the last ranks", "set one of them to 0"},
      {"parallel.auto", parallel.automatic, "the planner does not place teachers",
       "set it to false"},
      {"train.shares_interval", config.train.shares_interval > 0,
       "teachers read the next step before shares change", "set it to 0"}};
  refuse_settings(concat("parallel.teachers is ", teachers, " and cannot be combined with"), rules);
  TRIREME_CHECK(teachers < num_ranks, "parallel.teachers is ", teachers, " of ", num_ranks,
                num_ranks == 1 ? " rank" : " ranks", ", which leaves none that trains; start ",
                teachers + 1, " ranks or more");
  TRIREME_CHECK(teachers % tensor == 0, "parallel.teacher_tensor is ", tensor,
                ", which does not divide parallel.teachers = ", teachers,
                "; set it to a divisor, or change parallel.teachers");
}

void check_teacher_copies(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.teachers == 0) return;
  const int64_t copies = parallel.teachers / parallel.teacher_tensor;
  const int64_t data = sample_ranks(parallel);
  TRIREME_CHECK(data % copies == 0 || copies % data == 0, "parallel.teachers is ",
                parallel.teachers, ", which makes ", copies, " copies of the teacher for ", data,
                " data ranks; expected a divisor or a multiple of the data ranks: change "
                "parallel.teachers or parallel.data");
}

}  // namespace trireme::train
