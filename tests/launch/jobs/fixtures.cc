#include "tests/launch/jobs/fixtures.h"

#include <fstream>

#include <gtest/gtest.h>

namespace trireme::launch {

Variables fixture(const std::string& name) {
  const std::string folder = TRIREME_JOB_FIXTURES;
  std::ifstream file(folder + "/" + name + ".env");
  Variables variables;
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  EXPECT_FALSE(variables.empty()) << name;
  for (const char* variable : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
    if (variables.contains(variable)) variables[variable] = folder + "/" + variables[variable];
  }
  if (variables.contains("OMPI_MCA_initial_wdir")) variables["OMPI_MCA_initial_wdir"] = folder;
  return variables;
}

}  // namespace trireme::launch
