#include "trireme/train/task/keys.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::train {

std::vector<Field> Keys::take() {
  std::vector<std::string> sections;  // in the order in which they began
  for (const Field& field : fields_) {
    const std::string section = field.section();
    if (std::ranges::count(sections, section) == 0) sections.push_back(section);
    TRIREME_CHECK(std::ranges::count(fields_, field.key, &Field::key) == 1, "the key ", field.key,
                  " is declared twice, in the task and outside of it; give it another name");
  }
  std::ranges::stable_sort(fields_, {}, [&](const Field& field) {
    return std::ranges::find(sections, field.section()) - sections.begin();
  });
  return std::move(fields_);
}

}  // namespace trireme::train
