#include "trireme/dataset/recommend/debian.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/dataset/recommend/raw_recorder.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

using Strings = std::vector<std::string>;

class Debian : public ::testing::Test {
 protected:
  std::vector<DebianPackage> read(const std::string& text) {
    write_file_atomically(path_, text);
    return read_debian({path_.string()});
  }
  std::string error_of(const std::string& text) {
    const std::string message = harness::message_of<ConfigError>([&] { read(text); });
    return message.substr(std::min(message.size(), path_.string().size()));
  }
  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "Packages";
};

constexpr const char* kTwo =
    "Package: py-Foo2\nVersion: 1\nInstalled-Size: 99\nMaintainer: Ann <a@b.c>\n"
    "Depends: libc6 (>= 2.34), bar | baz (= 1), py:any,\n libc6\nPre-Depends: dpkg [amd64]\n"
    "Description: The foo of a foo\n More about it.\nTag: role::program, use::play,\n x::y\n"
    "Section: games\nPriority: optional\n\n\n"
    "Package: bar\nSection: libs\nDescription: a bar\n\nPackage: bar\nSection: other\n";

TEST_F(Debian, ParagraphsArePackages) {
  const std::vector<DebianPackage> packages = read(kTwo);
  ASSERT_EQ(packages.size(), 2U);
  EXPECT_EQ(packages[0].name, "py-Foo2");
  EXPECT_EQ(packages[0].maintainer, "Ann <a@b.c>");
  EXPECT_EQ(packages[0].installed_size, 99);
  EXPECT_EQ(packages[0].depends_on, (Strings{"dpkg", "libc6", "bar", "py"}));
  EXPECT_EQ(packages[0].tags, (Strings{"role::program", "use::play", "x::y"}));
  EXPECT_EQ(packages[0].words, (Strings{"py", "foo2", "the", "foo", "of"}));
  EXPECT_EQ(packages[1].section, "libs") << "of two with one name the first counts";
}

TEST_F(Debian, DependenciesArePairs) {
  read(kTwo);
  const auto data = open_debian_depends({path_.string()});
  RawRecorder recorder;
  data->read(recorder);
  ASSERT_EQ(recorder.samples.size(), 4U);
  EXPECT_EQ(recorder.items[0], "dpkg:dpkg,,") << "a name of which no package is known";
  EXPECT_EQ(recorder.items[2], "bar:bar,libs,bar");
  EXPECT_EQ(recorder.samples[2],
            "bar:games,optional,Ann <a@b.c>,py|foo2|the|foo|of,role::program|use::play|x::y");
  EXPECT_EQ(recorder.groups, (std::vector<uint64_t>{0, 0, 0, 0}));
  EXPECT_FLOAT_EQ(recorder.dense[0][0], std::log(100.0F));
  EXPECT_LE(recorder.num_bytes, data->num_bytes());
}

TEST_F(Debian, SectionsAreClasses) {
  read(std::string(kTwo) + "\nPackage: no-section\n");
  RawRecorder recorder;
  open_debian_sections({path_.string()})->read(recorder);
  ASSERT_EQ(recorder.samples.size(), 2U);
  EXPECT_TRUE(recorder.samples[0].starts_with("games:optional,Ann"));
  EXPECT_EQ(recorder.samples[1], "libs:,,bar,,");
}

TEST_F(Debian, WrongTextIsRefusedWithItsLine) {
  EXPECT_EQ(error_of("Package: a\n\nSection: x\nPriority: y\n"),
            ":3: this paragraph has no field Package; expected one per package");
  EXPECT_EQ(error_of("Package: a\nnonsense\n"),
            ":2 is \"nonsense\"; expected a field such as \"Package: name\"");
  EXPECT_EQ(error_of(" more\n"), ":1 is \" more\"; expected a field such as \"Package: name\"");
  EXPECT_EQ(error_of("Package: a\nPackage: b\n"),
            ":2: the field Package occurs twice in its paragraph; expected once");
  for (const std::string size : {"-1", "many", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(error_of("Package: a\nInstalled-Size: " + size + "\n"),
              ":1: Installed-Size is \"" + size + "\"; expected a whole number");
  }
  EXPECT_EQ(error_of("\n\n"), " has no package; expected paragraphs of fields");
  read("Package: a\n");
  EXPECT_NE(harness::message_of<ConfigError>([&] { open_debian_depends({path_.string()}); }), "");
  EXPECT_NE(harness::message_of<ConfigError>([&] { open_debian_sections({path_.string()}); }), "");
}

TEST_F(Debian, ThePackagesOfARealSystemAreRead) {
  const std::vector<DebianPackage> packages = read_debian({TRIREME_DEBIAN_PACKAGES});
  ASSERT_EQ(packages.size(), 205U);
  int64_t num_edges = 0;
  for (const DebianPackage& package : packages) num_edges += std::ssize(package.depends_on);
  EXPECT_GT(num_edges, 400);
  const auto found = std::ranges::find(packages, "r-cran-abind", &DebianPackage::name);
  ASSERT_NE(found, packages.end());
  EXPECT_EQ(found->depends_on, (Strings{"r-base-core", "r-api-4.0"}));
  EXPECT_EQ(found->section, "gnu-r");
}

}  // namespace
}  // namespace trireme::dataset
