// A device as predictions of time see it: how fast it does each kind of work. From a datasheet, or measured.
//
// Note [Rates]: a product of m × k by k × n takes 2mnk / (peak · reach / (1 + edge · (1/m + 1/n + 1/k))): of the peak
// large products reach a part, and small ones lose what lies at the edges of tiles. Attention reaches a part of the
// peak of its own, forward and backward, and less where contexts are short. Everything else is limited by the bytes it
// moves. A call takes call_s at least; where calls are made one by one, the host takes host_call_s for each.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"

namespace sinter::plan {

struct ProductRate {
  double peak = 0;   // FLOP/s
  double reach = 1;  // the part of it that large products attain
  double edge = 0;   // elements
  double rate(double m, double n, double k) const { return peak * reach / (1 + edge * (1 / m + 1 / n + 1 / k)); }
};

struct AttentionRate {  // of the products' peak, of FLOPs that are really run
  double forward = 0.5, backward = 0.4;
  double edge = 0;  // tokens: of ctx they attain ctx / (ctx + edge)
};

struct Machine {
  std::string name;
  enum Source { datasheet, measured } source = datasheet;
  std::string date;   // of the measurement
  DeviceInfo target;  // what a step is traced for: which kernels there are, and so which calls, depends on it
  double memory_bytes = 0;
  std::map<std::string, ProductRate> products;  // by dtype
  AttentionRate attention;
  double bandwidth = 0;  // B/s that calls reach
  double call_s = 0, host_call_s = 0;
  double overlap = 0;  // of what computes, the part that a collective beside it costs
  // What was measured: outside it predictions are extrapolations.
  struct Range {
    double lowest = 0, highest = 0;
  };
  std::optional<Range> product_flops;  // of a call
  std::string hash;                    // of the file's bytes; empty for those that sinter brings

  const ProductRate& product(const std::string& dtype) const;  // refuses one it does not have, naming those it has
};

// A file's path, or a name of known_machines(); refuses what is broken with line, field and reason.
Machine machine_named(const std::string& name_or_file);
std::vector<std::string> known_machines();
// Of the networks that are known by name, the one that lies between such machines where nobody says another.
std::string network_beside(const Machine& machine);
std::string machine_json(const Machine& machine);  // as machine_named() reads it

}  // namespace sinter::plan
