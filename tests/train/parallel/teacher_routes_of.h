// Routes between data ranks and the copies of a teacher, for tests.
#pragma once

#include <cstddef>

#include "trireme/train/parallel/teacher_routes.h"

namespace trireme::train {

// Of data ranks with `readers` ranks each.
inline TeacherRoutes routes_of(int num_data, int readers, int num_copies, int ranks_per_copy = 1) {
  TeacherRoutes routes{.first_teacher = num_data * readers,
                       .num_copies = num_copies,
                       .ranks_per_copy = ranks_per_copy};
  for (int rank = 0; rank < routes.first_teacher; ++rank) {
    routes.data_ranks.push_back(rank / readers);
  }
  routes.data_ranks.resize(
      routes.data_ranks.size() + static_cast<size_t>(num_copies * ranks_per_copy), -1);
  return routes;
}

}  // namespace trireme::train
