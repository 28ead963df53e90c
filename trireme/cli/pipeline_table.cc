#include "trireme/cli/pipeline_table.h"

#include "trireme/cli/console.h"

namespace trireme::cli::inline internal {

std::vector<std::string> pipeline_table(const parallel::Schedule& schedule,
                                        const parallel::PipelineTimes& times,
                                        const std::vector<double>& moving) {
  std::vector<std::string> lines;
  lines.push_back(format("  %5s  %4s  %9s  %10s  %11s  %10s  %9s", "stage", "rank", "computing",
                         "forward ms", "backward ms", "waiting ms", "moving ms"));
  for (size_t stage = 0; stage < times.stages.size(); ++stage) {
    const int place = schedule.rank_of_stage[stage];
    const auto rank = static_cast<size_t>(place);
    const parallel::StageCosts& costs = times.stages[stage];
    std::string line = format("  %5zu  %4d  %7.1f %%  %10.3f  %11.3f", stage, place,
                              100 * times.stage_shares[stage], 1e3 * costs.forward,
                              1e3 * (costs.backward_input + costs.backward_weight));
    // Once per rank, however many stages it has.
    if (schedule.chunk_of(static_cast<int>(stage)) == 0) {
      line += format("  %10.3f", 1e3 * times.waiting[rank]);
      line += moving.empty() ? format("  %9s", "-") : format("  %9.3f", 1e3 * moving[rank]);
    }
    lines.push_back(std::move(line));
  }
  lines.push_back(
      "  forward and backward of a microbatch; waiting and moving of a rank's whole step");
  lines.push_back(
      format("  bubble %.1f %%; of the schedule with these times %.1f %%, with even stages %.1f %%",
             100 * times.bubble, 100 * times.schedule_bubble, 100 * times.even_bubble));
  return lines;
}

}  // namespace trireme::cli::inline internal
