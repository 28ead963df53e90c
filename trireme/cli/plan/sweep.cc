#include "trireme/cli/plan/sweep.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/printable.h"
#include "trireme/train/optimizer/name_pattern.h"

namespace trireme::cli::inline internal {
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
    const plan::Workload work = resolve_on(planning.config, planning.cluster.num_devices());
    point.step = predict_step(work, planning.cluster, runtime_stages(planning.config));
  } catch (const ConfigError& error) {
    point.refusal = error.what();
  }
  return point;
}

// A logarithmic plot of the sweep's rates.
class Plot {
 public:
  explicit Plot(const Sweep& sweep) {
    for (const SweepPoint& point : sweep.points) {
      if (!point.refusal.empty()) continue;
      points_.push_back({static_cast<double>(point.step.num_devices),
                         point.step.tokens_per_second(), point.value});
    }
    TRIREME_CHECK(!points_.empty(), "--svg: none of the sweep's points can run");
    by_devices_ = points_.front().x != points_.back().x;
    for (size_t i = 0; !by_devices_ && i < points_.size(); ++i) points_[i].x = std::exp2(i);
  }

  std::string text(const std::string& key) const {
    std::ostringstream out;
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" width=\"720\" "
           "height=\"400\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">"
           "<rect width=\"720\" height=\"400\" fill=\"white\"/>"
        << "<text x=\"360\" y=\"18\" text-anchor=\"middle\">predicted tokens per second</text>";
    const Point& first = points_.front();
    if (by_devices_) {
      const Point ideal{points_.back().x, first.y * points_.back().x / first.x, ""};
      out << line(first, ideal, "#aaa\" stroke-dasharray=\"4 3") << "<text x=\"680\" y=\""
          << y(ideal.y) - 6 << "\" text-anchor=\"end\" fill=\"#888\">in proportion</text>";
    }
    for (size_t i = 0; i < points_.size(); ++i) {
      const Point& point = points_[i];
      if (i > 0) out << line(points_[i - 1], point, "#1f5fa8\" stroke-width=\"2");
      out << "<circle cx=\"" << x(point.x) << "\" cy=\"" << y(point.y)
          << "\" r=\"3\" fill=\"#1f5fa8\"/><text x=\"" << x(point.x) << "\" y=\"" << y(point.y) + 18
          << "\" text-anchor=\"middle\">" << human_count(point.y) << "</text><text x=\""
          << x(point.x) << "\" y=\"372\" text-anchor=\"middle\">" << escaped(point.label)
          << "</text>";
    }
    out << "<path d=\"M60 355H700\" stroke=\"#ccc\"/><text x=\"360\" y=\"392\" "
           "text-anchor=\"middle\">"
        << escaped(key == "weak" ? "nodes, the batch in proportion" : key) << "</text></svg>\n";
    return out.str();
  }

 private:
  struct Point {
    double x;
    double y;
    std::string label;
  };

  static std::string escaped(const std::string& text) {
    std::string safe;
    for (const char c : printable(text)) {
      safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    }
    return safe;
  }

  static double place(double value, double least, double most, double from, double to) {
    if (most <= least) return (from + to) / 2;
    return from + (to - from) * std::log(value / least) / std::log(most / least);
  }
  double x(double value) const {
    return place(value, points_.front().x, points_.back().x, 70, 680);
  }
  double y(double value) const {
    double least = points_.front().y, most = least;
    for (const Point& point : points_) {
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
    if (by_devices_) {
      most = std::max(most, points_.front().y * points_.back().x / points_.front().x);
    }
    return place(value, least, most, 330, 40);
  }
  std::string line(const Point& a, const Point& b, const std::string& style) const {
    std::ostringstream out;
    out << "<path d=\"M" << x(a.x) << " " << y(a.y) << "L" << x(b.x) << " " << y(b.y)
        << "\" fill=\"none\" stroke=\"" << style << "\"/>";
    return out.str();
  }

  std::vector<Point> points_;
  bool by_devices_ = false;
};

}  // namespace

std::string Sweep::table() const {
  std::ostringstream out;
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
  std::ostringstream out;
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

std::string Sweep::svg() const { return Plot(*this).text(key); }

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
  const std::vector<std::string> values = train::split_list(spec.substr(equals + 1), ',');
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

}  // namespace trireme::cli::inline internal
