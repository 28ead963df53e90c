// Drawings of a timeline: one row per rank, time to the right.
#pragma once

#include <string>

#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {

struct TextDrawing {
  int width = 100;     // columns; what does not fit continues in another band of rows
  bool color = false;  // ANSI escapes instead of fill characters
};
// F forward, B backward, I its input part, W its weight part, each with its microbatch; '.' is
// idle. If a rank has several stages, a letter tells which.
//   rank 0  F0-F1-....B0---F2-B1---
std::string draw_text(const Schedule& schedule, const Timeline& timeline,
                      const TextDrawing& options = {});

struct SvgDrawing {
  int width = 1200;        // pixels
  std::string title = "";  // above the rows
  std::string unit = "";   // of the times: "ms"
};
// A complete SVG file with a legend. Each action's title says what it is and when it runs.
std::string draw_svg(const Schedule& schedule, const Timeline& timeline,
                     const SvgDrawing& options = {});

}  // namespace trireme::parallel
