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
