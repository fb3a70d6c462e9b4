# Sourced by the other scripts; POSIX sh.

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

find_tool() {  # find_tool NAME FOLDER…: a program on PATH or in one of the folders
  name=$1; shift
  command -v "$name" 2>/dev/null && return
  for folder in "$@"; do
    [ -x "$folder/$name" ] && echo "$folder/$name" && return
  done
  return 1
}

nvidia_smi() {
  smi=$(find_tool nvidia-smi /usr/local/nvidia/bin /usr/lib/wsl/lib) && "$smi" "$@" 2>/dev/null
}

gpu_name() {  # empty where there is no usable GPU
  nvidia_smi --query-gpu=name --format=csv,noheader | head -n 1
}

cuda_built() {  # cuda_built BUILD_DIR
  grep -q '^SINTER_CUDA_BUILT:INTERNAL=ON$' "$1/CMakeCache.txt" 2>/dev/null
}
cuda_why() {
  sed -n 's/^SINTER_CUDA_WHY:INTERNAL=//p' "$1/CMakeCache.txt" 2>/dev/null
}

have() { command -v "$1" >/dev/null 2>&1; }

# install_packages WHO PACKAGE…: with apt-get, as root or through sudo; where that cannot be, says what to do and fails.
install_packages() {
  who=$1; shift
  if ! have apt-get; then
    echo "$who: no apt-get here. Install with this system's package manager what these Debian packages hold:"
    echo "  $*"
    return 2
  fi
  sudo=""
  if [ "$(id -u)" -ne 0 ]; then
    if ! have sudo; then
      echo "$who: not root, and no sudo. Run as root:"
      echo "  apt-get update && apt-get install -y --no-install-recommends $*"
      return 2
    fi
    sudo=sudo
  fi
  echo "installing: $*"
  if ! { $sudo apt-get update && apt_install "$@"; }; then
    echo "$who: apt-get failed (above). What it was asked to do:"
    echo "  apt-get update && apt-get install -y --no-install-recommends $*"
    return 2
  fi
}
apt_install() {  # after install_packages found out how
  [ $# -eq 0 ] || $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}
