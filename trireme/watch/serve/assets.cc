#include "trireme/watch/serve/assets.h"

namespace trireme::watch {

std::string_view type_of_asset(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "text/plain; charset=utf-8";
}

}  // namespace trireme::watch
