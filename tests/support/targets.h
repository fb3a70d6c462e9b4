// GPUs that need not be here: what meta stands for, and what graphs are compiled for.
#pragma once
#include "plan/gpus.h"

namespace sinter {

inline DeviceInfo hopper_gpu() { return plan::card_named("H200-141").info(); }
inline DeviceInfo older_gpu() { return plan::card_named("A100-80").info(); }  // without Hopper's own kernels

}  // namespace sinter
