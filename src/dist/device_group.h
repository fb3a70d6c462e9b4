// What groups of GPU ranks have in common: collectives are queued on a stream, and the device does them when it comes
// to them. Whether it does is for a thread to see.
//
// Note [Watching]: a stream that waits for a rank that will not come waits for ever, and with it whoever waits for the
// stream. So each group has a thread that looks how far the device has come (DeviceProgress) and whether the others are
// alive. When one is not, or has not come for too long, the thread lets go what waits on the device, whose results are
// then worth nothing, and leaves an error for throw_if_failed(). If nobody asks within a second or two, because the
// process waits for something else, the thread reports it and ends the process. The thread asks nothing of CUDA that
// could wait for the device.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "backend/cuda/exchange.h"
#include "dist/group.h"

namespace sinter::dist {

class DeviceGroup : public Group {
 public:
  // `host`: of the same ranks, for numbers that lie in the host's memory; without it they go by way of the GPU.
  DeviceGroup(GroupSetting setting, std::unique_ptr<ProcessGroup> host);
  void throw_if_failed() override;

 protected:
  virtual void enqueue(const Collective& what, const void* in, void* out, void* stream) = 0;
  // By the thread that watches: how far the device has come; nothing there waits any more; what else it has to look at
  // (it throws what it finds).
  virtual cuda::DeviceProgress::Seen seen() const = 0;
  virtual void let_go() = 0;
  virtual void look_beside() {}

  bool has_host() const { return host_ != nullptr; }
  ProcessGroup& host() { return *host_; }
  uint32_t id_of(const Collective& what);  // of its kind and size, for DeviceProgress
  void watch();                            // from the end of the constructor on …
  void stop_watching();                    // … to the beginning of the destructor: it calls what others override

 private:
  bool is_queued() const final { return true; }
  void do_run(const Collective& what, const void* in, void* out, void* stream) final;
  void by_way_of_the_gpu(const Collective& what, const void* in, void* out);
  std::optional<Collective> collective(uint32_t id);
  bool sleep(double seconds);  // false: it is to end
  void look();
  void report_failure();

  std::unique_ptr<ProcessGroup> host_;
  std::mutex mutex_;
  std::condition_variable ends_;
  std::vector<Collective> known_;  // by id - 1
  bool stop_ = false;
  std::atomic<bool> failed_{false}, told_{false};
  std::string failure_;
  std::thread thread_;
};

}  // namespace sinter::dist
