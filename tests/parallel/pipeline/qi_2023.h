// What Qi et al. print, to hold our schedules against: times in milliseconds and bubble rates.
// Source: Qi et al. 2023, arXiv:2401.10241, table 5 (bubble rates; communication included) and
//         table 6 (ICLR 2024; table 9 on arXiv: the profiled times they were computed from)
#pragma once

namespace trireme::parallel {

struct QiRow {
  const char* model;
  int num_ranks, num_microbatches;
  double forward, backward_input, backward_weight, communication;
  double one_f_one_b, zb_h1, zb_1p, zb_2p;
};

inline constexpr QiRow kQiRows[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1585, 0.0433},
    {"1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.1242, 0.0039},
    {"1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0674, 0.0026},
    {"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323, 0.1323, 0.0029},
    {"6.2B", 8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045, 0.1045, 0.0022},
    {"6.2B", 8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554, 0.0554, 0.0010},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.1397, 0.0066},
    {"14.6B", 16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.1088, 0.1088, 0.0054},
    {"14.6B", 16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0576, 0.0576, 0.0028},
    {"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1421, 0.1421, 0.0038},
    {"28.3B", 32, 128, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1106, 0.1106, 0.0029},
    {"28.3B", 32, 256, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0594, 0.0594, 0.0018},
};

// A transformer block keeps sb(34h + 5as) bytes of activations for its backward and 32sbh for the
// weight part (their table 1): with their models' widths h, heads a and s = 1024 tokens about this
// share. Shares from 0.37 to 0.5 give the same rates.
inline constexpr double kQiKeptForWeight = 0.43;

}  // namespace trireme::parallel
