#include "trireme/base/machine/temperature.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(ProcessorTemperature, IsThatOfTheHottestSensorOfAProcessor) {
  const harness::TemporaryFolder sys;
  const fs::path monitors = sys / "class/hwmon";
  put(monitors / "hwmon0/name", "nvme\n");
  put(monitors / "hwmon0/temp1_input", "90000\n");
  put(monitors / "hwmon1/name", "coretemp\n");
  put(monitors / "hwmon1/temp1_input", "51000\n");
  put(monitors / "hwmon1/temp2_input", "62500\n");
  put(monitors / "hwmon1/temp3_input", "no number\n");
  put(monitors / "hwmon1/temp2_crit", "100000\n");
  EXPECT_EQ(ProcessorTemperature(sys.path()).read(), 62.5);
}

TEST(ProcessorTemperature, IsThatOfAThermalZoneWithoutSuchASensor) {
  const harness::TemporaryFolder sys;
  put(sys / "class/thermal/thermal_zone0/type", "acpitz\n");
  put(sys / "class/thermal/thermal_zone0/temp", "99000\n");
  put(sys / "class/thermal/thermal_zone1/type", "x86_pkg_temp\n");
  put(sys / "class/thermal/thermal_zone1/temp", "48000\n");
  EXPECT_EQ(ProcessorTemperature(sys.path()).read(), 48);
}

TEST(ProcessorTemperature, IsUnknownWhereNothingSaysIt) {
  const harness::TemporaryFolder sys;
  EXPECT_FALSE(ProcessorTemperature(sys.path()).read());
  put(sys / "class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
  put(sys / "class/thermal/thermal_zone0/temp", "999999999\n");
  EXPECT_FALSE(ProcessorTemperature(sys.path()).read());
}

TEST(ProcessorTemperature, IsReadAgainOnceItIsOld) {
  const harness::TemporaryFolder sys;
  const fs::path file = sys / "class/thermal/thermal_zone0/temp";
  put(sys / "class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
  put(file, "48000\n");
  ProcessorTemperature temperature(sys.path());
  EXPECT_EQ(temperature.read(1h), 48);
  put(file, "50000\n");
  EXPECT_EQ(temperature.read(1h), 48);
  EXPECT_EQ(temperature.read(0ms), 50);
}

}  // namespace
}  // namespace trireme
