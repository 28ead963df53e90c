# Sourced: pins the versions, so that every machine formats and checks alike. clang-tidy 14 cannot read the ranges of
# GCC 12's library.
declare -rA clang_version=([clang-format]=14 [clang-tidy]=19)
find_clang() { # find_clang clang-format: prints the program of the pinned version
  local candidate version=${clang_version[$1]}
  for candidate in "$1-$version" "$1"; do
    if command -v "$candidate" >/dev/null && [[ $("$candidate" --version) =~ version\ $version\. ]]; then
      echo "$candidate"
      return 0
    fi
  done
  echo "check: $1 $version is needed and not found; apt-get install $1-$version" >&2
  return 1
}
