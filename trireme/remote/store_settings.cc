#include "trireme/remote/store_settings.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"

namespace trireme::remote {
namespace {

constexpr uint64_t kMostSettingsBytes = 1 << 20;

using Section = std::map<std::string, std::string>;

// "[section]" lines with "name = value" lines below. Lines of another form are others' business.
std::map<std::string, Section> read_sections(const std::string& path) {
  std::map<std::string, Section> sections;
  if (path.empty() || !is_file(path)) return sections;
  const std::string content = read_file(path, kMostSettingsBytes);
  std::string section;
  for (std::string_view rest = content; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (text.empty() || text[0] == '#' || text[0] == ';') continue;
    if (text[0] == '[' && text.back() == ']') {
      section = trimmed(text.substr(1, text.size() - 2));
      sections[section];
    } else if (const size_t equals = text.find('='); equals != std::string_view::npos) {
      sections[section][std::string(trimmed(text.substr(0, equals)))] =
          trimmed(text.substr(equals + 1));
    }
  }
  return sections;
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string variable(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? "" : value;
  }
  std::string first(const char* name, const char* other) const {
    const std::string value = variable(name);
    return value.empty() ? variable(other) : value;
  }
  // The file that a variable names, or one in the home folder.
  std::string file(const char* name, const char* in_home) const {
    const std::string given = variable(name), home = variable("HOME");
    if (!given.empty()) return given;
    return home.empty() ? "" : home + "/" + in_home;
  }

 private:
  const Environment& environment_;
};

std::string value_of(const Section& section, const char* name) {
  const auto found = section.find(name);
  return found == section.end() ? "" : found->second;
}

void take(std::string& value, const std::string& other) {
  if (value.empty()) value = other;
}

// from: what both came from, for the message
std::optional<Credentials> credentials_of(Credentials keys, const std::string& from) {
  if (keys.access_key.empty() && keys.secret_key.empty()) return std::nullopt;
  TRIREME_CHECK(!keys.access_key.empty() && !keys.secret_key.empty(), "the ",
                keys.access_key.empty() ? "access key id" : "secret access key",
                " of the store is missing in ", from, "; set both, or neither for public data");
  for (const std::string& key : {keys.access_key, keys.secret_key, keys.session_token}) {
    // A line end would begin another header.
    for (const char c : key) {
      TRIREME_CHECK(c > 32 && c < 127, "a key of the store in ", from,
                    " has spaces or other unexpected characters; set it as the store shows it");
    }
  }
  return keys;
}

void check_endpoint(const std::string& endpoint, const char* from) {
  const bool is_web = endpoint.starts_with("http://") || endpoint.starts_with("https://");
  TRIREME_CHECK(
      endpoint.empty() || (is_web && endpoint.find_first_of("?#@ \t\r\n") == std::string::npos),
      from, " is \"", shown(endpoint), "\"; expected a URL such as http://127.0.0.1:9000");
}

StoreAccess read_s3(const Reader& reader) {
  StoreAccess access;
  Credentials keys{reader.variable("AWS_ACCESS_KEY_ID"), reader.variable("AWS_SECRET_ACCESS_KEY"),
                   reader.variable("AWS_SESSION_TOKEN")};
  const std::string given = reader.first("AWS_PROFILE", "AWS_DEFAULT_PROFILE");
  const std::string profile = given.empty() ? "default" : given;
  const std::string key_file = reader.file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
  const std::string config_file = reader.file("AWS_CONFIG_FILE", ".aws/config");
  auto secrets = read_sections(key_file), config = read_sections(config_file);
  const std::string config_name = profile == "default" ? profile : "profile " + profile;
  TRIREME_CHECK(given.empty() || secrets.contains(profile) || config.contains(config_name),
                "AWS_PROFILE is \"", shown(given), "\", which neither ", key_file, " nor ",
                config_file, " has; expected a section of one of them");
  std::string from = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
  for (const auto& [section, file] :
       {std::pair(secrets[profile], key_file), std::pair(config[config_name], config_file)}) {
    if (keys.access_key.empty() && keys.secret_key.empty()) {
      keys = {value_of(section, "aws_access_key_id"), value_of(section, "aws_secret_access_key"),
              value_of(section, "aws_session_token")};
      from = concat("section ", profile, " of ", file);
    }
  }
  access.credentials = credentials_of(std::move(keys), from);
  access.region = reader.first("AWS_REGION", "AWS_DEFAULT_REGION");
  take(access.region, value_of(config[config_name], "region"));
  take(access.region, "us-east-1");
  access.endpoint = reader.first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
  take(access.endpoint, value_of(config[config_name], "endpoint_url"));
  check_endpoint(access.endpoint, "AWS_ENDPOINT_URL");
  return access;
}

StoreAccess read_gs(const Reader& reader) {
  StoreAccess access{.region = "auto"};
  Credentials keys{reader.variable("GS_ACCESS_KEY_ID"), reader.variable("GS_SECRET_ACCESS_KEY"),
                   ""};
  std::string from = "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY";
  if (keys.access_key.empty() && keys.secret_key.empty()) {
    from = reader.file("BOTO_CONFIG", ".boto");
    const Section section = read_sections(from)["Credentials"];
    keys = {value_of(section, "gs_access_key_id"), value_of(section, "gs_secret_access_key"), ""};
  }
  access.credentials = credentials_of(std::move(keys), from);
  access.endpoint = reader.variable("STORAGE_EMULATOR_HOST");
  if (!access.endpoint.empty() && !access.endpoint.starts_with("http")) {
    access.endpoint = "http://" + access.endpoint;
  }
  check_endpoint(access.endpoint, "STORAGE_EMULATOR_HOST");
  take(access.endpoint, "https://storage.googleapis.com");
  return access;
}

}  // namespace

StoreSettings read_store_settings(const Environment& environment) {
  const Reader reader(environment);
  return {.s3 = read_s3(reader), .gs = read_gs(reader)};
}

StoreSettings read_store_settings() {
  return read_store_settings([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace trireme::remote
