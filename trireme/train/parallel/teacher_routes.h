// Which ranks ask which copy of a teacher that is on ranks of its own (remote_teacher.h).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::train {

// Who asks and who answers. The same on every rank of the world.
struct TeacherRoutes {
  int first_teacher = 0;   // the rank from which on ranks are teachers
  int num_copies = 1;      // of the teacher
  int ranks_per_copy = 1;  // neighbours
  // By rank: the data rank whose samples it learns from; -1: it reads no answers.
  std::vector<int64_t> data_ranks{};

  int64_t num_data() const;
  // The ranks that read a data rank's answers; the first one asks.
  std::vector<int> readers_of(int64_t data_rank) const;
  // The first rank of the copy that answers request `number`, from 0, of a data rank. Several data
  // ranks share a copy, or several copies take turns at one's requests.
  int teacher_of(int64_t data_rank, int64_t number) const;
  // The copies that a data rank asks, by their first ranks.
  std::vector<int> teachers_of(int64_t data_rank) const;
};

}  // namespace trireme::train
