// Checks the keys of ranks that hold a teacher.
#include "trireme/base/error.h"
#include "trireme/train/config/config.h"

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
  const auto refuse = [&](bool is_set, const std::string& setting, const char* why,
                          const char* remedy) {
    TRIREME_CHECK(!is_set, "parallel.teachers is ", teachers, " and cannot be combined with ",
                  setting, ": ", why, "; ", remedy);
  };
  refuse(parallel.servers > 0, concat("parallel.servers = ", parallel.servers),
         "both take the last ranks", "set one of them to 0");
  refuse(parallel.automatic, "parallel.auto", "the planner does not place teachers",
         "set it to false");
  refuse(config.train.shares_interval > 0, "train.shares_interval",
         "teachers read the next step before shares change", "set it to 0");
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
