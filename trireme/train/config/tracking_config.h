// Section [tracking] of a config: servers that follow a run.
#pragma once

#include <string>

#include "trireme/base/key.h"

namespace trireme::train {

struct TrackingConfig {
  TRIREME_KEYS_BEGIN(TrackingConfig)
  TRIREME_KEY(std::string, mlflow, "", kMayChange,
              "address of an MLflow server that gets the run while it trains, such as "
              "http://127.0.0.1:5000; secrets come from MLFLOW_TRACKING_TOKEN, or "
              "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; empty = none")
  TRIREME_KEY(std::string, experiment, "trireme", kMayChange,
              "the run's experiment at the server, which is made if it is missing")
  TRIREME_KEY(std::string, run_name, "", kMayChange,
              "the run's name at the server; empty = the name of output.folder")
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
