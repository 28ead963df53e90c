// What a checkpoint has in place of a rank's own tensors, where its ranks train more than one set
// of weights.
#pragma once

#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/state/step_part.h"

namespace trireme::train {

// Every function is collective over the ranks that save together.
class SavedForm {
 public:
  virtual ~SavedForm() = default;

  // own: what TrainingState would save
  virtual std::vector<checkpoint::Entry> to_save(std::vector<checkpoint::Entry> own) = 0;
  // own: what TrainingState would load. The result's finish() comes before that of its parts.
  virtual PartLoad to_load(std::vector<checkpoint::Entry> own,
                           const checkpoint::Summary& saved) = 0;
  // When a run begins with the weights that there are now.
  virtual void begin() = 0;
};

// Tensors of a checkpoint whose names begin so are of learners, and ignored in other runs.
inline constexpr const char* kLearnerPrefix = "learners.";

}  // namespace trireme::train
