// Finds the choices of variables with the least sum of costs, where a cost depends on one variable
// or on two. Exact by elimination where tables stay small; otherwise with a bound that says how far
// from the least sum the result can be.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::plan {

struct MinSum {
  struct Table {
    int rows = 0;
    int columns = 1;
    std::vector<double> costs{};  // [rows, columns]

    double at(int row, int column) const {
      return costs[static_cast<size_t>(row) * static_cast<size_t>(columns) +
                   static_cast<size_t>(column)];
    }
  };
  struct Edge {
    int a = 0;  // a variable, the table's rows
    int b = 0;  // another, its columns
    int table = 0;
  };
  std::vector<Table> tables{};
  std::vector<int> variables{};  // the table of each one's own costs, with one column
  std::vector<Edge> edges{};     // costs between the same two variables add up

  double cost_of(const std::vector<int>& choices) const;
};

struct MinSumResult {
  std::vector<int> choices{};
  double cost = 0;
  double bound = 0;  // no choices cost less
};

// most_entries: of the tables of one elimination, all together; above it the result may be inexact
// Equal subproblems that refer to the same tables are solved once: blocks of a model that are alike
// cost as one.
// Source: Bertele & Brioschi 1972, "Nonserial Dynamic Programming" (elimination);
//         Kolmogorov 2006, doi:10.1109/TPAMI.2006.200 (the bound, by which choices are left out)
MinSumResult minimise(const MinSum& problem, double most_entries = 5e7);

}  // namespace trireme::plan
