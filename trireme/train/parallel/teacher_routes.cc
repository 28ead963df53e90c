#include "trireme/train/parallel/teacher_routes.h"

#include <algorithm>
#include <cstddef>

namespace trireme::train {

int64_t TeacherRoutes::num_data() const {
  return data_ranks.empty() ? 0 : std::ranges::max(data_ranks) + 1;
}

std::vector<int> TeacherRoutes::readers_of(int64_t data_rank) const {
  std::vector<int> readers;
  for (size_t rank = 0; rank < data_ranks.size(); ++rank) {
    if (data_ranks[rank] == data_rank) readers.push_back(static_cast<int>(rank));
  }
  return readers;
}

int TeacherRoutes::teacher_of(int64_t data_rank, int64_t number) const {
  const int64_t data = num_data();
  const int64_t in_turn = num_copies / data;  // copies of one data rank
  const int64_t copy =
      in_turn > 0 ? data_rank * in_turn + number % in_turn : data_rank * num_copies / data;
  return first_teacher + static_cast<int>(copy) * ranks_per_copy;
}

std::vector<int> TeacherRoutes::teachers_of(int64_t data_rank) const {
  std::vector<int> teachers;
  for (int64_t i = 0; i < std::max<int64_t>(1, num_copies / num_data()); ++i) {
    teachers.push_back(teacher_of(data_rank, i));
  }
  return teachers;
}

}  // namespace trireme::train
