#include "trireme/launch/jobs/job_hosts.h"

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

TEST(JobVariables, EmptyOnesAreNotSet) {
  const Variables variables = {{"EMPTY", ""}, {"HOST", "a"}};
  EXPECT_EQ(value_of(variables, "HOST"), "a");
  EXPECT_EQ(value_of(variables, "OTHER"), "");
  EXPECT_EQ(first_set(variables, {"EMPTY", "OTHER", "HOST"}), "HOST");
  EXPECT_EQ(first_set(variables, {"EMPTY", "OTHER"}), "");
  EXPECT_EQ(needed(variables, "HOST", "set it"), "a");
  EXPECT_ERROR(ConfigError, needed(variables, "EMPTY", "set it"),
               "environment variable EMPTY is not set; set it");
}

TEST(JobVariables, NumbersAreNamedWithWhoSetsThem) {
  const Variables variables = {{"SIZE", "3"}, {"BAD", "x"}};
  EXPECT_EQ(number_of(variables, "SIZE", 1, "srun has"), 3);
  EXPECT_ERROR(ConfigError, number_of(variables, "BAD", 1, "srun has"), "BAD is \"x\"; expected");
  EXPECT_ERROR(ConfigError, number_of(variables, "OTHER", 1, "srun has"), "OTHER is not set");
}

}  // namespace
}  // namespace trireme::launch
