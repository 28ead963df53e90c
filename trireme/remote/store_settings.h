// Where stores are and with which keys: from the environment and the usual files, as other clients
// of S3 and Google Cloud Storage read them. Keys are in no message.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/remote/signature.h"

namespace trireme::remote {

struct StoreAccess {
  std::optional<Credentials> credentials{};  // none: requests are not signed, as public data needs
  std::string region{};
  std::string endpoint{};  // "http://127.0.0.1:9000"; "": the provider's own
};

struct StoreSettings {
  StoreAccess s3{};
  StoreAccess gs{};
};

// The value of an environment variable; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

// s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or else the section of
// AWS_PROFILE ("default") in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials); AWS_REGION or
// AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or else AWS_CONFIG_FILE
// (~/.aws/config). gs: GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, HMAC keys, or else BOTO_CONFIG
// (~/.boto); STORAGE_EMULATOR_HOST.
// Throws: ConfigError when one of two keys is missing, AWS_PROFILE is in no file, or an endpoint is
//         no http:// or https:// URL
StoreSettings read_store_settings(const Environment& environment);
// Of this process's environment.
StoreSettings read_store_settings();

}  // namespace trireme::remote
