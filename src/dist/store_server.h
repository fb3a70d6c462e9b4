// Rank 0's side of the store: a thread that keeps the values and answers those who know the job and its secret.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "dist/environment.h"
#include "dist/store_messages.h"

namespace sinter::dist::store {

class Server {
 public:
  Server(Socket listening, const RankInfo& me);
  ~Server();  // stays a moment for clients that have not gone yet
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  struct Client;
  void serve();
  void welcome_strangers();
  void attend(Client& c, short events);
  void receive(Client& c);
  bool take_message(Client& c);
  void introduce(Client& c, Reader& message);
  void obey(Client& c, Reader& message);
  void store(const std::string& key, const std::string& value);
  void answer(Client& c, Answer kind, const std::string& value = "");
  void flush(Client& c);

  Socket listening_, wake_;
  const std::string job_, secret_;
  std::atomic<bool> stopping_ = false;
  // The thread's alone.
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

}  // namespace sinter::dist::store
