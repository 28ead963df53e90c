#include "trireme/cli/plan/sweep.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/patterns.h"
#include "trireme/base/svg.h"
#include "trireme/base/words.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/plan/learner_plan.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

constexpr size_t kMostPoints = 256;

// The overrides that set the sweep's key to a value. The batch of a weak scaling grows in
// proportion, from `first_batch` for the first value on.
std::vector<std::string> overrides_of(const CaseFiles& files, const std::string& key,
                                      const std::string& value, const std::string& first,
                                      int64_t first_batch) {
  std::vector<std::string> all = files.overrides;
  if (key != "weak") {
    all.push_back(concat("--", key == "nodes" ? "cluster.nodes" : key, "=", value));
    return all;
  }
  const int64_t nodes = std::atoll(value.c_str()), base = std::atoll(first.c_str());
  TRIREME_CHECK(base > 0 && nodes > 0, "--sweep weak=", shown(value),
                "; expected numbers of nodes");
  all.push_back(concat("--cluster.nodes=", nodes));
  all.push_back(concat("--train.global_batch=", first_batch * nodes / base));
  return all;
}

SweepPoint predict_at(const CaseFiles& files, const std::string& value,
                      const std::vector<std::string>& overrides) {
  SweepPoint point{.value = value};
  PlanningCase planning = load_case(files.config, files.cluster, overrides);
  try {
    plan::Workload work = resolve_on(planning.config, planning.cluster.num_devices());
    set_offload(planning.config.offload, work, planning.cluster);
    point.step =
        predict_run(planning.config, work, planning.cluster, runtime_stages(planning.config)).step;
  } catch (const ConfigError& error) {
    point.refusal = error.what();
  }
  return point;
}

// The sweep's rates as a drawing: a place for each value, and an axis from zero.
class Plot {
 public:
  explicit Plot(const Sweep& sweep) : sweep_(sweep) {
    for (const SweepPoint& point : sweep.points) {
      if (!point.refusal.empty()) continue;
      if (first_ == nullptr) first_ = &point;
      by_devices_ = by_devices_ || point.step.num_devices != first_->step.num_devices;
      most_ = std::max(most_, point.step.tokens_per_second());
    }
    TRIREME_CHECK(first_ != nullptr, "--svg: none of the sweep's points can run");
    for (const SweepPoint& point : sweep.points) {
      if (by_devices_ && point.refusal.empty()) most_ = std::max(most_, in_proportion(point));
    }
    tick_ = tick_step(most_);
  }

  std::string text() const {
    SvgFile out;
    out.text(360, 18, "predicted tokens per second", "middle");
    draw_axis(out);
    if (by_devices_) draw_lines(out, "#aaa", R"(stroke-dasharray="4 3")", &Plot::in_proportion);
    draw_lines(out, "#1f5fa8", R"(stroke-width="2")", &Plot::rate);
    for (size_t i = 0; i < sweep_.points.size(); ++i) draw_point(out, i);
    draw_legend(out);
    const bool is_weak = sweep_.key == "weak";
    out.text(380, 392, is_weak ? "nodes, the batch in proportion" : printable(sweep_.key),
             "middle");
    return out.finish(720, 400);
  }

 private:
  double rate(const SweepPoint& point) const { return point.step.tokens_per_second(); }
  double in_proportion(const SweepPoint& point) const {
    return rate(*first_) * static_cast<double>(point.step.num_devices) /
           static_cast<double>(first_->step.num_devices);
  }
  double x(size_t i) const {
    return 80 + 620 * (static_cast<double>(i) + 0.5) / static_cast<double>(sweep_.points.size());
  }
  double y(double rate) const { return 350 - 310 * rate / most_; }

  void draw_axis(SvgFile& out) const {
    for (int i = 0; i * tick_ <= most_ * 1.001; ++i) {
      const double value = i * tick_;
      out.line(80, y(value), 700, y(value), "#e5e5e5");
      out.text(74, y(value) + 4, human_count(value), "end", R"(class="tick")");
    }
    out.path("M80 40V350H700", "#888");
  }

  // From each point that can run to the next.
  void draw_lines(SvgFile& out, const char* stroke, const char* attributes,
                  double (Plot::*value)(const SweepPoint&) const) const {
    std::string path;
    for (size_t i = 0; i < sweep_.points.size(); ++i) {
      if (!sweep_.points[i].refusal.empty()) continue;
      path += format("%s%.1f %.1f", path.empty() ? "M" : "L", x(i),
                     y((this->*value)(sweep_.points[i])));
    }
    out.path(path, stroke, attributes);
  }

  void draw_point(SvgFile& out, size_t i) const {
    const SweepPoint& point = sweep_.points[i];
    const auto label = [&](double at, const std::string& text, const char* color) {
      out.text(x(i), at, printable(text), "middle", concat("fill=\"", color, '"'));
    };
    label(366, point.value, "#333");
    if (!point.refusal.empty()) {
      label(345, "cannot run", "#b3261e");
      return;
    }
    const bool fits = point.step.fits();
    const double at = y(rate(point));
    out.circle(x(i), at, 4,
               fits ? R"(class="fits" fill="#1f5fa8" stroke="#1f5fa8" stroke-width="2")"
                    : R"(class="too-large" fill="white" stroke="#b3261e" stroke-width="2")");
    label(at < 60 ? at + 20 : at - 10, human_count(rate(point)), fits ? "#333" : "#b3261e");
  }

  void draw_legend(SvgFile& out) const {
    double at = 40;
    const auto line = [&](const char* text, const char* color) {
      out.text(92, at, text, "start", concat("fill=\"", color, '"'));
      at += 16;
    };
    if (by_devices_) line("- - in proportion to the devices", "#888");
    const bool has_large = std::ranges::any_of(sweep_.points, [](const SweepPoint& point) {
      return point.refusal.empty() && !point.step.fits();
    });
    if (has_large) line("o does not fit the memory", "#b3261e");
  }

  const Sweep& sweep_;
  const SweepPoint* first_ = nullptr;  // that can run
  bool by_devices_ = false;
  double most_ = 0;
  double tick_ = 1;
};

}  // namespace

std::string Sweep::table() const {
  TextWriter out;
  out << format("%-18s %8s %11s %12s %9s %6s %8s %10s\n", key.c_str(), "devices", "step",
                "tokens/s", "TFLOP/s", "MFU", "bubble", "memory");
  for (const SweepPoint& point : points) {
    if (!point.refusal.empty()) {
      out << format("%-18s ", printable(point.value).c_str()) << printable(point.refusal) << "\n";
      continue;
    }
    const plan::StepPrediction& step = point.step;
    out << format("%-18s %8lld %9.3f s %12s %9.1f %5.1f%% %7.1f%% %10s%s\n",
                  printable(point.value).c_str(), static_cast<long long>(step.num_devices),
                  step.step_seconds(), human_count(step.tokens_per_second()).c_str(),
                  step.flops_per_device() / 1e12, 100 * step.flops_per_device() / step.peak,
                  100 * step.bubble_fraction, human_bytes(step.memory.total()).c_str(),
                  step.fits() ? "" : " (does not fit)");
  }
  return out.str();
}

std::string Sweep::csv() const {
  TextWriter out;
  out << key
      << ",devices,step_seconds,tokens_per_second,tflops_per_device,mfu,bubble_fraction,"
         "exposed_communication_fraction,peak_memory_bytes,fits\n";
  for (const SweepPoint& point : points) {
    if (!point.refusal.empty()) continue;
    const plan::StepPrediction& step = point.step;
    out << point.value << "," << step.num_devices << "," << step.step_seconds() << ","
        << step.tokens_per_second() << "," << step.flops_per_device() / 1e12 << ","
        << step.flops_per_device() / step.peak << "," << step.bubble_fraction << ","
        << step.seconds.communication() / step.step_seconds() << "," << step.memory.total() << ","
        << (step.fits() ? 1 : 0) << "\n";
  }
  return out.str();
}

std::string Sweep::svg() const { return Plot(*this).text(); }

nlohmann::json Sweep::json() const {
  nlohmann::json all = nlohmann::json::array();
  for (const SweepPoint& point : points) {
    nlohmann::json one = point.refusal.empty() ? to_json(point.step) : nlohmann::json::object();
    if (!point.refusal.empty()) one["error"] = point.refusal;
    one[key] = point.value;
    all.push_back(std::move(one));
  }
  return all;
}

Sweep run_sweep(const CaseFiles& files, const std::string& spec) {
  const size_t equals = spec.find('=');
  TRIREME_CHECK(equals != spec.npos && equals > 0, "--sweep is \"", shown(spec),
                "\"; expected a key and its values, such as nodes=1,2,4,8");
  Sweep sweep{.key = spec.substr(0, equals)};
  const std::vector<std::string> values = split_list(spec.substr(equals + 1), ',');
  TRIREME_CHECK(!values.empty() && values.size() <= kMostPoints, "--sweep ", shown(sweep.key),
                " has ", values.size(), " values; expected 1 to ", kMostPoints);
  const int64_t first_batch =
      sweep.key == "weak"
          ? load_case(files.config, files.cluster, files.overrides).config.train.global_batch
          : 0;
  for (const std::string& value : values) {
    sweep.points.push_back(predict_at(
        files, value, overrides_of(files, sweep.key, value, values.front(), first_batch)));
  }
  return sweep;
}

}  // namespace trireme::cli
