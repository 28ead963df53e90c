// The use of a model's experts as a picture.
#pragma once

#include <string>
#include <vector>

namespace trireme::tasks::inline internal {

// One sparse block's row.
struct ExpertLoad {
  int64_t layer = 0;               // number in the whole model
  std::vector<double> of_experts;  // tokens over their mean, 1: an even share
};

// A heat map of blocks x experts as SVG. Orange: less than an even share, blue: more.
std::string draw_experts(const std::vector<ExpertLoad>& blocks, const std::string& title);

}  // namespace trireme::tasks::inline internal
