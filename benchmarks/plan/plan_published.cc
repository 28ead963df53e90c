// Compares the cost model with published measurements (docs/reference/planner-validation.md), and
// calibrates devices.
//
//   plan_published_benchmark FOLDER                 every table's errors
//   plan_published_benchmark FOLDER --rows          each row, as CSV: for plan_published.py
//   plan_published_benchmark FOLDER --choices       the planner's choices beside published layouts
//   plan_published_benchmark FOLDER --fit a100      fits a device's constants on every other row
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/plan/choices.h"
#include "benchmarks/plan/published.h"
#include "trireme/base/numbers.h"
#include "trireme/plan/step/step_prediction.h"

namespace trireme::benchmarks {
namespace {

struct Constant {
  const char* name;
  double plan::Device::*member;
  double least;
  double most;
};
constexpr Constant kConstants[] = {
    {"product_share", &plan::Device::product_share, 0.5, 0.87},
    {"half_size", &plan::Device::half_size, 10, 600},
    {"attention_share", &plan::Device::attention_share, 0.15, 0.8},
    {"memory_share", &plan::Device::memory_share, 0.3, 0.9},
    {"link_share", &plan::Device::link_share, 0.4, 0.9},
    {"network_share", &plan::Device::network_share, 0.45, 0.95},
    {"link_seconds", &plan::Device::link_seconds, 5e-6, 20e-6},
    {"network_seconds", &plan::Device::network_seconds, 10e-6, 50e-6},
    {"launch_seconds", &plan::Device::launch_seconds, 3e-6, 15e-6},
    {"step_seconds", &plan::Device::step_seconds, 5e-3, 0.1},
    {"overlap_cost", &plan::Device::overlap_cost, 0.05, 0.5},
    {"transfer_cost", &plan::Device::transfer_cost, 0.02, 1},
};

plan::StepPrediction predict(const PublishedRow& row) {
  return plan::predict_step(row.work, row.cluster, plan::stage_layout(row.work));
}

double error_of(const PublishedRow& row) {
  return predict(row).step_seconds() / row.step_seconds - 1;
}

// Rows with large tables count as much as small ones.
double mean_error(const std::vector<PublishedRow*>& rows) {
  std::map<std::string, std::pair<double, double>> tables;
  for (const PublishedRow* row : rows) {
    auto& [sum, count] = tables[row->table];
    sum += std::abs(std::log1p(error_of(*row)));
    count += 1;
  }
  double all = 0, weight = 0;
  for (const auto& [name, value] : tables) {
    const double w = std::sqrt(value.second);
    all += w * value.first / value.second;
    weight += w;
  }
  return all / weight;
}

void fit(std::vector<PublishedRow>& all, const std::string& family) {
  std::vector<PublishedRow*> rows;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_large = all[i].table == "vTrain, single" && i % 20 != 0;
    if (all[i].family == family && all[i].step_seconds > 0 && all[i].is_for_fit && !is_large)
      rows.push_back(&all[i]);
  }
  if (rows.empty()) return;
  double best = mean_error(rows);
  std::fprintf(stderr, "%zu rows, error %.4f\n", rows.size(), best);
  for (double factor : {1.3, 1.12, 1.04}) {
    for (int round = 0; round < 4; ++round) {
      const double before = best;
      for (const Constant& constant : kConstants) {
        for (const double by : {factor, 1 / factor}) {
          for (;;) {
            const double old = rows.front()->cluster.device.*constant.member;
            const double now = std::clamp(old * by, constant.least, constant.most);
            if (now == old) break;
            for (PublishedRow* row : rows) row->cluster.device.*constant.member = now;
            const double error = mean_error(rows);
            if (error < best - 1e-6) {
              best = error;
              continue;
            }
            for (PublishedRow* row : rows) row->cluster.device.*constant.member = old;
            break;
          }
        }
      }
      std::fprintf(stderr, "factor %.2f: %.4f\n", factor, best);
      if (before - best < 1e-4) break;
    }
  }
  for (const Constant& constant : kConstants) {
    const double value = rows.front()->cluster.device.*constant.member;
    std::printf("     .%s = %.4g,\n", constant.name, value);
    for (PublishedRow& row : all) {
      if (row.family == family) row.cluster.device.*constant.member = value;
    }
  }
}

struct Errors {
  std::vector<double> all{}, held_out{};
};

double mean_of_absolute(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::abs(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

void report(const std::vector<PublishedRow>& rows, bool shows_rows) {
  if (shows_rows) {
    std::printf("table,device,row,fitted,seconds,predicted,gib,predicted_gib,oom,fits\n");
  }
  std::map<std::string, Errors> tables;
  for (const PublishedRow& row : rows) {
    const plan::StepPrediction step = predict(row);
    const double error = row.step_seconds > 0 ? step.step_seconds() / row.step_seconds - 1 : NAN;
    if (shows_rows) {
      std::printf("%s,%s,%s,%d,%.4f,%.4f,%.2f,%.2f,%d,%d\n", row.table.c_str(),
                  row.cluster.device.name.data(), row.name.c_str(), row.is_for_fit ? 1 : 0,
                  row.step_seconds, step.step_seconds(), row.memory_bytes / (1 << 30),
                  step.memory.total() / (1 << 30), row.is_out_of_memory ? 1 : 0,
                  step.fits() ? 1 : 0);
      continue;
    }
    if (std::isnan(error)) continue;
    Errors& of = tables[row.table + ", " + row.family];
    of.all.push_back(error);
    if (!row.is_for_fit) of.held_out.push_back(error);
  }
  if (shows_rows) return;
  std::printf("%-36s %5s %9s %9s %9s\n", "table", "rows", "MAE", "held out", "median");
  std::vector<double> every;
  for (auto& [name, errors] : tables) {
    std::printf("%-36s %5zu %8.1f%% %8.1f%% %+8.1f%%\n", name.c_str(), errors.all.size(),
                100 * mean_of_absolute(errors.all), 100 * mean_of_absolute(errors.held_out),
                100 * median(errors.all));
    if (name.find("single") == name.npos) {
      every.insert(every.end(), errors.all.begin(), errors.all.end());
    }
  }
  std::printf("%-36s %5zu %8.1f%%\n", "all but vTrain, single", every.size(),
              100 * mean_of_absolute(every));
}

}  // namespace
}  // namespace trireme::benchmarks

int main(int argc, char** argv) {
  using namespace trireme::benchmarks;
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: plan_published_benchmark FOLDER [--rows | --choices] [--fit FAMILY]\n");
    return 2;
  }
  std::vector<PublishedRow> rows = read_published(argv[1]);
  bool shows_rows = false, shows_choices = false;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rows") == 0) shows_rows = true;
    if (std::strcmp(argv[i], "--choices") == 0) shows_choices = true;
    if (std::strcmp(argv[i], "--fit") == 0 && i + 1 < argc) fit(rows, argv[++i]);
  }
  if (shows_choices) {
    print_choices(rows);
    print_picks(rows);
    return 0;
  }
  report(rows, shows_rows);
}
