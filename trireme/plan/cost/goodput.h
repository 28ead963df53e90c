// Predicts the goodput of a job on many devices: the share of its time that it spends in steps that
// are kept. Pure arithmetic.
// Source: Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006,
//         "A higher order estimate of the optimum checkpoint interval for restart dumps"
#pragma once

#include <cstdint>

namespace trireme::plan {

// Failures are independent, and as likely at any time: also during a save or a recovery.
struct FailureModel {
  int64_t num_devices = 1024;
  double device_mtbf_seconds = 0;  // mean time between failures of one device
  double interval_seconds = 0;     // of training between two checkpoints
  double save_seconds = 0;         // that training waits for a checkpoint
  double recovery_seconds = 0;     // from a failure to training again: detection, restart, loading

  double mtbf_seconds() const { return device_mtbf_seconds / static_cast<double>(num_devices); }
};

// tau / (M e^(R/M) (e^((tau+delta)/M) - 1)) with the job's mean time between failures M, the
// interval tau, the save delta and the recovery R (Daly's equation 20). Between 0 and 1.
// Throws: ConfigError when a number is negative or not finite, or when the devices, their MTBF or
//         the interval are not above 0
double goodput_of(const FailureModel& model);

// The interval with the best goodput: sqrt(2 delta M), with Daly's two terms of higher order, and M
// when a save takes longer than 2 M (his equation 37). 0 when a save takes no time.
// Throws: as goodput_of(), without regard to the interval
double best_interval_seconds(const FailureModel& model);

}  // namespace trireme::plan
